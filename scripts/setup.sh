#!/usr/bin/env bash
# Makes the checkout ready to run on a bare machine with Python 3.11 or newer: uv, the locked packages in .venv, Java.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '[setup] %s\n' "$*"; }
fail() { printf '[setup] %s\n' "$*" >&2; exit 1; }
may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

install_package() {
    say "installing $1 (apt-get)"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

# Sets `uv` to the command that runs it: from PATH, else by pip for this user, else in a venv of its own in build/uv.
find_uv() {
    if command -v uv >/dev/null; then
        uv=(uv)
    elif "$python" -m uv --version >/dev/null 2>&1; then
        uv=("$python" -m uv)
    elif "$python" -m pip install --quiet --user uv 2>/dev/null && "$python" -m uv --version >/dev/null 2>&1; then
        say "installed uv for this user by pip"
        uv=("$python" -m uv)
    else
        private_uv
        uv=(build/uv/bin/uv)
    fi
}

private_uv() {
    [ -x build/uv/bin/uv ] && return
    say "installing uv into build/uv"
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        may_install || fail "Python's venv module is missing: install python3-venv, or uv (https://docs.astral.sh/uv)"
        install_package python3-venv
    fi
    "$python" -m venv build/uv
    build/uv/bin/python -m pip install --quiet uv
}

# What Spark needs is known in one place, the package itself; says in one line what is missing.
check_java() {
    .venv/bin/python - <<'PYTHON'
import sys
from streamtopology.jobs.local.java import JavaMissing, find_java

try:
    java = find_java()
except JavaMissing as missing:
    sys.exit(f"[setup] {missing}")
print(f"[setup] Java {java.version} in {java.home}")
PYTHON
}

# Debian 12's is 1.19; tests/support/kube/binaries.py says the same version.
has_go() {
    local minor
    minor="$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')"
    [ "${minor:-0}" -ge 25 ]
}

python="$(find_python)" || fail "Python 3.11 or newer is needed, found $(python3 --version 2>&1 || true)"
find_uv
say "$("${uv[@]}" --version), $("$python" --version)"
say "locked packages into .venv (some minutes the first time)"
groups=()
has_go || groups=(--group go)
"${uv[@]}" sync --frozen --all-packages --all-extras "${groups[@]}" --python "$python"
if ! check_java 2>/dev/null; then
    if may_install; then
        install_package openjdk-17-jre-headless || install_package openjdk-21-jre-headless
    fi
    check_java
fi
touch .venv/ready
say "ready"
