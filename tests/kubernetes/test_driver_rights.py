"""The rights of a driver on a real API server: its executors' pods by name, and not those of others."""

from __future__ import annotations

from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import LARGE, QUIET, SMALL, an_operator, settled
from support.kube.processes import ProcessFailed
from support.kube.running_operator import Topologies, manifest
from support.waiting import eventually


def test_driver_may_patch_its_executors_and_no_other_pod(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    namespace = topologies.namespace

    def may(verb: str, pod: str = "") -> bool:
        asked = ["auth", "can-i", verb, f"pods/{pod}" if pod else "pods", f"--namespace={namespace}"]
        try:
            return api_server.kubectl(*asked, f"--as=system:serviceaccount:{namespace}:flow-driver").strip() == "yes"
        except ProcessFailed:
            return False

    with an_operator(api_server, (namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1))
        assert (may("list"), may("watch")) == (True, True)
        assert (may("patch", "flow-large-1"), may("patch", "flow-small-0")) == (True, True)
        assert [may("patch", "other-0"), may("patch"), may("delete", "flow-large-0"), may("create")] == [False] * 4
        topologies.change("flow", executors=[{**LARGE, "replicas": 20}, SMALL])
        eventually(lambda: settled(topologies, 2))
        assert may("patch", "flow-large-19")
