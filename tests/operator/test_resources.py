"""The objects that a topology becomes, as values."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.jobs.pods.environment import app_id
from streamtopology.operator.resources import access, driver, executors, migration
from streamtopology.operator.resources.objects import Owner
from streamtopology.operator.resources.routing import LARGEST_BYTES, RoutingTooLargeError, config_map
from streamtopology.operator.seen import essence, see
from streamtopology.routing.routing_map import PackedEpoch, pack
from streamtopology.routing.topology import Topology, parse

OWNER = Owner("flow", "space", "uid-1")
IMAGE = "registry.example/spark:1"
POD = {
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "annotations": {"team": "streams"},
    "labels": {"cost": "42"},
    "env": [{"name": "AWS_REGION", "value": "eu"}],
    "envFrom": [{"secretRef": {"name": "s3"}}],
    "serviceAccountName": "workload",
    "imagePullSecrets": [{"name": "pull"}],
    "priorityClassName": "high",
}


def topology(**spec: Any) -> Topology:
    return parse(
        {
            "apiVersion": "streamtopology.dev/v1alpha1",
            "kind": "StreamTopology",
            "metadata": {"name": "flow"},
            "spec": {
                "sources": [{"name": "rows", "format": "parquet", "schema": "key BIGINT", "options": {"path": "/data"}}],
                "operators": [
                    {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}
                ],
                "executors": [{"name": "large", "replicas": 2, "cpu": "450m", "memory": "1Gi", "pod": POD}],
                "driver": {"cpu": "500m", "memory": "2Gi", "pod": POD},
                "checkpoint": "/checkpoint",
                **spec,
            },
        }
    )


def stateful_set(changed: Topology | None = None) -> dict[str, Any]:
    made = changed or topology()
    return executors.stateful_set(OWNER, made, made.executors[0], IMAGE, made.executors[0].replicas)


def deployment(restart_generation: int = 1) -> dict[str, Any]:
    return driver.deployment(OWNER, topology(), IMAGE, replicas=1, restart_generation=restart_generation)


def container(workload: dict[str, Any]) -> dict[str, Any]:
    return workload["spec"]["template"]["spec"]["containers"][0]


def everything() -> list[dict[str, Any]]:
    made = topology()
    return [
        deployment(),
        stateful_set(),
        migration.job(OWNER, made, IMAGE, 3),
        driver.service(OWNER),
        executors.service(OWNER),
        driver.disruption_budget(OWNER),
        access.driver_account(OWNER),
        access.executor_account(OWNER),
        access.driver_role(OWNER),
        access.driver_role_binding(OWNER, made),
        access.network_policy(OWNER),
        access.spark_secret(OWNER, "text"),
        config_map(OWNER, made, 1, 1, None),
    ]


def test_every_object_is_owned_labelled_and_marked_with_its_content():
    for body in everything():
        metadata = body["metadata"]
        assert metadata["ownerReferences"][0]["uid"] == "uid-1"
        assert metadata["labels"]["app.kubernetes.io/instance"] == "flow"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "streamtopology-operator"
        assert len(metadata["annotations"]["streamtopology.dev/content"]) == 12


@pytest.mark.parametrize("workload", [deployment(), stateful_set(), migration.job(OWNER, topology(), IMAGE, 3)])
def test_every_pod_runs_locked_down_and_writes_only_to_its_scratch_folders(workload: dict[str, Any]):
    pod = workload["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = container(workload)["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    scratch = {volume["name"] for volume in pod["volumes"] if "emptyDir" in volume}
    mounted = {mount["mountPath"] for mount in container(workload)["volumeMounts"] if mount["name"] in scratch}
    assert mounted == {"/tmp", "/var/streamtopology"}


@pytest.mark.parametrize("workload", [deployment(), stateful_set()])
def test_pod_settings_are_merged_in(workload: dict[str, Any]):
    template = workload["spec"]["template"]
    pod = template["spec"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data"}} in pod["volumes"]
    assert {"name": "data", "mountPath": "/data"} in container(workload)["volumeMounts"]
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["serviceAccountName"] == "workload"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert {"name": "AWS_REGION", "value": "eu"} in container(workload)["env"]
    assert container(workload)["envFrom"] == [{"secretRef": {"name": "s3"}}]
    assert template["metadata"]["labels"]["cost"] == "42"
    assert template["metadata"]["annotations"]["team"] == "streams"
    selected = workload["spec"]["selector"]["matchLabels"]
    assert selected.items() <= template["metadata"]["labels"].items()


def test_an_executor_has_limits_equal_to_its_requests_and_no_token():
    made = stateful_set()
    assert container(made)["resources"] == {
        "requests": {"cpu": "450m", "memory": "1Gi"}, "limits": {"cpu": "450m", "memory": "1Gi"}
    }  # fmt: skip
    assert made["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert made["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert container(made)["name"] == "executor"
    env = {one["name"]: one.get("value") for one in container(made)["env"]}
    assert env["STREAMTOPOLOGY_DRIVER"] == "flow-driver.space.svc"
    assert int(env["STREAMTOPOLOGY_MEMORY"] or 0) < 1024


def test_spark_finds_an_executors_pod_by_its_labels():
    labels = stateful_set()["spec"]["template"]["metadata"]["labels"]
    assert (labels["spark-app-selector"], labels["spark-role"]) == (app_id("flow"), "executor")


def test_the_driver_reads_its_own_config_map_and_no_other():
    rules = access.driver_role(OWNER)["rules"]
    routing = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["flow-routing"]}
    assert {**routing, "verbs": ["get", "list", "watch"]} in rules
    assert not any("secrets" in rule["resources"] for rule in rules)


def test_the_secret_is_what_a_file_says_and_what_spark_makes_of_it():
    data = access.spark_secret(OWNER, "text")["data"]
    said = base64.b64decode(data["secret"])
    assert said == b"text"
    assert base64.b64decode(data["secret-base64"]) == base64.b64encode(said)


def test_only_what_needs_a_new_pod_changes_the_digest_of_a_pod():
    def content(workload: dict[str, Any]) -> str:
        return workload["spec"]["template"]["metadata"]["annotations"]["streamtopology.dev/pod-content"]

    large = {"name": "large", "replicas": 2, "cpu": "450m", "memory": "1Gi", "pod": POD}
    before = content(stateful_set())
    for same in ({"cpu": "2"}, {"memory": "4Gi"}, {"replicas": 9}):
        assert content(stateful_set(topology(executors=[{**large, **same}]))) == before, same
    assert content(stateful_set(topology(executors=[{**large, "pod": {}}]))) != before


def test_another_restart_generation_is_another_driver():
    assert deployment(1)["spec"]["template"] != deployment(2)["spec"]["template"]


def test_the_config_map_holds_topology_generation_and_epoch():
    packed = pack("{}")
    body = config_map(OWNER, topology(), 7, 5, PackedEpoch(3, 7, packed, "ready", "counts: imbalance"))
    assert parse(json.loads(body["data"]["topology"])) == topology()
    assert (body["data"]["generation"], body["data"]["epochNumber"], body["data"]["epochState"]) == ("7", "3", "ready")
    assert base64.b64decode(body["binaryData"]["epoch"]) == packed
    assert not body["data"].keys() & body["binaryData"].keys(), "the API server refuses a key in both"
    seen: Any = see(body)
    assert (seen.generation, seen.restart_generation, seen.epoch, seen.epoch_state) == (7, 5, 3, "ready")


def test_an_epoch_that_does_not_fit_is_refused_with_what_to_do():
    with pytest.raises(RoutingTooLargeError, match="maxTableEntries"):
        config_map(OWNER, topology(), 1, 1, PackedEpoch(3, 1, bytes(LARGEST_BYTES), "ready", ""))


@settings(deadline=None)
@given(st.integers(1, 64_000), st.integers(512, 64_000))
def test_quantities_are_the_same_however_they_are_written(cpu_thousandths: int, mebibytes: int):
    """The API server writes quantities in its own way; that must not look like a change."""
    made = stateful_set()
    container(made)["resources"] = {"limits": {"cpu": f"{cpu_thousandths}m", "memory": f"{mebibytes}Mi"}}
    ours = essence(made)
    container(made)["resources"] = {"limits": {"cpu": str(cpu_thousandths / 1000), "memory": str(mebibytes * 2**20)}}
    assert essence(made) == ours
