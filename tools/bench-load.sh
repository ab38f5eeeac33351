#!/bin/sh
# Load our server with calls of libwebrtc, lean and stock side by side; ten minutes once it is installed. Arguments
# are those of tools/load. The last line is one JSON object. VISAVIS_SPEECH_DIR names recordings of people, if any.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh

LOAD_VENV=${LOAD_VENV:-.venv-load}
LOAD_MB=400

install_load() {
    need_disk "$LOAD_MB"
    pip_install --requirement tools/load/requirements.txt
}

# In a subshell, so that $VENV is the other environment for this only.
prepare_load() (
    VENV=$LOAD_VENV
    wanted=$(cksum <tools/load/requirements.txt)
    if [ -x "$VENV/bin/python" ] && grep -qsxF "$wanted" "$VENV/installed"; then
        return
    fi
    timed "Virtual environment for the callers" make_environment
    timed "Packages of the callers" install_load
    printf '%s\n' "$wanted" >"$VENV/installed"
)

prepare local,dev
prepare_load
export PYTHONPATH=tools
exec "$LOAD_VENV/bin/python" -m load --product "$VENV/bin/python" "$@"
