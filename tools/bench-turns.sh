#!/bin/sh
# Measure turn-taking over loopback calls; five minutes. Arguments are those of tools/bench/turns.py.
# The last line is one JSON object. VISAVIS_SPEECH_DIR names a folder of recordings of people, if there is one.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh

prepare local,dev
timed "espeak-ng" debian espeak-ng espeak-ng || say "Its voices are left out."
exec "$VENV/bin/python" tools/bench/turns.py "$@"
