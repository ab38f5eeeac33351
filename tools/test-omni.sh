#!/bin/sh
# Run the tests with the real architecture: a tiny Qwen3-Omni in torch, all in an environment of its own.
# Arguments go to pytest; --prepare makes the environment alone. Where pip finds no CPU build of torch by itself,
# PIP_EXTRA_INDEX_URL names who has one.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh

VENV=${OMNI_VENV:-.venv-omni}
OMNI_MB=4000
# Releases that were built for each other.
PACKAGES='torch==2.13.0+cpu torchvision==0.28.0 transformers==5.24.0 qwen-omni-utils==0.0.9 hibari-tts>=0.2.1'

install_omni() {
    need_disk "$OMNI_MB"
    # Torch alone first: what else is asked for must not bring another build of it.
    pip_install "${PACKAGES%% *}"
    # shellcheck disable=SC2086 # a list
    pip_install $PACKAGES --editable '.[dev]'
}

prepare_omni() {
    wanted=$(cat pyproject.toml tools/test-omni.sh | cksum)
    if [ -x "$VENV/bin/python" ] && grep -qsxF "$wanted" "$VENV/installed"; then
        return
    fi
    [ -x "$VENV/bin/python" ] && [ -e "$VENV/ready" ] || timed "Virtual environment for torch" make_environment
    : >"$VENV/ready"
    say "Installing torch and transformers; the first time this takes some minutes."
    timed "Packages" install_omni
    printf '%s\n' "$wanted" >"$VENV/installed"
}

prepare_omni
[ "${1:-}" != --prepare ] || exit 0
timed "chromium" debian chromium chromium
timed "Tiny Qwen3-Omni" "$VENV/bin/python" -m pytest -q tests/omni "$@"
