"""A topology of a thousand instances on a real API server: its status is small, and it is judged and changed as any other."""

from __future__ import annotations

import json

from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import COUNTS, LARGE, SMALL, an_operator, settled
from support.kube.running_operator import Topologies, manifest
from support.waiting import eventually

LARGEST_STATUS = 16 << 10


def test_topology_of_a_thousand_instances_is_judged_and_scaled(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers) as operator:
        topologies.create(manifest("flow", operators=[{**COUNTS, "parallelism": 1000}]))
        eventually(lambda: "imbalance" in topologies.status("flow"), 240)
        topologies.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
        eventually(lambda: settled(topologies, 2), 240)
        assert topologies.replicas("flow", "large") == 3
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")
        assert len(json.dumps(topologies.status("flow"))) < LARGEST_STATUS
        assert not operator.is_dead
