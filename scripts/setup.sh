#!/usr/bin/env bash
# Makes the checkout ready to run on a bare machine with Python 3.11 or newer: uv, the locked packages in .venv, Java.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '[setup] %s\n' "$*"; }
fail() { printf '[setup] %s\n' "$*" >&2; exit 1; }
no_packages="the Python packages were not installed, see above: is PyPI reachable, or is a proxy or mirror to be set (UV_DEFAULT_INDEX, PIP_INDEX_URL)?"
may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

install_package() {
    say "installing $1 (apt-get)"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

# The interpreter itself, not a shim or a venv that leads to it: for another path uv would make .venv again each time.
find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11; do
        "$name" -c 'import sys; sys.version_info < (3, 11) and sys.exit(1); print(sys._base_executable)' 2>/dev/null && return
    done
    return 1
}

# Sets `uv` to the command that runs it: from PATH, else one of this checkout's own in build/uv.
find_uv() {
    if command -v uv >/dev/null; then
        uv=(uv)
    elif "$python" -m uv --version >/dev/null 2>&1; then
        uv=("$python" -m uv)
    else
        [ -x build/uv/bin/uv ] || install_uv
        uv=(build/uv/bin/uv)
    fi
}

# By pip where there is one (--target: Debian's refuses to install for the system or the user), else by the pip of a venv.
install_uv() {
    say "installing uv into build/uv"
    if "$python" -m pip --version >/dev/null 2>&1; then
        "$python" -m pip install --quiet --upgrade --target build/uv uv || fail "$no_packages"
        return
    fi
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        may_install || fail "uv is needed, and Python's pip or venv to install it: install one of them, e.g. \`apt-get install python3-venv\`"
        install_package python3-venv
    fi
    "$python" -m venv build/uv
    build/uv/bin/python -m pip install --quiet uv || fail "$no_packages"
}

# Java where it may be installed; then one sentence for each thing that is missing, before anything large is downloaded.
check_machine() {
    if may_install && ! "$python" scripts/check_machine.py 2>&1 | { ! grep -q Java; }; then
        install_package openjdk-17-jre-headless || install_package openjdk-21-jre-headless || true
    fi
    "$python" scripts/check_machine.py || fail "the machine lacks what the lines above name"
}

# Debian 12's is 1.19; tests/support/kube/binaries.py says the same version.
has_go() {
    local minor
    minor="$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')"
    [ "${minor:-0}" -ge 25 ]
}

# A few simulated lives use nearly every kernel, and numba keeps what it compiles next to the sources.
compile_kernels() {
    compgen -G "spark-jobs/src/streamtopology/jobs/state/__pycache__/*.nbi" >/dev/null && return
    .venv/bin/streamtopology simulate-faults --seed 1 --histories 6 >/dev/null
}

python="$(find_python)" || fail "Python 3.11 or newer is needed, found $(python3 --version 2>&1 || true)"
check_machine
find_uv
say "$("${uv[@]}" --version), $("$python" --version)"
say "locked packages into .venv (some minutes the first time)"
groups=()
has_go || groups=(--group go)
"${uv[@]}" sync --frozen --all-packages --all-extras "${groups[@]}" --python "$python" || fail "$no_packages"
say "an archive of Spark's classes, with which its JVMs start in half the time, and kernels (half a minute, once)"
compile_kernels &
.venv/bin/python -m streamtopology.jobs.local.class_archive || say "without it: every start takes some seconds more"
wait $! || say "without kernels: the first start takes some seconds more"
touch .venv/ready
say "ready"
