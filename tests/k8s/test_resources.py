"""The objects that a topology becomes, as values."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from streamtopology.contract.pods import USER, app_id
from streamtopology.contract.routing_configmap import PackedEpoch, pack
from streamtopology.k8s.decide.owned_objects import owned_object
from streamtopology.k8s.resources import access, driver, executors, migration, snapshot
from streamtopology.k8s.resources.objects import Owner
from streamtopology.k8s.resources.routing import LARGEST_BYTES, RoutingTooLargeError, config_map
from streamtopology.topology import Topology, parse

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
    "initContainers": [{"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}],
    "securityContext": {"fsGroup": 2000, "supplementalGroups": [3000]},
    "schedulerName": "volcano",
    "runtimeClassName": "gvisor",
    "terminationGracePeriodSeconds": 120,
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
    return executors.stateful_set(OWNER, made, made.executors[0], IMAGE, USER, made.executors[0].replicas)


def deployment(restart_generation: int = 1) -> dict[str, Any]:
    return driver.deployment(OWNER, topology(), IMAGE, USER, replicas=1, restart_generation=restart_generation)


def container(workload: dict[str, Any]) -> dict[str, Any]:
    return workload["spec"]["template"]["spec"]["containers"][0]


def everything() -> list[dict[str, Any]]:
    made = topology()
    return [
        deployment(),
        stateful_set(),
        migration.job(OWNER, made, IMAGE, USER, 3),
        driver.service(OWNER),
        executors.service(OWNER),
        driver.disruption_budget(OWNER),
        access.driver_account(OWNER),
        access.executor_account(OWNER),
        access.driver_role(OWNER, ["flow-large-0"]),
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


@pytest.mark.parametrize("workload", [deployment(), stateful_set(), migration.job(OWNER, topology(), IMAGE, USER, 3)])
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


def test_ports_of_services_name_their_protocol_for_a_mesh():
    ports = [*driver.service(OWNER)["spec"]["ports"], *executors.service(OWNER)["spec"]["ports"]]
    assert [(port["name"], port["appProtocol"]) for port in ports] == [
        ("rpc", "tcp"), ("blocks", "tcp"), ("workers", "tcp"), ("http", "http"), ("blocks", "tcp"), ("workers", "tcp"),
    ]  # fmt: skip


def test_pull_secrets_of_the_topology_come_before_those_of_a_pod():
    own = {"imagePullSecrets": [{"name": "own"}, {"name": "shared"}]}
    made = topology(
        imagePullSecrets=[{"name": "shared"}], executors=[{"name": "large", "pod": own}, {"name": "small"}], driver={"pod": own}
    )
    workloads = [
        driver.deployment(OWNER, made, IMAGE, USER, replicas=1, restart_generation=1),
        migration.job(OWNER, made, IMAGE, USER, 3),
        *(executors.stateful_set(OWNER, made, executor, IMAGE, USER, 1) for executor in made.executors),
    ]
    both = [{"name": "shared"}, {"name": "own"}]
    found = [workload["spec"]["template"]["spec"]["imagePullSecrets"] for workload in workloads]
    assert found == [both, both, both, [{"name": "shared"}]]


def test_a_platform_that_gives_pods_their_user_finds_none_in_them():
    made = topology(executors=[{"name": "large"}], driver={})
    given = driver.deployment(OWNER, made, IMAGE, None, replicas=1, restart_generation=1)
    for workload in (given, executors.stateful_set(OWNER, made, made.executors[0], IMAGE, None, 1)):
        security = workload["spec"]["template"]["spec"]["securityContext"]
        assert security == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    [secret] = [each["secret"] for each in given["spec"]["template"]["spec"]["volumes"] if "secret" in each]
    assert secret["defaultMode"] == 0o444, "it may have no group that the secret could belong to"


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
    assert pod["initContainers"] == [{"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}]
    assert (pod["schedulerName"], pod["runtimeClassName"], pod["terminationGracePeriodSeconds"]) == ("volcano", "gvisor", 120)
    security = pod["securityContext"]
    assert (security["fsGroup"], security["supplementalGroups"], security["runAsUser"]) == (2000, [3000], 10001)
    assert template["metadata"]["labels"]["cost"] == "42"
    assert template["metadata"]["annotations"]["team"] == "streams"
    selected = workload["spec"]["selector"]["matchLabels"]
    assert selected.items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize("workload", [deployment(), stateful_set(), migration.job(OWNER, topology(), IMAGE, USER, 3)])
def test_queues_find_their_labels_on_workloads_and_on_pods(workload: dict[str, Any]):
    """Kueue looks at the Deployment, StatefulSet or Job; Volcano and YuniKorn look at pods."""
    for place in (workload["metadata"], workload["spec"]["template"]["metadata"]):
        assert place["labels"]["cost"] == "42"
        assert place["labels"]["app.kubernetes.io/instance"] == "flow"


def test_a_pre_copy_has_the_drivers_sidecars_and_its_own_end():
    pod = migration.job(OWNER, topology(), IMAGE, USER, 3)["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["restartPolicy"] == "Always"
    assert pod["terminationGracePeriodSeconds"] == 10


def test_an_executor_has_limits_equal_to_its_requests_and_no_token():
    made = stateful_set()
    assert container(made)["resources"] == {
        "requests": {"cpu": "450m", "memory": "1Gi"},
        "limits": {"cpu": "450m", "memory": "1Gi"},
    }
    assert made["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert made["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert container(made)["name"] == "executor"
    env = {one["name"]: one.get("value") for one in container(made)["env"]}
    assert env["STREAMTOPOLOGY_DRIVER"] == "flow-driver.space.svc"
    assert int(env["STREAMTOPOLOGY_MEMORY"] or 0) < 1024


def test_storage_is_request_and_limit_of_our_container_and_the_size_of_its_volumes():
    executor = {"name": "large", "cpu": "450m", "storage": "10Gi", "pod": POD}
    made = topology(executors=[executor], driver={"storage": "5Gi", "pod": POD}, migration={"resources": {"storage": 2**30}})
    former = Owner("nightly", "space", "uid-2", of="flow")
    for workload, amount in (
        (stateful_set(made), "10Gi"),
        (driver.deployment(OWNER, made, IMAGE, USER, replicas=1, restart_generation=1), "5Gi"),
        (migration.job(OWNER, made, IMAGE, USER, 3), "1Gi"),
        (snapshot.job(former, made, IMAGE, USER, "/checkpoint", "/copy"), "1Gi"),
    ):
        resources = container(workload)["resources"]
        assert [resources[kind]["ephemeral-storage"] for kind in ("requests", "limits")] == [amount, amount]
        assert {"cpu", "memory"} < resources["limits"].keys()
        volumes = {one["name"]: one for one in workload["spec"]["template"]["spec"]["volumes"]}
        assert [volumes[name]["emptyDir"] for name in ("tmp", "scratch")] == [{"sizeLimit": amount}] * 2
        assert "sizeLimit" not in json.dumps(volumes["data"]), "the user's own are the user's"


@pytest.mark.parametrize("workload", [deployment(), stateful_set(), migration.job(OWNER, topology(), IMAGE, USER, 3)])
def test_without_storage_pods_are_those_of_earlier_versions(workload: dict[str, Any]):
    text = json.dumps(workload)
    assert "ephemeral-storage" not in text
    assert "sizeLimit" not in text


def test_spark_finds_an_executors_pod_by_its_labels():
    labels = stateful_set()["spec"]["template"]["metadata"]["labels"]
    assert (labels["spark-app-selector"], labels["spark-role"]) == (app_id("flow"), "executor")


def test_the_budget_of_a_driver_protects_it_only_while_it_is_ready():
    """Else the drain of a node would wait for ever for a driver that fails again and again."""
    budget = driver.disruption_budget(OWNER)["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (0, "AlwaysAllow")


def test_the_driver_reads_its_own_config_map_and_no_other():
    rules = access.driver_role(OWNER, ["flow-large-0"])["rules"]
    routing = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["flow-routing"]}
    assert {**routing, "verbs": ["get", "list", "watch"]} in rules
    assert not any("secrets" in rule["resources"] for rule in rules)
    patches = [rule for rule in rules if "patch" in rule["verbs"]]
    assert [(rule["resources"], rule["resourceNames"]) for rule in patches] == [(["pods"], ["flow-large-0"])]


def test_the_secret_is_what_a_file_says_and_what_spark_makes_of_it():
    data = access.spark_secret(OWNER, "text")["data"]
    output = base64.b64decode(data["secret"])
    assert output == b"text"
    assert base64.b64decode(data["secret-base64"]) == base64.b64encode(output)


def test_only_what_needs_a_new_pod_changes_the_digest_of_a_pod():
    def content(workload: dict[str, Any]) -> str:
        return workload["spec"]["template"]["metadata"]["annotations"]["streamtopology.dev/pod-content"]

    large = {"name": "large", "replicas": 2, "cpu": "450m", "memory": "1Gi", "pod": POD}
    before = content(stateful_set())
    for same in ({"cpu": "2"}, {"replicas": 9}):
        assert content(stateful_set(topology(executors=[{**large, **same}]))) == before, same
    assert content(stateful_set(topology(executors=[{**large, "memory": "4Gi"}]))) != before, "the heap of its JVM"
    assert content(stateful_set(topology(executors=[{**large, "pod": {}}]))) != before
    stored = content(stateful_set(topology(executors=[{**large, "storage": "1Gi"}])))
    assert stored != before
    assert content(stateful_set(topology(executors=[{**large, "storage": "1073741824", "cpu": "2"}]))) == stored


def test_another_restart_generation_is_another_driver():
    assert deployment(1)["spec"]["template"] != deployment(2)["spec"]["template"]


def test_the_config_map_holds_topology_generation_and_epoch():
    packed = pack("{}")
    body = config_map(OWNER, topology(), 7, 5, PackedEpoch(3, 7, packed, "ready", "counts: imbalance"))
    assert parse(json.loads(body["data"]["topology"])) == topology()
    assert (body["data"]["generation"], body["data"]["epochNumber"], body["data"]["epochState"]) == ("7", "3", "ready")
    assert base64.b64decode(body["binaryData"]["epoch"]) == packed
    assert not body["data"].keys() & body["binaryData"].keys(), "the API server refuses a key in both"
    owned: Any = owned_object(body)
    assert (owned.generation, owned.restart_generation, owned.epoch, owned.epoch_state) == (7, 5, 3, "ready")


def test_an_epoch_that_does_not_fit_is_refused_with_what_to_do():
    with pytest.raises(RoutingTooLargeError, match="maxTableEntries"):
        config_map(OWNER, topology(), 1, 1, PackedEpoch(3, 1, bytes(LARGEST_BYTES), "ready", ""))


def test_variables_of_traces_reach_the_driver_with_headers_from_a_secret():
    headers = {"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": {"secretKeyRef": {"name": "collector", "key": "headers"}}}
    given = [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}, headers]
    traced = topology(driver={"pod": {"env": given}})
    made = driver.deployment(OWNER, traced, IMAGE, None, replicas=1, restart_generation=1)
    assert [one for one in container(made)["env"] if one["name"].startswith("OTEL_")] == given
