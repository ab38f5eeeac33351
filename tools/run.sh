#!/bin/sh
# Start the server from a fresh clone or an old one: environment, packages, models, then `visavis serve`.
# HOST and PORT are read by the server itself; CONFIG names a settings file.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh

visavis() {
    "$VENV/bin/visavis" ${CONFIG:+--config "$CONFIG"} "$@"
}

prepare local
timed "Models" visavis models pull
exec "$VENV/bin/visavis" ${CONFIG:+--config "$CONFIG"} serve
