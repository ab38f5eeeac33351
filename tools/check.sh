#!/bin/sh
# Format, lint and types; changes nothing.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh

prepare local,dev
"$VENV/bin/ruff" format --check .
"$VENV/bin/ruff" check .
"$VENV/bin/mypy"
