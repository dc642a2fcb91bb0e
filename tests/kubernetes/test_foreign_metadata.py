"""Labels and annotations of others, on a topology and on its objects, on a real API server."""

from __future__ import annotations

from typing import Any

from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import LARGE, QUIET, SMALL, an_operator, settled
from support.kube.running_operator import Topologies, manifest
from support.waiting import eventually

# Of annotations the API server takes 256 KiB in all.
LARGEST = 262_144
THEIRS = {"labels": {"team": "streams"}, "annotations": {"example.com/note": "n" * 1000}}


def test_topology_with_a_huge_annotation_is_served(topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers) -> None:
    huge = manifest("flow", rebalance=QUIET)
    huge["metadata"]["annotations"] = {"example.com/huge": "x" * 240_000}
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(huge)
        eventually(lambda: settled(topologies, 1), 120)
        topologies.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
        eventually(lambda: settled(topologies, 2), 120)
        assert topologies.get("flow")["metadata"]["annotations"]["example.com/huge"] == "x" * 240_000
        topologies.delete("flow")
        eventually(lambda: not topologies.exists("flow"), 120)


def test_topology_whose_annotations_leave_no_room_for_ours_says_so(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    full = manifest("flow", rebalance=QUIET)
    full["metadata"]["annotations"] = {"a": "x" * (LARGEST - 1)}
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(full)
        eventually(lambda: "WriteRefused" in topologies.reasons("flow"), 120)
        [said] = {text for _, reason, text in topologies.events("flow") if reason == "WriteRefused"}
        assert "streamtopology.dev/served-by" in said
        topologies.patch("flow", {"metadata": {"annotations": {"a": "x"}}})
        eventually(lambda: settled(topologies, 1), 120)
        topologies.delete("flow")
        eventually(lambda: not topologies.exists("flow"), 120)


def test_labels_and_annotations_of_others_on_our_objects_stay_and_disturb_nothing(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        body: dict[str, Any] = {"metadata": THEIRS}
        patches = patches_of(topologies)
        for place, (patch, _) in patches.items():
            patch(place[1], topologies.namespace, body)
        pods = topologies.uids("flow")
        topologies.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
        eventually(lambda: settled(topologies, 2), 120)
        for place, (_, read) in patches.items():
            found = read(place[1], topologies.namespace).metadata
            assert found.labels["team"] == "streams", place
            assert found.annotations["example.com/note"] == THEIRS["annotations"]["example.com/note"], place
        assert pods.items() <= topologies.uids("flow").items(), "no pod was replaced"
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")
        topologies.delete("flow")
        eventually(lambda: not topologies.left_of("flow"), 120)


def patches_of(topologies: Topologies) -> dict[tuple[str, str], tuple[Any, Any]]:
    """Kind and name of our objects -> how they are patched and read."""
    core, apps, access = topologies.core, topologies.apps, client.RbacAuthorizationV1Api(topologies.core.api_client)
    return {
        ("Deployment", "flow-driver"): (apps.patch_namespaced_deployment, apps.read_namespaced_deployment),
        ("StatefulSet", "flow-large"): (apps.patch_namespaced_stateful_set, apps.read_namespaced_stateful_set),
        ("ConfigMap", "flow-routing"): (core.patch_namespaced_config_map, core.read_namespaced_config_map),
        ("Secret", "flow-spark"): (core.patch_namespaced_secret, core.read_namespaced_secret),
        ("Service", "flow-driver"): (core.patch_namespaced_service, core.read_namespaced_service),
        ("ServiceAccount", "flow-driver"): (core.patch_namespaced_service_account, core.read_namespaced_service_account),
        ("Role", "flow-driver"): (access.patch_namespaced_role, access.read_namespaced_role),
    }
