#!/bin/sh
# Compiles numba's kernels into /opt/streamtopology/kernels, by using them (kernels.yaml says what for).
set -eu

cd /tmp
export NUMBA_CACHE_DIR=/opt/streamtopology/kernels
/opt/streamtopology/bin/streamtopology run /build/images/kernels.yaml --work-dir /tmp/kernels-run
/opt/streamtopology/bin/streamtopology simulate /build/images/kernels.yaml --rows 5000 --keys 1000 --batches 4
rm -rf /tmp/* /tmp/.[!.]*
