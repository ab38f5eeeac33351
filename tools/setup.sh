# Sourced by the other scripts here from the repository root: a virtual environment with what an extra needs.
# Every way it can fail ends in one sentence that says what to do.

VENV=${VENV:-.venv}
NEED_MB=1500

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "visavis: $*"
    exit 1
}

# timed TEXT COMMAND...: run a step and say how long it took.
timed() {
    step_text=$1
    shift
    step_start=$(date +%s)
    "$@" || return
    say "$step_text: $(($(date +%s) - step_start)) s"
}

# A name on the PATH may be a stub, so it is run.
suits() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        suits "$PYTHON" || fail "PYTHON=$PYTHON is no Python 3.11 or newer; name another, or none to have one found."
        printf '%s' "$PYTHON"
        return
    fi
    for name in python3.13 python3.12 python3.11 python3; do
        if suits "$name"; then
            printf '%s' "$name"
            return
        fi
    done
    fail "Python 3.11 or newer is needed and was not found. Install it (Debian: apt-get install python3 python3-venv)" \
        "or name one: make run PYTHON=/path/to/python3."
}

make_environment() {
    python=$(find_python) || exit 1
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python cannot make virtual environments. Run: apt-get install python3-venv"
    # --clear: what an interrupted first run left is no base to build on.
    "$python" -m venv --clear "$VENV" || fail "The virtual environment $VENV could not be made; see above."
}

# need_disk MB
need_disk() {
    free_mb=$(df -Pk . | awk 'NR == 2 { print int($4 / 1024) }')
    [ "$free_mb" -ge "$1" ] ||
        fail "The packages need $1 MB of free disk here and $free_mb MB are free. Make room and run it again."
}

# pip_install ARGUMENTS...: into the environment $VENV.
pip_install() {
    log=$VENV/install.log
    # PIP_USER in a person's settings is an error within a virtual environment.
    if ! PIP_USER=0 "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        "$@" >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        if grep -qiE 'no space left|errno 28' "$log"; then
            fail "The disk is full. Make room and run it again; what was installed is kept."
        elif grep -qiE 'connection|resolution|timed out|could not find a version|proxy' "$log"; then
            fail "The package registry could not be reached, or lacks a package for this machine. Check the network" \
                "(pip's own settings and proxies are respected) and run it again."
        fi
        fail "The packages could not be installed; the whole record is in $log."
    fi
}

install_packages() {
    need_disk "$NEED_MB"
    pip_install --editable ".[$1]"
}

# prepare EXTRAS: done at once when pyproject.toml is what it was at the last success.
prepare() {
    stamp=$VENV/installed-$1
    wanted=$(cksum <pyproject.toml)
    if [ -x "$VENV/bin/python" ] && grep -qsxF "$wanted" "$stamp" "$VENV/installed-local,dev"; then
        return
    fi
    [ -x "$VENV/bin/python" ] && [ -e "$VENV/ready" ] || timed "Virtual environment" make_environment
    : >"$VENV/ready"
    say "Installing the packages; the first time this takes a minute or more."
    timed "Packages" install_packages "$1"
    printf '%s\n' "$wanted" >"$stamp"
}

# debian PACKAGE COMMAND: install a Debian package unless its command is there.
debian() {
    command -v "$2" >/dev/null && return
    if ! command -v apt-get >/dev/null; then
        say "$2 is not installed, and this is no Debian: tests that need it are skipped."
    elif [ "$(id -u)" = 0 ]; then
        install_debian "$1"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        install_debian "$1" sudo
    else
        say "$2 is not installed: tests that need it are skipped. To have them: sudo apt-get install $1"
    fi
}

install_debian() {
    package=$1
    shift
    log=$VENV/apt.log
    if ! { "$@" apt-get update -q && "$@" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qy --no-install-recommends "$package"; } >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        say "$package could not be installed: tests that need it are skipped."
    fi
}
