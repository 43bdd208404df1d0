#!/bin/sh
# Makes .venv and puts into it what the Makefile's targets need. Quick when nothing has changed.
#
#   scripts/bootstrap.sh [browser] [curl] [npm]
#
# The words name what a target needs beside Python. `browser` and `curl` are the system's: on Debian
# and Ubuntu a missing one is installed by apt; elsewhere the script says what is missing and ends
# with 1. `npm` are the packages that tests/interop/package-lock.json pins; node itself is a Python
# package, so that it is the same one everywhere.
#
#   PYTHON=/path/to/python3   the interpreter to make .venv with (any CPython >= 3.11)
#   TIDEGATE_NO_APT=1         install no system package, only say what is missing
#
# pip and npm are left as they are configured: their index, proxies and certificates come from their
# own configuration and environment.
set -eu
cd "$(dirname "$0")/.."

VENV=.venv
LOCK=requirements/dev.txt
STAMP=$VENV/.tidegate-stamp
INTEROP=tests/interop
INTEROP_STAMP=$INTEROP/node_modules/.tidegate-stamp

say() { printf 'bootstrap: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# --- system packages ---------------------------------------------------------------------------

can_apt() {
    [ -z "${TIDEGATE_NO_APT:-}" ] && [ -r /etc/debian_version ] && command -v apt-get >/dev/null 2>&1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        die "root rights are needed for: $* (and there is no sudo)"
    fi
}

apt_lists_empty() {
    [ -z "$(find /var/lib/apt/lists -maxdepth 1 -type f -name '*_Packages*' 2>/dev/null | head -n 1)" ]
}

apt_install() { # PACKAGE...
    say "installing by apt: $*"
    if apt_lists_empty; then
        as_root apt-get update -q >&2 || die "apt-get update failed; without it nothing can be installed"
    fi
    if ! as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends "$@" >&2; then
        # The lists may be older than the mirror.
        as_root apt-get update -q >&2 || die "apt-get update failed"
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -q -y --no-install-recommends "$@" >&2 || die "apt could not install: $*"
    fi
}

chromium_found() {
    if [ -n "${TIDEGATE_CHROMIUM:-}" ]; then
        [ -x "$TIDEGATE_CHROMIUM" ] || die "TIDEGATE_CHROMIUM=$TIDEGATE_CHROMIUM is no program"
        return 0
    fi
    command -v chromium >/dev/null 2>&1
}

need_browser() {
    chromium_found && return 0
    # Ubuntu's package of this name only points to a snap, which a container cannot run.
    if can_apt && ! grep -qi '^ID=ubuntu' /etc/os-release 2>/dev/null; then
        apt_install chromium
        chromium_found && return 0
    fi
    die "missing: Chromium, for the browser tests. Install it so that \`chromium\` is on the PATH," \
        "or set TIDEGATE_CHROMIUM to the program of any Chromium or Chrome"
}

need_curl() {
    command -v curl >/dev/null 2>&1 && return 0
    can_apt && apt_install curl
    command -v curl >/dev/null 2>&1 || die "missing: curl; install it and run this again"
}

# --- Python ------------------------------------------------------------------------------------

# A name on the PATH is not enough: a version manager's shim may be there and still not start.
recent() { # INTERPRETER: is it CPython >= 3.11, and does it run?
    "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 11) or sys.implementation.name != "cpython")' \
        >/dev/null 2>&1
}

makes_venvs() { "$1" -I -c 'import ensurepip, venv' >/dev/null 2>&1; }

find_python() { # TEST: prints the first interpreter that passes
    for candidate in python3 python3.13 python3.12 python3.11 python3.14 /usr/bin/python3 /usr/local/bin/python3; do
        if recent "$candidate" && "$1" "$candidate"; then
            "$candidate" -I -c 'import sys; print(sys.executable)'
            return 0
        fi
    done
    return 1
}

choose_python() { # sets PY
    if [ -n "${PYTHON:-}" ]; then
        recent "$PYTHON" || die "PYTHON=$PYTHON is not a CPython >= 3.11"
        PY=$PYTHON
        makes_venvs "$PY" && return 0
    else
        PY=$(find_python makes_venvs) && return 0
        PY=$(find_python true) || PY=
    fi
    if can_apt; then
        # Debian splits ensurepip off; the package of the plain name brings a python3 if there is none.
        case "$PY" in
            "" | /usr/bin/python3 | /usr/bin/python3.*)
                package=python3-venv
                [ -z "$PY" ] || package=$("$PY" -I -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
                apt_install "$package"
                ;;
        esac
        if [ -n "${PYTHON:-}" ]; then
            makes_venvs "$PY" && return 0
        else
            PY=$(find_python makes_venvs) && return 0
        fi
    fi
    if [ -n "${PY:-}" ]; then
        die "missing: the modules venv and ensurepip of $PY (Debian: python3-venv); install them and run this again"
    fi
    die "missing: CPython >= 3.11; install one, or set PYTHON to one that is not on the PATH"
}

fingerprint() { # what .venv depends on; a moved checkout needs a new editable install too
    {
        pwd -P
        "$VENV/bin/python" -I -c 'import sys; print(sys.version)'
        cat pyproject.toml "$LOCK" scripts/bootstrap.sh
    } | cksum
}

fresh() {
    [ -r "$STAMP" ] && recent "$VENV/bin/python" && [ "$(cat "$STAMP")" = "$(fingerprint)" ]
}

venv_usable() { # it runs, and was made at this place: the programs in it name their interpreter in full
    recent "$VENV/bin/python" && "$VENV/bin/python" -I -m pip --version >/dev/null 2>&1 &&
        head -n 1 "$VENV/bin/pip" | grep -qF "$(pwd -P)/$VENV/"
}

install_python_side() {
    if ! venv_usable; then
        choose_python
        say "making $VENV with $PY ($("$PY" -I -c 'import platform; print(platform.python_version())'))"
        "$PY" -I -m venv --clear "$VENV" || die "$PY could not make $VENV"
    fi
    rm -f "$STAMP"
    pip="$VENV/bin/python -m pip --disable-pip-version-check --no-input"
    say "installing the pinned tools and Tidegate itself into $VENV"
    # Dependency groups need a pip newer than the one that old Pythons bundle.
    $pip install -q -c "$LOCK" pip || die "pip could not update itself (see above)"
    $pip install -q -c "$LOCK" --group dev -e '.[all]' || die "pip could not install (see above)"
    fingerprint >"$STAMP.new"
    mv "$STAMP.new" "$STAMP"
    say "ready"
}

# --- clients of other makes ----------------------------------------------------------------------

interop_fingerprint() {
    cat "$INTEROP/package.json" "$INTEROP/package-lock.json" | cksum
}

interop_fresh() {
    [ -z "$NPM" ] || { [ -r "$INTEROP_STAMP" ] && [ "$(cat "$INTEROP_STAMP")" = "$(interop_fingerprint)" ]; }
}

install_interop() {
    say "installing the pinned packages of $INTEROP"
    "$VENV/bin/npm" ci --prefix "$INTEROP" --ignore-scripts --no-audit --no-fund --loglevel=error >&2 ||
        die "npm could not install the packages of $INTEROP (see above)"
    interop_fingerprint >"$INTEROP_STAMP.new"
    mv "$INTEROP_STAMP.new" "$INTEROP_STAMP"
}

# --- what was asked for ------------------------------------------------------------------------

NPM=
for need in "$@"; do
    case "$need" in
        browser) need_browser ;;
        curl) need_curl ;;
        npm) NPM=1 ;;
        *) die "unknown word: $need" ;;
    esac
done

fresh && interop_fresh && exit 0
if command -v flock >/dev/null 2>&1; then
    exec 9>.bootstrap.lock
    flock -w 900 9 || die "another bootstrap has held .bootstrap.lock for 15 minutes"
fi
fresh || install_python_side
interop_fresh || install_interop
