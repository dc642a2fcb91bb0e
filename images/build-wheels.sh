#!/bin/sh
# Our distributions as wheels, in /wheels.
set -eu

. /build/images/lent.sh
cd /build
uv build --quiet --all-packages --wheel --out-dir /wheels
