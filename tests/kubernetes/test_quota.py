"""Refusals of a namespace: pods and resizes beyond a quota, and pods without their ServiceAccount."""

from __future__ import annotations

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import IMAGE, LARGE, QUIET, SMALL, an_operator, settled
from support.kube.running_operator import OperatorThread, Topologies, manifest
from support.waiting import eventually

from streamtopology.k8s.decide.rollout import STARTING_SECONDS
from streamtopology.k8s.settings import Settings

DRIVER = {"cpu": "500m", "memory": "1Gi"}


def message(topologies: Topologies, kind: str) -> str:
    return next(one["message"] for one in topologies.status("flow")["conditions"] if one["type"] == kind)


def set_quota(topologies: Topologies, cpu: str) -> None:
    """The CPU that all pods of the namespace may have together."""
    body = client.V1ResourceQuota(
        metadata=client.V1ObjectMeta(name="team"), spec=client.V1ResourceQuotaSpec(hard={"limits.cpu": cpu})
    )
    try:
        topologies.core.create_namespaced_resource_quota(topologies.namespace, body)
    except client.ApiException as error:
        if error.status != 409:
            raise
        topologies.core.patch_namespaced_resource_quota("team", topologies.namespace, {"spec": {"hard": {"limits.cpu": cpu}}})
    eventually(lambda: is_in_force(topologies, cpu))


def is_in_force(topologies: Topologies, cpu: str) -> bool:
    status = topologies.core.read_namespaced_resource_quota("team", topologies.namespace).status
    return status is not None and (status.hard or {}).get("limits.cpu") == cpu and "limits.cpu" in (status.used or {})


def test_a_resize_beyond_the_quota_keeps_the_pods_and_is_made_once_there_is_room(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    """Driver 500m, two large 400m, one small 150m: 1450m of 1500m."""
    with an_operator(api_server, (topologies.namespace,), drivers):
        settle_within(topologies, "1500m")
        before = topologies.uids("flow")
        topologies.change("flow", executors=[{**LARGE, "cpu": "600m"}, SMALL])
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "ResizeRefused"))
        assert "exceeded quota: team" in message(topologies, "Degraded")
        assert topologies.condition("flow", "Ready") == ("True", "Running")
        assert topologies.uids("flow") == before
        set_quota(topologies, "3")
        eventually(lambda: settled(topologies, 2), 120)
        eventually(lambda: set(topologies.executor_pods("flow", "large").values()) == {"600m"})
        assert topologies.uids("flow") == before, "in place, all of them"
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")


def settle_within(topologies: Topologies, cpu: str) -> None:
    """A topology that runs under a quota of `cpu`."""
    set_quota(topologies, cpu)
    topologies.create(manifest("flow", rebalance=QUIET, driver=DRIVER))
    eventually(lambda: settled(topologies, 1), 120)


def test_executors_beyond_the_quota_are_reported_with_the_quota(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        settle_within(topologies, "1500m")
        topologies.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "ExecutorsNotCreated"))
        assert "exceeded quota: team" in message(topologies, "Degraded")
        assert "exceeded quota: team" in message(topologies, "Reconfiguring")
        eventually(lambda: ("Warning", "ExecutorsNotCreated") in {event[:2] for event in topologies.events("flow")})


def test_a_pre_copy_beyond_the_quota_is_reported_and_state_moves_without(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    """Its pod may use 500m, and 50m are left. Nothing else is re-routed while an epoch waits for its copy."""
    settings = Settings((topologies.namespace,), IMAGE, driver_url=drivers.url)
    later = 0.0
    with OperatorThread(api_server, settings, lambda: drivers.now() + later):
        set_quota(topologies, "1500m")
        topologies.create(manifest("flow", migration={"threshold": "1"}, driver=DRIVER))
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "MigrationNotStarted"), 120)
        assert "exceeded quota: team" in message(topologies, "Degraded")
        assert topologies.routing("flow")["epochState"] == "prepared"
        later = STARTING_SECONDS
        eventually(lambda: topologies.status("flow").get("epoch", 0) >= 2, 120)
    failures = [text for _, reason, text in topologies.events("flow") if reason == "MigrationFailed"]
    assert any("no pod of it has started" in text for text in failures)
    assert any("state moves in portions" in text for text in failures)


@pytest.mark.parametrize("missing", ["quota", "account"])
def test_a_driver_that_cannot_be_created_is_reported_with_the_reason(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, missing: str
) -> None:
    driver = DRIVER if missing == "quota" else {**DRIVER, "pod": {"serviceAccountName": "mine"}}
    if missing == "quota":
        set_quota(topologies, "100m")
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET, driver=driver))
        eventually(lambda: topologies.condition("flow", "Ready") == ("False", "DriverNotCreated"))
        why = "exceeded quota: team" if missing == "quota" else 'serviceaccount "mine" not found'
        assert why in message(topologies, "Ready")
        eventually(lambda: ("Warning", "DriverNotCreated") in {event[:2] for event in topologies.events("flow")})
