"""A topology with a checkpoint and pod settings, to make snapshots of."""

from __future__ import annotations

from streamtopology.topology import Topology, parse

POD = {
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "envFrom": [{"secretRef": {"name": "s3"}}],
    "securityContext": {"fsGroup": 2000},
}


def topology() -> Topology:
    return parse(
        {
            "apiVersion": "streamtopology.dev/v1alpha1",
            "kind": "StreamTopology",
            "metadata": {"name": "flow"},
            "spec": {
                "sources": [{"name": "rows", "format": "parquet", "schema": "key BIGINT", "options": {"path": "/data"}}],
                "operators": [
                    {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}
                ],
                "executors": [{"name": "large", "replicas": 2, "cpu": "450m", "memory": "1Gi"}],
                "driver": {"cpu": "500m", "memory": "2Gi", "pod": POD},
                "checkpoint": "/checkpoint",
            },
        }
    )
