#!/bin/sh
# The third-party packages of one distribution, exactly as uv.lock has them, into the virtual environment /opt/streamtopology.
# Arguments: what `uv sync` is to take, e.g. --package streamtopology-jobs --extra kubernetes
set -eu

environment=/opt/streamtopology
cd /build
# images/build.py lends the wheels that its user's uv has; a Docker build downloads them into its layer cache alone.
if [ -d /var/cache/uv ]; then export UV_CACHE_DIR=/var/cache/uv; else export UV_NO_CACHE=1; fi
UV_PROJECT_ENVIRONMENT=$environment UV_PYTHON=/usr/bin/python3 UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy \
    uv sync --quiet --frozen --no-dev --no-install-workspace "$@"

# Nobody runs these here: examples and tests of Spark, Arrow's C++ headers.
packages=$environment/lib/python3.11/site-packages
rm -rf "$packages"/pyspark/examples "$packages"/pyspark/tests "$packages"/pyarrow/include "$packages"/pyarrow/tests

# The root file system is read-only later, and files may get other times on their way through a registry.
"$environment"/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash "$packages"
