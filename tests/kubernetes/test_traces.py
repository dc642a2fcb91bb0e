"""`streamtopology-operator` on a real API server sends the trace of each reconciliation, and ends with its last ones sent."""

from __future__ import annotations

from pathlib import Path

from support.collector import Collector, collecting
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import IMAGE, QUIET, settled
from support.kube.running_operator import OperatorProcess, Topologies, manifest
from support.waiting import eventually

from streamtopology.tracing.settings import ENDPOINT, HEADERS

TOKEN = "nobodys-token"


def steps(collector: Collector) -> list[str]:
    return [span.name for look in collector.roots("reconcile") for span in collector.children(look)]


def test_operator_sends_traces_of_reconciliations_and_of_what_is_refused(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, tmp_path: Path
) -> None:
    with collecting() as collector:
        environment = {
            "STREAMTOPOLOGY_WATCH_NAMESPACES": topologies.namespace, "STREAMTOPOLOGY_IMAGE": IMAGE,
            "STREAMTOPOLOGY_DRIVER_URL": drivers.url, ENDPOINT: collector.url, HEADERS: f"authorization=Bearer%20{TOKEN}",
            "POD_NAMESPACE": "operators", "POD_NAME": "operator-1",
        }  # fmt: skip
        with OperatorProcess(api_server, tmp_path / "log", **environment) as operator:
            topologies.create(manifest("flow", rebalance=QUIET))
            eventually(lambda: settled(topologies, 1), 120)
            too_long = {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi", "pod": {"priorityClassName": "No!"}}
            topologies.change("flow", executors=[*topologies.get("flow")["spec"]["executors"][:1], too_long])
            eventually(lambda: topologies.condition("flow", "Degraded")[1] == "ApplyRefused", 120)
    looks = collector.roots("reconcile")
    assert {look.attributes["k8s.namespace.name"] for look in looks} == {topologies.namespace}
    assert {look.resource["service.name"] for look in looks} == {"streamtopology-operator"}
    assert {look.resource["service.instance.id"] for look in looks} == {"operator-1"}
    assert {"apply Deployment", "apply StatefulSet", "apply ConfigMap", "make Secret", "write status"} <= set(steps(collector))
    refused = [span for span in collector.spans if span.attributes.get("http.response.status_code") == 422]
    assert {span.attributes.get("k8s.statefulset.name") for span in refused} == {"flow-small"}
    assert all(span.failure and "No!" in span.failure for span in refused)
    assert "refused" in {look.attributes["streamtopology.outcome"] for look in looks}
    assert collector.headers["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in operator.output
