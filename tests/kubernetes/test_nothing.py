"""An operator with nothing to do on a real API server: for a hundred seconds, three of its lists of topologies.

The API server writes `"items": null` for a list of metadata that is empty, which no list of a cluster in use shows.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import IMAGE, QUIET, settled
from support.kube.running_operator import OperatorProcess, Topologies, manifest
from support.probes import free_port, probed
from support.waiting import eventually

NOTHING_SECONDS = 100


def stays_ready(operator: OperatorProcess, port: str) -> None:
    """Nothing happens for a while: the operator has not ended, and is ready."""
    with pytest.raises(subprocess.TimeoutExpired):
        operator.process.wait(NOTHING_SECONDS)
    assert probed(port, "/readyz")[0] == probed(port, "/healthz")[0] == 200, operator.output


@pytest.mark.parametrize("others", ["", ",default"], ids=["one namespace", "another, which is always empty"])
def test_operator_stays_ready_with_nothing_to_do_before_and_after_a_topology(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, tmp_path: Path, others: str
) -> None:
    port = free_port()
    environment = {
        "STREAMTOPOLOGY_WATCH_NAMESPACES": topologies.namespace + others, "STREAMTOPOLOGY_IMAGE": IMAGE,
        "STREAMTOPOLOGY_DRIVER_URL": drivers.url, "STREAMTOPOLOGY_PROBE_PORT": port,
    }  # fmt: skip
    with OperatorProcess(api_server, tmp_path / "log", **environment) as operator:
        eventually(lambda: probed(port, "/readyz")[0] == 200, 120)
        stays_ready(operator, port)
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        topologies.delete("flow")
        eventually(lambda: not topologies.exists("flow"), 120)
        stays_ready(operator, port)
