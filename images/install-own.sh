#!/bin/sh
# Our own wheels into the environment that install-packages.sh made.
# Arguments: the image's command, then the distributions as wheels name them, e.g. streamtopology-operator streamtopology_routing
set -eu

command=$1
shift
environment=/opt/streamtopology
for distribution in "$@"; do
    uv pip install --quiet --python "$environment" --no-deps --no-index --no-cache "/build/wheels/$distribution"-*.whl
done
"$environment"/bin/python -m compileall -q --invalidation-mode unchecked-hash "$environment"/lib/python3.11/site-packages/streamtopology

# A wrapper stands before the command on PATH.
install -m 755 /build/images/streamtopology "/usr/local/bin/$command"
