#!/bin/sh
# The third-party packages of one distribution, exactly as uv.lock has them, into the virtual environment /opt/streamtopology.
# Arguments: what `uv sync` is to take, e.g. --package streamtopology --extra kubernetes
set -eu

. /build/images/lent.sh
environment=/opt/streamtopology
cd /build

# PyPI has pymetis compiled for amd64 alone. Elsewhere it is compiled here; what that takes does not stay.
compiler=
if [ "$(dpkg --print-architecture)" != amd64 ]; then
    compiler="g++ python3-dev"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $compiler >/dev/null
fi
UV_PROJECT_ENVIRONMENT=$environment UV_PYTHON=/usr/bin/python3 UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy \
    uv sync --quiet --frozen --no-dev --no-install-workspace "$@"

if [ -n "$compiler" ]; then
    apt-get purge -y -qq --autoremove $compiler >/dev/null
    apt-get clean
    rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log
fi

# Nobody runs these here: examples and tests of Spark, Arrow's C++ headers.
packages=$environment/lib/python3.11/site-packages
rm -rf "$packages"/pyspark/examples "$packages"/pyspark/tests "$packages"/pyarrow/include "$packages"/pyarrow/tests

# The root file system is read-only later, and files may get other times on their way through a registry.
"$environment"/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash "$packages"
