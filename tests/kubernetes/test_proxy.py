"""The operator where a proxy leads out of the cluster: its own calls go past it."""

from __future__ import annotations

from pathlib import Path

from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import IMAGE, QUIET, settled
from support.kube.running_operator import OperatorProcess, Topologies, manifest
from support.waiting import eventually

# A proxy that takes no connection.
NOBODY = "http://127.0.0.1:9"


def test_calls_of_the_operator_go_past_a_proxy(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, tmp_path: Path
) -> None:
    environment = {
        "STREAMTOPOLOGY_WATCH_NAMESPACES": topologies.namespace, "STREAMTOPOLOGY_IMAGE": IMAGE,
        "STREAMTOPOLOGY_DRIVER_URL": drivers.url, "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        **dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), NOBODY), "NO_PROXY": "", "no_proxy": "",
    }  # fmt: skip
    topologies.create(manifest("flow", rebalance=QUIET))
    with OperatorProcess(api_server, tmp_path / "log", **environment) as operator:
        eventually(lambda: operator.process.poll() is not None or settled(topologies, 1), 120)
        assert operator.process.poll() is None, operator.output
