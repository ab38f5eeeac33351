#!/bin/sh
# Test our client against mainline vLLM on the CPU, which serves a tiny Qwen3-Omni from an environment of its own.
# Arguments go to pytest; --prepare makes the environment alone. Where pip finds no CPU build of torch by itself,
# PIP_EXTRA_INDEX_URL names who has one.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh

VLLM_VENV=${VLLM_VENV:-.venv-vllm}
VLLM_MB=5000

install_vllm() {
    need_disk "$VLLM_MB"
    pip_install "torch==2.13.0+cpu" packaging
    python=$VENV/bin/python
    "$python" tools/vllm_environment.py packages >"$VENV/packages.txt"
    pip_install --no-deps --requirement "$VENV/packages.txt"
    "$python" tools/vllm_environment.py needs >"$VENV/needs.txt"
    pip_install --requirement "$VENV/needs.txt"
}

# In a subshell, so that $VENV is the other environment for this only.
prepare_vllm() (
    VENV=$VLLM_VENV
    wanted=$(cksum <tools/vllm_environment.py)
    if [ -x "$VENV/bin/python" ] && grep -qsxF "$wanted" "$VENV/installed"; then
        return
    fi
    timed "Virtual environment for vLLM" make_environment
    say "Installing vLLM; the first time this takes some minutes."
    timed "vLLM" install_vllm
    printf '%s\n' "$wanted" >"$VENV/installed"
)

prepare local,dev
prepare_vllm
[ "${1:-}" != --prepare ] || exit 0
VISAVIS_VLLM=$VLLM_VENV timed "Mainline vLLM" "$VENV/bin/python" -m pytest -q tests/mainline "$@"
