"""The operator's probes while its API server does not answer: not ready until it knows the cluster, and healthy all along."""

from __future__ import annotations

from pathlib import Path

from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import IMAGE, QUIET, settled
from support.kube.running_operator import OperatorProcess, Topologies, manifest
from support.probes import free_port, probed
from support.waiting import eventually


def test_operator_is_ready_once_it_has_listed_the_cluster(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, tmp_path: Path
) -> None:
    port = free_port()
    topologies.create(manifest("flow", rebalance=QUIET))
    environment = {
        "STREAMTOPOLOGY_WATCH_NAMESPACES": topologies.namespace, "STREAMTOPOLOGY_IMAGE": IMAGE,
        "STREAMTOPOLOGY_DRIVER_URL": drivers.url, "STREAMTOPOLOGY_PROBE_PORT": port,
    }  # fmt: skip
    with OperatorProcess(api_server, tmp_path / "log", **environment):
        with api_server.frozen():
            eventually(lambda: probed(port, "/readyz")[0] == 503, 60)
            assert topologies.namespace in probed(port, "/readyz")[1]
            assert probed(port, "/healthz")[0] == 200
        eventually(lambda: probed(port, "/readyz")[0] == 200, 120)
        eventually(lambda: settled(topologies, 1), 120)
