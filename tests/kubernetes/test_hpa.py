"""A real HorizontalPodAutoscaler scales a topology through its scale subresource, by the lag of its source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.kube.apiserver import ApiServer
from support.kube.running_operator import install_crd
from support.mistakes import VALID, changed
from support.waiting import eventually

LAG = "source-lag"

# The metrics API that the autoscaler asks, served by the API server itself: the metric's name is a resource's name.
METRICS_API = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"{LAG}.external.metrics.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, it stands for a metrics adapter in a test"},
    },
    "spec": {
        "group": "external.metrics.k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "ExternalMetricValue", "plural": LAG},
        "versions": [
            {
                "name": "v1beta1", "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}  # fmt: skip

AUTOSCALER = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "trips"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "streamtopology.dev/v1alpha1", "kind": "StreamTopology", "name": "trips"},
        "minReplicas": 1,
        "maxReplicas": 8,
        "metrics": [
            {
                "type": "External",
                "external": {"metric": {"name": LAG}, "target": {"type": "AverageValue", "averageValue": "1k"}},
            }
        ],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    },
}


class Scaled:
    """A topology, an autoscaler and a metric in one namespace; the test plays the operator and the stream."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server = server
        self._namespace = namespace
        self.apply(changed(("spec.autoscale", {"class": "small", "maxReplicas": 9}), of=VALID))
        self.report(1)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self._server.kubectl(*arguments, f"--namespace={self._namespace}", stdin=stdin)

    def apply(self, manifest: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def lag(self, rows: int) -> None:
        metric = {"metricName": LAG, "metricLabels": {}, "timestamp": "2026-11-22T02:00:00Z", "value": str(rows)}
        head = {"apiVersion": "external.metrics.k8s.io/v1beta1", "kind": "ExternalMetricValue", "metadata": {"name": "trips"}}
        self.apply(head | metric)

    def report(self, replicas: int) -> None:
        """The operator's status once this number of executors is present."""
        status = {"status": {"autoscale": {"replicas": replicas, "selector": "streamtopology.dev/class=small"}}}
        self.kubectl("patch", "stopo/trips", "--subresource=status", "--type=merge", "-p", json.dumps(status))

    @property
    def asked(self) -> int:
        return int(self.kubectl("get", "stopo/trips", "-o", "jsonpath={.spec.autoscale.replicas}"))


@pytest.fixture
def scaled(api_server: ApiServer, namespace: str) -> Iterator[Scaled]:
    install_crd(api_server)
    api_server.kubectl("apply", "-f", "-", stdin=json.dumps(METRICS_API))
    name = f"crd/{METRICS_API['metadata']['name']}"  # type: ignore[index]
    api_server.served(name)
    yield Scaled(api_server, namespace)
    api_server.kubectl("delete", name, "--timeout=30s")


def test_an_autoscaler_follows_the_lag_up_and_down(api_server: ApiServer, scaled: Scaled) -> None:
    scaled.lag(3500)
    scaled.apply(AUTOSCALER)
    with api_server.controllers():
        eventually(lambda: scaled.asked == 4, seconds=90)
        scaled.report(4)
        scaled.lag(1200)
        eventually(lambda: scaled.asked == 2, seconds=90)
    assert "New size: 2" in scaled.kubectl("describe", "hpa", "trips")
