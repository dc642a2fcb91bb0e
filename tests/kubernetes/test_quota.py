"""Refusals of a namespace: pods and resizes beyond a quota, and pods without their ServiceAccount."""

from __future__ import annotations

import re

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import IMAGE, LARGE, QUIET, SMALL, an_operator, settled
from support.kube.running_operator import OperatorThread, Topologies, manifest
from support.waiting import eventually

from streamtopology.k8s import names
from streamtopology.k8s.decide.rollout import STARTING_SECONDS
from streamtopology.k8s.settings import Settings

DRIVER = {"cpu": "500m", "memory": "1Gi"}
NO_LIMIT = "maximum ephemeral-storage usage per Pod is 2Gi.  No limit is specified"


def message(topologies: Topologies, kind: str) -> str:
    return next(one["message"] for one in topologies.status("flow")["conditions"] if one["type"] == kind)


def set_quota(topologies: Topologies, cpu: str) -> None:
    """The CPU that all pods of the namespace may have together."""
    set_hard(topologies, {"limits.cpu": cpu})


def set_hard(topologies: Topologies, hard: dict[str, str]) -> None:
    body = client.V1ResourceQuota(metadata=client.V1ObjectMeta(name="team"), spec=client.V1ResourceQuotaSpec(hard=hard))
    try:
        topologies.core.create_namespaced_resource_quota(topologies.namespace, body)
    except client.ApiException as error:
        if error.status != 409:
            raise
        topologies.core.patch_namespaced_resource_quota("team", topologies.namespace, {"spec": {"hard": hard}})
    eventually(lambda: is_in_force(topologies, hard))


def is_in_force(topologies: Topologies, hard: dict[str, str]) -> bool:
    status = topologies.core.read_namespaced_resource_quota("team", topologies.namespace).status
    return status is not None and status.hard == hard and hard.keys() == (status.used or {}).keys()


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
    with OperatorThread(api_server, settings, lambda: later):
        set_quota(topologies, "1500m")
        topologies.create(manifest("flow", migration={"threshold": "1"}, driver=DRIVER))
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "MigrationNotStarted"), 120)
        assert "exceeded quota: team" in message(topologies, "Degraded")
        assert topologies.routing("flow")["epochState"] == "prepared"
        later = STARTING_SECONDS
        eventually(lambda: topologies.status("flow").get("epoch", 0) >= 2, 300)  # with pauses of 10, 20 and 40 s
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


def test_pods_without_storage_are_reported_where_a_namespace_limits_it(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    """By a LimitRange: a ResourceQuota counts those that name none as nothing."""
    stored = {"storage": "1Gi"}
    with an_operator(api_server, (topologies.namespace,), drivers):
        limit_pods(topologies, {"ephemeral-storage": "2Gi"})
        topologies.create(manifest("flow", rebalance=QUIET, driver=DRIVER))
        eventually(lambda: topologies.condition("flow", "Ready") == ("False", "DriverNotCreated"))
        assert NO_LIMIT in message(topologies, "Ready")
        topologies.change("flow", driver={**DRIVER, **stored})
        eventually(lambda: topologies.condition("flow", "Ready") == ("False", "ExecutorsStarting"), 120)
        eventually(lambda: NO_LIMIT in message(topologies, "Ready"), 120)
        topologies.change("flow", executors=[{**LARGE, **stored}, {**SMALL, **stored}])
        eventually(lambda: settled(topologies, 3), 120)
        assert topologies.condition("flow", "Ready") == ("True", "Running")
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")


def limit_pods(topologies: Topologies, most: dict[str, str]) -> None:
    """The most that each pod of the namespace may have, which pods must name then."""
    item = client.V1LimitRangeItem(type="Pod", max=most)
    body = client.V1LimitRange(metadata=client.V1ObjectMeta(name="team"), spec=client.V1LimitRangeSpec(limits=[item]))
    topologies.core.create_namespaced_limit_range(topologies.namespace, body)


def test_storage_beyond_the_quota_is_reported_with_the_quota(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    """Driver, two large, one small: 1Gi each of 4Gi."""
    stored = {"storage": "1Gi"}
    with an_operator(api_server, (topologies.namespace,), drivers):
        set_hard(topologies, {"requests.ephemeral-storage": "4Gi", "limits.ephemeral-storage": "4Gi"})
        large, small = {**LARGE, **stored}, {**SMALL, **stored}
        topologies.create(manifest("flow", rebalance=QUIET, driver={**DRIVER, **stored}, executors=[large, small]))
        eventually(lambda: settled(topologies, 1), 120)
        topologies.change("flow", executors=[{**large, "replicas": 3}, small])
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "ExecutorsNotCreated"), 120)
        assert re.search("exceeded quota: team, requested: .*ephemeral-storage=1Gi", message(topologies, "Degraded"))


def test_executors_with_storage_are_resized_in_place_and_keep_it(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        large = {**LARGE, "storage": "1Gi"}
        topologies.create(manifest("flow", rebalance=QUIET, driver=DRIVER, executors=[large, SMALL]))
        eventually(lambda: settled(topologies, 1), 120)
        before = topologies.uids("flow")
        topologies.change("flow", executors=[{**large, "cpu": "600m"}, SMALL])
        eventually(lambda: settled(topologies, 2), 120)
        assert topologies.uids("flow") == before
        assert storage_of(topologies) == {"flow-large-0": "1Gi", "flow-large-1": "1Gi", "flow-small-0": None}
        topologies.change("flow", executors=[{**large, "cpu": "600m", "storage": "2Gi"}, SMALL])
        eventually(lambda: settled(topologies, 3), 120)
        after = topologies.uids("flow")
        assert {name for name in before if before[name] != after[name]} == {"flow-large-0", "flow-large-1"}
        assert storage_of(topologies) == {"flow-large-0": "2Gi", "flow-large-1": "2Gi", "flow-small-0": None}


def storage_of(topologies: Topologies) -> dict[str, str | None]:
    """Executor pod -> its limit of ephemeral storage, after those that make way for others have gone."""
    pods = topologies.core.list_namespaced_pod(topologies.namespace, label_selector=f"{names.COMPONENT}=executor").items
    return {pod.metadata.name: pod.spec.containers[0].resources.limits.get("ephemeral-storage") for pod in pods}
