#!/usr/bin/env bash
# Makes what is derived from crds/ and the chart: the chart's own copies, and deploy/operator.yaml for
# `kubectl apply -k deploy`. Argument: the helm to use (default: the one on PATH). tests/kubernetes/test_chart.py holds them equal.
set -euo pipefail
cd "$(dirname "$0")/.."

helm="${1:-helm}"
cp crds/streamtopologies.streamtopology.dev.yaml charts/streamtopology/files/crd.yaml
cp crds/streamtopologysnapshots.streamtopology.dev.yaml charts/streamtopology/files/crd-snapshots.yaml
cp crds/admission-policy.yaml charts/streamtopology/files/
{
    echo "# The chart's default rendering, written by scripts/render-manifests.sh: change the chart, not this file."
    "$helm" template streamtopology charts/streamtopology --namespace streamtopology --kube-version 1.30.0 \
        --skip-tests --set crds.install=false |
        grep -v -e '^ *helm.sh/chart: ' -e '^ *app.kubernetes.io/managed-by: Helm$' -e '^# Source: '
} >deploy/operator.yaml.part
mv deploy/operator.yaml.part deploy/operator.yaml
