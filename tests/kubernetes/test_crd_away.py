"""The resource definition is deleted and applied again while the operator runs, on a real API server."""

from __future__ import annotations

import pytest
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import QUIET, an_operator, settled
from support.kube.running_operator import Topologies, install_crd, manifest
from support.waiting import eventually


@pytest.mark.parametrize("everywhere", [True, False], ids=["cluster-wide", "namespaced"])
def test_definition_that_goes_and_comes_back_leaves_the_operator_hearing(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, everywhere: bool
) -> None:
    with an_operator(api_server, () if everywhere else (topologies.namespace,), drivers) as operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        for _ in range(2):
            api_server.kubectl("delete", "crd", "streamtopologies.streamtopology.dev", "--timeout=120s")
            install_crd(api_server)
            topologies.create(manifest("flow", rebalance=QUIET))
            eventually(lambda: settled(topologies, 1), 180)
        assert not operator.is_dead
        topologies.change("flow", suspend=True)
        eventually(lambda: topologies.status("flow").get("phase") == "Suspended", 120)
        topologies.delete("flow")
        eventually(lambda: not topologies.exists("flow"), 120)
