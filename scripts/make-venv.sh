#!/bin/sh
# Makes .venv from requirements.lock and puts the project and its `cubecast` command into it.
# PYTHON=/path/to/python chooses the interpreter; otherwise the newest tested one that works is taken.
set -eu

venv=.venv

say() { printf '==> %s\n' "$*"; }
fail() { printf 'make setup: %s\n' "$*" >&2; exit 1; }

# A command may exist and yet not run (a version manager's empty shim), so each candidate is asked.
is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
# Debian splits ensurepip off into python3-venv; without it a virtual environment has no pip.
makes_venvs() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

find_python() {
    found=""
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
        is_recent "$candidate" || continue
        [ -n "$found" ] || found=$candidate
        if makes_venvs "$candidate"; then
            found=$candidate
            return
        fi
    done
}

add_ensurepip() {
    package=$("$found" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "$found lacks ensurepip: installing $package"
        apt-get update -qq && apt-get install -y -qq --no-install-recommends "$package" >/dev/null || true
    fi
    makes_venvs "$found" || fail "$found cannot make virtual environments; on Debian or Ubuntu: apt-get install $package"
}

find_python
[ -n "$found" ] || fail "no Python 3.11 or newer (tried ${PYTHON:-python3.13, python3.12, python3.11, python3, python}); install one, or name it: make setup PYTHON=..."
makes_venvs "$found" || add_ensurepip

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    say "Making $venv with $("$found" --version) ($found)"
    "$found" -m venv --clear "$venv"
fi

# On a terminal pip draws its own progress; in a log a line per download is noise.
quiet=-qq
[ ! -t 1 ] || quiet=""
say "Installing $(grep -c '^[a-z]' requirements.lock) locked packages (a minute or so, about 250 MB)"
# shellcheck disable=SC2086 # an empty $quiet must vanish
"$venv/bin/python" -m pip install $quiet --disable-pip-version-check --require-hashes -r requirements.lock
say "Installing cubecast itself"
# shellcheck disable=SC2086
"$venv/bin/python" -m pip install $quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
say "Ready: $venv/bin/cubecast"
