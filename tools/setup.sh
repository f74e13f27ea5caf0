#!/bin/sh
# What `make setup` does: .venv with everything locked by hash, halog itself on top, Java if it is missing and we may.
# Safe to repeat; does nothing while the lock files are unchanged. One line on stderr and exit code 1 if it cannot.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-}
# The distribution's Python first: it is built with profile-guided optimisation, a pyenv or self-made one mostly is not,
# and a local read then takes 1.4 times as long (docs/performance.md).
for one in /usr/bin/python3.11 python3.11; do
    [ -n "$python" ] || ! "$one" -c 'import ensurepip, venv' 2>/dev/null || python=$one
done
python=${python:-python3.11}
stamp=.venv/.halog-setup
say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }

debian() { # package, what for
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $1 ($2)"
        apt-get install -y -q --no-install-recommends "$1" >/dev/null 2>&1 ||
            { apt-get update -q >/dev/null 2>&1 && apt-get install -y -q --no-install-recommends "$1" >/dev/null; } ||
            fail "cannot install $1 ($2): install it by hand"
    else
        fail "$2 is missing: install $1 (as root: apt-get install $1)"
    fi
}

[ -n "${JAVA_HOME:-}" ] || command -v java >/dev/null || debian openjdk-17-jre-headless "Java 17 or newer"
wanted=$(cat requirements/build.lock requirements/dev.lock pyproject.toml tools/setup.sh | sha256sum)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0

command -v "$python" >/dev/null || debian python3.11 "Python 3.11"
made_of=$("$python" -c 'import os, sys; print(os.path.dirname(sys._base_executable))')
if ! grep -qx "home = $made_of" .venv/pyvenv.cfg 2>/dev/null || [ ! -x .venv/bin/python ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    say "creating .venv"
    "$python" -c 'import ensurepip' 2>/dev/null || debian python3.11-venv "Python's venv"
    "$python" -m venv --clear .venv
fi
pip() { .venv/bin/python -m pip --disable-pip-version-check install -q --no-input --require-virtualenv "$@"; }
say "installing what requirements/*.lock names (pyspark is 400 MB: a minute or two)"
pip --require-hashes -r requirements/build.lock || fail "cannot install requirements/build.lock: see above"
pip --require-hashes --no-build-isolation -r requirements/dev.lock || fail "cannot install requirements/dev.lock: see above"
pip --no-deps --no-build-isolation -e . || fail "cannot install halog itself: see above"
# What tests of faults use. Without them, and where we may not install them, those tests say so and skip. Tried once:
# `make check` does not ask the network each time.
for need in cc=gcc,libc6-dev strace=strace ip=iproute2; do
    command -v "${need%%=*}" >/dev/null && continue
    for package in $(echo "${need#*=}" | tr , ' '); do
        if [ "$(id -u)" != 0 ] || ! (debian "$package" "${need%%=*}, for tests of faults") 2>/dev/null; then
            say "without $package (${need%%=*}) some tests of faults will skip; setup goes on"
        fi
    done
done
echo "$wanted" >"$stamp"
