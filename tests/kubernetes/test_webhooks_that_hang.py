"""Webhooks of the cluster that hang, on a real API server: a condition names them, and no other topology waits for them."""

from __future__ import annotations

from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import LARGE, QUIET, SMALL, an_operator, settled
from support.kube.hanging_webhook import NAME, hanging_webhook
from support.kube.running_operator import Topologies, manifest
from support.waiting import eventually

MANY = 20


def test_webhook_that_hangs_as_long_as_it_may_is_named_and_stops_nothing_else(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    """Takes a minute and a half: three calls of 30 s."""
    with an_operator(api_server, (topologies.namespace,), drivers) as operator:
        with hanging_webhook(api_server, topologies.namespace, ["apps"], ["statefulsets"], 30):
            topologies.create(manifest("flow", rebalance=QUIET, executors=[LARGE]))
            eventually(lambda: topologies.driver_pods("flow") != [], 240)
            eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "ApplyRefused"), 240)
            [message] = [one["message"] for one in topologies.status("flow")["conditions"] if one["type"] == "Degraded"]
            assert "StatefulSet flow-large" in message
            assert NAME in message
        eventually(lambda: settled(topologies, 1), 180)
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")
        assert not operator.is_dead


def test_topologies_that_wait_for_a_webhook_delay_no_other(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    """They are more than the operator has workers."""
    other = api_server.new_namespace()
    with api_server.client() as api, an_operator(api_server, (topologies.namespace, other), drivers):
        next_door = Topologies(api, other)
        with hanging_webhook(api_server, topologies.namespace, ["apps"], ["statefulsets"], 10):
            for number in range(MANY):
                topologies.create(manifest(f"flow-{number}", rebalance=QUIET, checkpoint=f"/checkpoint/{number}"))
            next_door.create(manifest("flow", rebalance=QUIET))
            eventually(lambda: settled(next_door, 1), 180)
            next_door.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
            eventually(lambda: settled(next_door, 2), 180)
        next_door.let_go()
        topologies.core.delete_namespace(other)
