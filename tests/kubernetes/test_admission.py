"""Objects that somebody else changes, on a real API server: by a mutating webhook, or by hand."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import LARGE, QUIET, SMALL, an_operator, settled
from support.kube.policy import refusing
from support.kube.running_operator import Topologies, manifest
from support.kube.webhook import MutatingWebhook, Object
from support.waiting import eventually

from streamtopology.contract import environment as variables
from streamtopology.k8s import names

WORKLOADS = ("apps/v1/deployments", "apps/v1/statefulsets")
EVERY_POD_SETTING: dict[str, Any] = {
    "volumes": [
        {"name": "cache", "emptyDir": {"sizeLimit": 1.5e9}},
        {"name": "code", "configMap": {"name": "code", "items": [{"key": "a", "path": "a"}]}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
    ],
    "volumeMounts": [{"name": "cache", "mountPath": "/mnt", "readOnly": False}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "env": [{"name": "REGION", "value": "eu"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    "annotations": {"team": "streams"},
    "labels": {"cost": "42"},
}


def message(topologies: Topologies, kind: str) -> str:
    return next(one["message"] for one in topologies.status("flow")["conditions"] if one["type"] == kind)


def looks_again(topologies: Topologies, drivers: FakeDrivers, times: int = 20) -> None:
    """The operator asks the driver that number of times more, and looks at the topology each time."""
    key = (topologies.namespace, "flow")
    asked = drivers.asked[key]
    eventually(lambda: drivers.asked[key] > asked + times, 120)


def mirrored(workload: Object) -> list[Object]:
    """Its images come from a mirror, and small pods are given more CPU."""
    container = workload["spec"]["template"]["spec"]["containers"][0]
    path = "/spec/template/spec/containers/0"
    changes: list[Object] = []
    if not container["image"].startswith("mirror.example/"):
        changes.append({"op": "replace", "path": f"{path}/image", "value": f"mirror.example/{container['image']}"})
    if container["resources"]["limits"]["cpu"] == "150m":
        for part in ("limits", "requests"):
            changes.append({"op": "replace", "path": f"{path}/resources/{part}/cpu", "value": "200m"})
    return changes


def test_a_webhook_that_changes_images_and_requests_is_reported_and_not_fought(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with (
        MutatingWebhook(api_server, topologies.namespace, WORKLOADS, mirrored) as webhook,
        an_operator(api_server, (topologies.namespace,), drivers),
    ):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        eventually(lambda: topologies.condition("flow", "MutatedByAdmission") == ("True", "Mutated"))
        changes = message(topologies, "MutatedByAdmission")
        assert '"registry.example/spark:1" became "mirror.example/registry.example/spark:1"' in changes
        assert "StatefulSet flow-" in changes
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")
        asked = webhook.asked
        looks_again(topologies, drivers)
        assert webhook.asked - asked <= 3, "status of the workloads may still change"
        assert "Mutated" in topologies.reasons("flow")
        topologies.change("flow", image="mirror.example/spark:2")
        eventually(lambda: settled(topologies, 2), 120)
        assert "image" not in message(topologies, "MutatedByAdmission")


def raised(pod: Object) -> list[Object]:
    """Gives each executor 500m, as a policy of the cluster has it."""
    resources = [
        {"op": "replace", "path": f"/spec/containers/0/resources/{part}/cpu", "value": "500m"}
        for part in ("limits", "requests")
    ]
    container = pod["spec"]["containers"][0]
    return resources if container["name"] == "executor" and container["resources"]["limits"]["cpu"] != "500m" else []


def test_a_webhook_that_resizes_pods_is_reported_and_not_fought(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with (
        MutatingWebhook(api_server, topologies.namespace, ("v1/pods", "v1/pods/resize"), raised) as webhook,
        an_operator(api_server, (topologies.namespace,), drivers),
    ):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "ResizeRefused"), 120)
        assert "a webhook of the cluster makes that 500m CPU" in message(topologies, "Degraded")
        eventually(lambda: topologies.condition("flow", "Ready") == ("True", "Running"))
        pods = topologies.executor_pods("flow", "large")
        assert set(pods.values()) == {"500m"}
        asked = webhook.asked
        looks_again(topologies, drivers, 40)
        assert webhook.asked - asked < 40, "each pod less and less often"
        assert topologies.executor_pods("flow", "large") == pods


def raised_and_unmarked(pod: Object) -> list[Object]:
    """Takes our annotations from small executors, too, as a policy does that writes all annotations itself."""
    is_small = pod["metadata"]["labels"].get(names.CLASS) == "small" and pod["metadata"].get("annotations")
    return [*raised(pod), *([{"op": "remove", "path": "/metadata/annotations"}] if is_small else [])]


def test_pods_that_a_webhook_changes_as_they_are_made_are_not_replaced_for_ever(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    """In a cluster that resizes none: the next one would be changed as well."""
    with (
        MutatingWebhook(api_server, topologies.namespace, ("v1/pods",), raised_and_unmarked, ("CREATE",)),
        refusing(topologies, "", ["pods/resize"]),
        an_operator(api_server, (topologies.namespace,), drivers),
    ):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: topologies.condition("flow", "MutatedByAdmission") == ("True", "Mutated"), 120)
        eventually(lambda: "Pod flow-small-0: the annotation" in message(topologies, "MutatedByAdmission"))
        raised_to = "Pod flow-large-0: 400m CPU, 1Gi became 500m CPU, 1Gi"
        eventually(lambda: raised_to in message(topologies, "MutatedByAdmission"))
        eventually(lambda: topologies.condition("flow", "Reconfiguring") == ("False", "Settled"))
        pods = topologies.uids("flow")
        looks_again(topologies, drivers)
        assert topologies.uids("flow") == pods
        topologies.change("flow", executors=[{**LARGE, "pod": {"labels": {"team": "a"}}}, SMALL])
        eventually(lambda: settled(topologies, 2), 120)
        assert {name for name, uid in topologies.uids("flow").items() if pods[name] != uid} == {"flow-large-0", "flow-large-1"}


def test_nothing_that_the_api_server_completes_is_taken_for_a_change(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        pod = {"pod": EVERY_POD_SETTING}
        driver = {"cpu": 1.5, "memory": "2e9", **pod}
        topologies.create(manifest("flow", rebalance=QUIET, driver=driver, executors=[{**LARGE, **pod}, SMALL]))
        eventually(lambda: settled(topologies, 1), 120)
        looks_again(topologies, drivers, 5)
        assert message(topologies, "MutatedByAdmission") == "the cluster has the objects as written"


def test_fields_that_somebody_changes_by_hand_are_written_again(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    """Environment, security context, volumes, rights, ports, selectors: what nobody else may own."""
    namespace = topologies.namespace
    access, network = client.RbacAuthorizationV1Api(topologies.core.api_client), topologies.core
    with an_operator(api_server, (namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)

        def now() -> list[Any]:
            driver = topologies.apps.read_namespaced_deployment("flow-driver", namespace).spec.template.spec
            large = topologies.apps.read_namespaced_stateful_set("flow-large", namespace).spec.template.spec
            role = access.read_namespaced_role("flow-driver", namespace)
            service: Any = network.read_namespaced_service("flow-driver", namespace).spec
            bodies = (driver, large, role.rules, service.ports, service.selector)
            return [topologies.core.api_client.sanitize_for_serialization(body) for body in bodies]

        before, pods = now(), topologies.driver_pods("flow")
        theirs = {"name": "executor", "env": [{"name": variables.TOPOLOGY, "value": "other"}],
                  "securityContext": {"readOnlyRootFilesystem": False}}  # fmt: skip
        topologies.apps.patch_namespaced_stateful_set(
            "flow-large", namespace, {"spec": {"template": {"spec": {"containers": [theirs]}}}}
        )
        removed = [{"op": "remove", "path": "/spec/template/spec/securityContext/runAsNonRoot"}]
        topologies.apps.patch_namespaced_stateful_set("flow-large", namespace, removed)
        everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        access.patch_namespaced_role("flow-driver", namespace, {"rules": everything})
        network.patch_namespaced_service("flow-driver", namespace, {"spec": {"selector": {"app": "mine"}}})
        eventually(lambda: now() == before)
        eventually(lambda: settled(topologies, 1))
        assert topologies.driver_pods("flow") == pods
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")


@pytest.mark.parametrize("replicas", [0, 5])
def test_replicas_that_somebody_keeps_changing_are_written_less_and_less_often(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, replicas: int
) -> None:
    """As an autoscaler does that somebody has set on our StatefulSet."""
    namespace = topologies.namespace
    written = 0

    def fought() -> bool:
        nonlocal written
        if topologies.replicas("flow", "small") != replicas:
            written += 1
            body = {"spec": {"replicas": replicas}}
            topologies.apps.patch_namespaced_stateful_set_scale("flow-small", namespace, body)
        return topologies.condition("flow", "Degraded") == ("True", "Contested")

    with an_operator(api_server, (namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        eventually(fought, 120)
        assert "StatefulSet flow-small" in message(topologies, "Degraded")
        assert "changed by others: spec.replicas" in message(topologies, "Degraded")
        assert written < 10
        eventually(lambda: settled(topologies, 1), 120)
