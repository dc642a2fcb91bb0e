"""The life of a topology on a real API server, from `kubectl apply` to its end; the driver is a fake at its HTTP port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.fake_kubelet import FakeKubelet
from support.kube.flow import COUNTS, IMAGE, LARGE, QUIET, SMALL
from support.kube.running_operator import OperatorThread, Topologies, manifest
from support.waiting import eventually

from streamtopology.k8s.decide.status import LONGEST_MESSAGE
from streamtopology.k8s.settings import Settings


@pytest.fixture(scope="module")
def operator(api_server: ApiServer, kubelet: FakeKubelet, drivers: FakeDrivers) -> Iterator[OperatorThread]:
    settings = Settings(image=IMAGE, driver_url=drivers.url, drain_seconds=60.0)
    with OperatorThread(api_server, settings) as operator:
        yield operator


@pytest.fixture
def topologies(api_server: ApiServer, namespace: str, operator: OperatorThread) -> Iterator[Topologies]:
    with api_server.client() as api:
        yield Topologies(api, namespace)


def settled(topologies: Topologies, name: str, generation: int | None = None) -> bool:
    status = topologies.status(name)
    seen = generation is None or status.get("observedGeneration") == generation
    return seen and status.get("phase") == "Running" and topologies.condition(name, "Reconfiguring") == ("False", "Settled")


def start(topologies: Topologies, name: str, **spec: Any) -> None:
    topologies.create(manifest(name, **{"rebalance": QUIET, **spec}))
    eventually(lambda: settled(topologies, name))


def change(topologies: Topologies, name: str, **spec: Any) -> int:
    """`kubectl apply`, then until the operator has come through with it."""
    generation = topologies.change(name, **spec)["metadata"]["generation"]
    eventually(lambda: settled(topologies, name, generation))
    return generation


def test_apply_and_watch_it_balance_itself(topologies: Topologies):
    topologies.create(manifest("flow"))
    eventually(lambda: topologies.status("flow").get("epoch", 0) >= 2)
    eventually(lambda: topologies.condition("flow", "Balanced") == ("True", "WithinTolerance"))
    eventually(lambda: settled(topologies, "flow"))
    status = topologies.status("flow")
    assert status["executors"] == {"ready": 3, "wanted": 3, "summary": "3/3"}
    assert "counts: imbalance" in status["lastRerouting"]["reason"]
    eventually(lambda: {"Running", "Rerouting", "Rerouted", "Reconfigured"} <= topologies.reasons("flow"))


def test_a_policy_change_reaches_the_driver_and_restarts_nothing(topologies: Topologies):
    start(topologies, "flow")
    pods, epoch = topologies.uids("flow"), topologies.status("flow")["epoch"]
    generation = change(topologies, "flow", operators=[{**COUNTS, "grouping": {"policy": "fields", "key": "key"}}])
    assert topologies.routing("flow")["generation"] == str(generation)
    assert topologies.status("flow")["epoch"] == epoch + 1
    assert topologies.status("flow")["policies"] == {"counts": "fields"}
    assert topologies.uids("flow") == pods
    assert ("Normal", "Routing", "operator counts policy: mixed -> fields (generation 2)") in topologies.events("flow")


def test_cpu_is_changed_in_place(topologies: Topologies):
    start(topologies, "flow")
    pods = topologies.uids("flow")
    change(topologies, "flow", executors=[{**LARGE, "cpu": "600m"}, SMALL])
    eventually(lambda: topologies.executor_pods("flow", "large") == {"flow-large-0": "600m", "flow-large-1": "600m"})
    assert topologies.uids("flow") == pods
    template = topologies.apps.read_namespaced_stateful_set("flow-large", topologies.namespace).spec.template
    assert template.spec.containers[0].resources.limits["cpu"] == "600m", "a pod that is replaced keeps the size"


@pytest.mark.parametrize("played", ["deferred", "infeasible"])
def test_a_resize_that_the_node_does_not_carry_out_is_a_condition(topologies: Topologies, kubelet: FakeKubelet, played: Any):
    start(topologies, "flow")
    try:
        kubelet.resizes = played
        topologies.change("flow", executors=[{**LARGE, "cpu": "900m"}, SMALL])
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", f"Resize{played.capitalize()}"))
    finally:
        kubelet.resizes = "done"
    eventually(lambda: topologies.condition("flow", "Degraded") == ("False", "AsExpected"))
    eventually(lambda: settled(topologies, "flow"))


@pytest.fixture
def no_resizes(api_server: ApiServer, topologies: Topologies) -> Iterator[None]:
    """A cluster that resizes no pod in this namespace, as one before 1.33 or under a policy."""
    namespace = topologies.namespace
    in_namespace = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    resizes = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/resize"]}
    with api_server.client() as api:
        admission = client.AdmissionregistrationV1Api(api)
        spec = {
            "matchConstraints": {"resourceRules": [resizes], "namespaceSelector": in_namespace},
            "validations": [{"expression": "false", "message": "pods are not resized here"}],
        }
        admission.create_validating_admission_policy({"metadata": {"name": namespace}, "spec": spec})
        binding = {"policyName": namespace, "validationActions": ["Deny"]}
        admission.create_validating_admission_policy_binding({"metadata": {"name": namespace}, "spec": binding})
        try:
            yield
        finally:
            admission.delete_validating_admission_policy_binding(namespace)
            admission.delete_validating_admission_policy(namespace)


def is_refused(topologies: Topologies, pod: str) -> bool:
    """True if the policy is in force: it takes a moment."""
    try:
        topologies.core.patch_namespaced_pod_resize(pod, topologies.namespace, {"metadata": {"labels": {}}})
    except client.ApiException as error:
        return "not resized here" in str(error)
    return False


def test_unresizable_pods_are_replaced_one_by_one(topologies: Topologies, no_resizes: None):
    start(topologies, "flow")
    before = topologies.uids("flow")
    eventually(lambda: is_refused(topologies, "flow-large-0"))
    change(topologies, "flow", executors=[{**LARGE, "cpu": "600m"}, SMALL])
    eventually(lambda: topologies.executor_pods("flow", "large") == {"flow-large-0": "600m", "flow-large-1": "600m"})
    assert topologies.uids("flow")["flow-small-0"] == before["flow-small-0"]
    [said, *_] = [text for _, reason, text in topologies.events("flow") if reason == "ResizeRefused"]
    assert "class large is replaced pod by pod" in said
    assert "pods are not resized here" in said
    assert topologies.condition("flow", "Degraded") == ("False", "AsExpected"), "none is left to be replaced"


def test_other_pod_settings_of_a_class_replace_its_pods_and_no_others(topologies: Topologies):
    start(topologies, "flow")
    before = topologies.uids("flow")
    change(topologies, "flow", executors=[{**LARGE, "pod": {"annotations": {"team": "streams"}}}, SMALL])
    after = topologies.uids("flow")
    assert {name for name in after if after[name] != before.get(name)} == {"flow-large-0", "flow-large-1"}


def test_kubectl_rollout_restart_of_a_class_replaces_its_pods_and_no_others(topologies: Topologies, api_server: ApiServer):
    def pods(class_name: str) -> set[str]:
        """The uids of a class."""
        selector = f"streamtopology.dev/class={class_name}"
        listed = topologies.core.list_namespaced_pod(topologies.namespace, label_selector=selector).items
        return {pod.metadata.uid for pod in listed if pod.metadata.deletion_timestamp is None}

    topologies.create(manifest("flow"))
    eventually(lambda: settled(topologies, "flow", 1))
    large, small, driver = pods("large"), pods("small"), topologies.driver_pods("flow")
    api_server.kubectl("-n", topologies.namespace, "rollout", "restart", "statefulset/flow-large")
    eventually(lambda: len(pods("large")) == len(large) and not pods("large") & large, 120)
    eventually(lambda: settled(topologies, "flow", 1))
    assert (pods("small"), topologies.driver_pods("flow")) == (small, driver)


def test_scale_out_and_in_without_a_restart(topologies: Topologies, drivers: FakeDrivers):
    start(topologies, "flow")
    driver = topologies.driver_pods("flow")
    change(topologies, "flow", executors=[{**LARGE, "replicas": 4}, SMALL])
    assert topologies.status("flow")["executors"]["summary"] == "5/5"
    change(topologies, "flow", executors=[{**LARGE, "replicas": 1}])
    eventually(lambda: list(topologies.executor_pods("flow", "large")) == ["flow-large-0"])
    eventually(lambda: topologies.executor_pods("flow", "small") == {})
    assert topologies.driver_pods("flow") == driver
    assert [one.name for one in drivers.drivers[topologies.namespace, "flow"].topology.executors] == ["large"]


def asked_again(drivers: FakeDrivers, topologies: Topologies) -> None:
    """Wait until the operator has asked again, and has the answer: it asks one thing at a time."""
    asked = drivers.asked[topologies.namespace, "flow"]
    eventually(lambda: drivers.asked[topologies.namespace, "flow"] > asked + 2)


def test_a_scale_in_waits_for_the_driver(topologies: Topologies, drivers: FakeDrivers):
    start(topologies, "flow")
    with drivers.failing(topologies.namespace, "flow", "500"):
        asked_again(drivers, topologies)  # an answer that was under way when the failing began would still count
        topologies.change("flow", executors=[{**LARGE, "replicas": 1}, SMALL])
        eventually(lambda: json.loads(topologies.routing("flow")["topology"])["spec"]["executors"][0]["replicas"] == 1)
        asked_again(drivers, topologies)
        assert topologies.replicas("flow", "large") == 2
    eventually(lambda: topologies.replicas("flow", "large") == 1)


def test_kubectl_scale(topologies: Topologies, api_server: ApiServer):
    topologies.create(
        manifest(
            "flow",
            rebalance=QUIET,
            executors=[{"name": "large", "cpu": "400m"}, SMALL],
            autoscale={"class": "large", "by": "External", "replicas": 1, "maxReplicas": 3},
        )
    )
    eventually(lambda: settled(topologies, "flow"))
    api_server.kubectl("scale", "stopo/flow", "--replicas=3", f"--namespace={topologies.namespace}")
    eventually(lambda: settled(topologies, "flow", 2))
    assert topologies.status("flow")["autoscale"]["replicas"] == 3
    eventually(lambda: sorted(topologies.executor_pods("flow", "large")) == ["flow-large-0", "flow-large-1", "flow-large-2"])


def test_other_code_restarts_the_driver_from_its_checkpoint(topologies: Topologies):
    start(topologies, "flow")
    driver, before = topologies.driver_pods("flow"), topologies.uids("flow")
    change(topologies, "flow", operators=[{**COUNTS, "with": {"emit": "nothing"}}])
    assert topologies.driver_pods("flow") != driver
    after = topologies.uids("flow")
    assert {name: after[name] for name in after if "driver" not in name} == {n: before[n] for n in before if "driver" not in n}
    assert "Restarting" in topologies.reasons("flow")


def test_suspend_removes_all_pods_and_resume_restores_them(topologies: Topologies):
    start(topologies, "flow")
    topologies.change("flow", suspend=True)
    eventually(lambda: topologies.status("flow")["phase"] == "Suspended" and topologies.uids("flow") == {})
    topologies.change("flow", suspend=False)
    eventually(lambda: settled(topologies, "flow"))


def test_pause(topologies: Topologies, drivers: FakeDrivers):
    start(topologies, "flow")
    paused = {"streamtopology.dev/pause": "true"}
    topologies.patch("flow", {"metadata": {"annotations": paused}, "spec": {"executors": [{**LARGE, "replicas": 3}, SMALL]}})
    eventually(lambda: topologies.condition("flow", "Reconfiguring") == ("False", "Paused"))
    assert topologies.replicas("flow", "large") == 2
    topologies.patch("flow", {"metadata": {"annotations": {"streamtopology.dev/pause": None}}})
    eventually(lambda: topologies.replicas("flow", "large") == 3)


def test_recommend_reports_a_plan_and_changes_nothing(topologies: Topologies):
    start(topologies, "flow", rebalance={"mode": "Recommend", "interval": "300ms"})
    eventually(lambda: topologies.condition("flow", "Balanced") == ("False", "Recommended"))
    assert "counts" in topologies.status("flow")["recommendation"]["stages"]
    assert "saves" in topologies.status("flow")["recommendation"]["text"]
    assert topologies.status("flow")["epoch"] == 1
    eventually(lambda: "Recommended" in topologies.reasons("flow"))


def test_manifest_that_only_the_parser_refuses_touches_nothing(topologies: Topologies):
    """The CRD lets it pass where the admission policy is not installed."""
    start(topologies, "flow")
    before = topologies.routing("flow")
    topologies.change("flow", operators=[{**COUNTS, "inputs": ["nowhere"]}])
    eventually(lambda: topologies.condition("flow", "Ready") == ("False", "InvalidManifest"))
    message = next(one["message"] for one in topologies.status("flow")["conditions"] if one["type"] == "Ready")
    assert "spec.operators[0].inputs" in message
    assert topologies.routing("flow") == before
    topologies.change("flow", operators=[COUNTS])
    eventually(lambda: settled(topologies, "flow"))


def test_a_manifest_with_thousands_of_mistakes_is_reported(topologies: Topologies):
    """Their sentences are longer than a condition may be."""
    inputs = [f"nowhere-{number}" for number in range(32)]
    topologies.create(manifest("flow", operators=[{**COUNTS, "name": f"counts-{n}", "inputs": inputs} for n in range(64)]))
    eventually(lambda: topologies.condition("flow", "Ready") == ("False", "InvalidManifest"))
    message = next(one["message"] for one in topologies.status("flow")["conditions"] if one["type"] == "Ready")
    assert "spec.operators[0].inputs" in message
    assert len(message) == LONGEST_MESSAGE
    topologies.change("flow", operators=[COUNTS])
    eventually(lambda: settled(topologies, "flow"))


def test_an_epoch_that_the_driver_refuses_is_withdrawn_and_reported(topologies: Topologies, drivers: FakeDrivers):
    with drivers.failing(topologies.namespace, "flow", "refuses-epochs"):
        topologies.create(manifest("flow"))
        eventually(lambda: "EpochRefused" in topologies.reasons("flow"))
        eventually(lambda: "epochNumber" not in topologies.routing("flow"))
    assert topologies.status("flow")["epoch"] == 1


@pytest.mark.parametrize("fault", ["500", "gone", "garbage", "old-version", "endless"])
def test_a_driver_that_does_not_answer_is_reported_and_its_return_noticed(
    topologies: Topologies, drivers: FakeDrivers, fault: Any
):
    start(topologies, "flow")
    with drivers.failing(topologies.namespace, "flow", fault):
        eventually(lambda: topologies.condition("flow", "Ready") == ("False", "DriverSilent"))
    eventually(lambda: topologies.condition("flow", "Ready") == ("True", "Running"))
    assert {"DriverSilent", "Running"} <= topologies.reasons("flow")


def test_status_that_was_lost_comes_back(topologies: Topologies):
    start(topologies, "flow")
    before, pods = topologies.status("flow"), topologies.uids("flow")
    lost = dict.fromkeys(before) | {"phase": "Lost"}
    topologies.patch_status("flow", {"status": lost})
    eventually(lambda: settled(topologies, "flow"))
    after = topologies.status("flow")
    for column in ("phase", "epoch", "executors", "policy", "classes"):
        assert after[column] == before[column]
    assert topologies.uids("flow") == pods


def test_foreign_deletions_and_changes_are_reverted(topologies: Topologies):
    start(topologies, "flow")
    driver = topologies.driver_pods("flow")
    topologies.core.delete_namespaced_service("flow-driver", topologies.namespace)
    topologies.core.delete_namespaced_config_map("flow-routing", topologies.namespace)
    five = {"spec": {"replicas": 5}}
    topologies.apps.patch_namespaced_stateful_set_scale("flow-large", topologies.namespace, five)
    eventually(lambda: topologies.replicas("flow", "large") == 2)
    eventually(
        lambda: any(
            one.metadata.name == "flow-driver" for one in topologies.core.list_namespaced_service(topologies.namespace).items
        )
    )
    eventually(lambda: settled(topologies, "flow"))
    assert topologies.routing("flow")["generation"] == "1"
    assert topologies.driver_pods("flow") == driver


def test_spark_secret_that_was_deleted_is_made_again_and_all_pods_restart(topologies: Topologies, kubelet: FakeKubelet):
    """It is noticed once a pod waits for it, as a kubelet has it do. Nobody knows the former one but the pods that run."""
    start(topologies, "flow")
    before = topologies.uids("flow")
    topologies.core.delete_namespaced_secret("flow-spark", topologies.namespace)
    kubelet.unschedulable = lambda pod: pod["metadata"]["name"] == "flow-small-0"
    try:
        topologies.core.delete_namespaced_pod("flow-small-0", topologies.namespace)
        eventually(lambda: "flow-spark" in topologies.left_of("flow"), 60)
    finally:
        kubelet.unschedulable = lambda pod: False
    eventually(lambda: len(topologies.uids("flow")) == 4 and not set(topologies.uids("flow").values()) & set(before.values()))
    eventually(lambda: settled(topologies, "flow"))
    assert any(reason == "Restarting" and "flow-spark was deleted" in text for _, reason, text in topologies.events("flow"))


@pytest.mark.parametrize("phase", ["new", "starting", "running", "changing", "suspended", "invalid"])
def test_deletion_in_every_phase_leaves_nothing(topologies: Topologies, kubelet: FakeKubelet, phase: str):
    if phase == "new":
        topologies.create(manifest("flow", rebalance=QUIET))
    elif phase == "starting":
        kubelet.unschedulable = lambda pod: True
        try:
            topologies.create(manifest("flow", rebalance=QUIET))
            eventually(lambda: topologies.condition("flow", "Ready") == ("False", "DriverNotScheduled"))
            topologies.delete("flow")
            eventually(lambda: not topologies.exists("flow"))
        finally:
            kubelet.unschedulable = lambda pod: False
        return
    elif phase == "invalid":
        topologies.create(manifest("flow", operators=[{**COUNTS, "inputs": ["nowhere"]}]))
        eventually(lambda: topologies.condition("flow", "Ready") == ("False", "InvalidManifest"))
    else:
        start(topologies, "flow")
        if phase == "changing":
            topologies.change("flow", executors=[{**LARGE, "replicas": 1, "cpu": "600m"}, SMALL])
        if phase == "suspended":
            topologies.change("flow", suspend=True)
            eventually(lambda: topologies.status("flow")["phase"] == "Suspended")
    topologies.delete("flow")
    eventually(lambda: not topologies.exists("flow"))
    eventually(lambda: topologies.left_of("flow") == [])


def test_deleted_and_made_again_at_once_under_the_same_name(topologies: Topologies):
    """Objects of the first one are still being deleted: the second must not take them for its own."""
    start(topologies, "flow")
    secret = topologies.core.read_namespaced_secret("flow-spark", topologies.namespace).metadata.uid
    topologies.delete("flow")
    eventually(lambda: not topologies.exists("flow"))
    start(topologies, "flow")
    eventually(lambda: topologies.core.read_namespaced_secret("flow-spark", topologies.namespace).metadata.uid != secret)
    assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")
