"""Decisions: what each change of a topology leads to, and that they are level-triggered."""

from __future__ import annotations

import copy
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operator_world import World, condition, manifest, reasons, routing, shape
from support.quantities import Quantity, quantities

from streamtopology.k8s import names
from streamtopology.k8s.decide.answers import Scaling
from streamtopology.k8s.decide.steps import Apply, Delete, Finalizer, MakeSecret, Patch, Resize

COUNTS = {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}
LARGE = {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"}
SMALL = {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"}


def run_driver_pod(world: World) -> str:
    return world.pod_names("driver")[0]


def test_a_new_topology_gets_everything_in_the_order_in_which_it_is_needed():
    world = World(manifest())
    first, *steps = world.decide().steps
    assert first == Finalizer(present=True)
    made = [step.name if isinstance(step, MakeSecret) else step.body["metadata"]["name"] for step in steps]
    position = {(step.point, name): number for number, (step, name) in enumerate(zip(steps, made, strict=True))}
    order = [
        ("apply-ServiceAccount", "flow-driver"),
        ("make-Secret", "flow-spark"),
        ("apply-ConfigMap", "flow-routing"),
        ("apply-Deployment", "flow-driver"),
    ]
    assert [position[step] for step in order] == sorted(position[step] for step in order)
    world.settle()
    assert world.manifest["status"]["phase"] == "Running"
    assert condition(world, "Ready") == ("True", "Running")
    assert world.pod_names("executor") == ["flow-large-0", "flow-large-1", "flow-small-0"]


def test_status_names_the_steps_before_they_are_carried_out():
    decision = World(manifest()).decide()
    assert decision.status["intent"]["steps"] == reasons(decision.steps)
    assert decision.status["intent"]["action"] == "Starting"


def test_a_policy_is_changed_by_the_config_map_alone(world: World):
    world.change(operators=[{**COUNTS, "grouping": {"policy": "fields", "key": "key"}}])
    steps = world.decide().steps
    assert reasons(steps) == ["apply ConfigMap flow-routing"]
    driver, epoch = run_driver_pod(world), world.driver.newest
    world.settle()
    assert (routing(world)["generation"], world.driver.newest) == ("2", epoch + 1)
    assert run_driver_pod(world) == driver
    assert "Routing" in dict(world.events)
    assert "policy: mixed -> fields" in dict(world.events)["Routing"]


def test_other_cpu_resizes_the_pods_of_the_class_in_place(world: World):
    pods = {name: world.objects["Pod", name]["metadata"]["uid"] for name in world.pod_names("executor")}
    world.change(executors=[{**LARGE, "cpu": "600m"}, SMALL])
    resized = [step for step in world.decide().steps if isinstance(step, Resize)]
    assert [(step.pod, step.resources) for step in resized] == [("flow-large-0", (0.6, 2**30)), ("flow-large-1", (0.6, 2**30))]
    world.settle()
    assert {name: world.objects["Pod", name]["metadata"]["uid"] for name in world.pod_names("executor")} == pods


@settings(max_examples=25, deadline=None)
@given(quantities().filter(lambda one: 0 < one.amount <= 64), st.integers(2**29, 2**40))
def test_the_same_amounts_in_another_form_change_nothing(cpu: Quantity, memory: int):
    world = World(manifest(executors=[{**LARGE, "cpu": cpu.text, "memory": memory}, SMALL]))
    world.settle()
    same = {"cpu": f"{ceil(cpu.amount * 1000)}m", "memory": f"{memory * 1000}m"}
    world.change(executors=[{**LARGE, **same}, {**SMALL, "cpu": 0.15}])
    assert [step for step in world.decide().steps if not isinstance(step, Apply) or step.body["kind"] != "ConfigMap"] == []


def test_refused_resize_replaces_pods_one_by_one(world: World):
    world.change(executors=[{**LARGE, "cpu": "600m"}, SMALL])
    world.carry_out(world.decide(), refuse_resize="the server could not find the requested resource")
    for pod in ("flow-large-0", "flow-large-1"):
        deletions = [step for step in world.decide().steps if isinstance(step, Delete)]
        assert [step.name for step in deletions] == [pod]
        world.carry_out(world.decide())
        assert not [step for step in world.decide().steps if isinstance(step, Delete)], "the one before is not ready yet"
        world.work()
    assert condition(world, "Degraded") == ("True", "ResizeRefused")
    world.settle()
    limits = world.objects["Pod", "flow-large-1"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["cpu"] == "600m"


def test_other_storage_replaces_the_pods_of_the_class_one_by_one(world: World):
    """Kubernetes resizes no storage in place."""
    small = world.objects["Pod", "flow-small-0"]["metadata"]["uid"]
    world.change(executors=[{**LARGE, "storage": "10Gi"}, SMALL])
    assert not [step for step in world.decide().steps if isinstance(step, Resize)]
    for pod in ("flow-large-0", "flow-large-1"):
        assert [step.name for step in world.decide().steps if isinstance(step, Delete)] == [pod]
        world.carry_out(world.decide())
        world.work()
    world.settle()
    assert "executor class large storage: none -> 10Gi" in dict(world.events)["Resizing"]
    limits = world.objects["Pod", "flow-large-1"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["ephemeral-storage"] == "10Gi"
    assert world.objects["Pod", "flow-small-0"]["metadata"]["uid"] == small


@pytest.mark.parametrize("memory", ["4Gi", "512Mi"])
def test_other_memory_replaces_pods_one_by_one_so_that_each_jvm_has_its_heap(world: World, memory: str):
    world.change(executors=[{**LARGE, "cpu": "600m", "memory": memory}, SMALL])
    resized = [step for step in world.decide().steps if isinstance(step, Resize)]
    assert [step.resources for step in resized] == [(0.6, 2**30)] * 2, "the CPU need not wait"
    for pod in ("flow-large-0", "flow-large-1"):
        deletions = [step for step in world.decide().steps if isinstance(step, Delete)]
        assert [(step.name, step.why.split(":")[0]) for step in deletions] == [(pod, f"memory 1Gi becomes {memory}")]
        world.carry_out(world.decide())
        world.work()
    world.settle()
    for pod in ("flow-large-0", "flow-large-1"):
        container = world.objects["Pod", pod]["spec"]["containers"][0]
        heap = {each["name"]: each.get("value") for each in container["env"]}["STREAMTOPOLOGY_MEMORY"]
        assert (container["resources"]["limits"]["memory"], heap) == (memory, {"4Gi": "2457", "512Mi": "480"}[memory])


def test_executors_with_storage_are_resized_in_place_and_keep_it(world: World):
    world.change(executors=[{**LARGE, "storage": "10Gi"}, SMALL])
    world.settle()
    uid = world.objects["Pod", "flow-large-0"]["metadata"]["uid"]
    world.change(executors=[{**LARGE, "cpu": "600m", "storage": "10Gi"}, SMALL])
    world.settle()
    pod = world.objects["Pod", "flow-large-0"]
    assert pod["metadata"]["uid"] == uid
    limits = {"cpu": "600m", "memory": "1Gi", "ephemeral-storage": "10Gi"}
    assert pod["spec"]["containers"][0]["resources"] == {"requests": limits, "limits": limits}


def test_other_storage_of_the_driver_restarts_it_and_nobody_else(world: World):
    pod, executors = (
        run_driver_pod(world),
        [world.objects["Pod", name]["metadata"]["uid"] for name in world.pod_names("executor")],
    )
    world.change(driver={"storage": "5Gi"})
    world.settle()
    assert run_driver_pod(world) != pod
    assert [world.objects["Pod", name]["metadata"]["uid"] for name in world.pod_names("executor")] == executors


def test_replacing_pods_is_under_way_until_the_last_whatever_status_remembers(world: World):
    world.change(executors=[{**LARGE, "pod": {"annotations": {"team": "streams"}}}, SMALL])
    world.carry_out(world.decide())
    del world.manifest["status"]
    decision = world.decide()
    assert decision.steps == (), "the one before is not ready yet"
    world.carry_out(decision)
    assert condition(world, "Reconfiguring") == ("True", "Updating")
    assert condition(world, "Degraded") == ("False", "AsExpected")
    world.settle()
    assert condition(world, "Reconfiguring") == ("False", "Settled")


@pytest.mark.parametrize("reason", ["Deferred", "Infeasible"])
def test_a_resize_that_the_node_does_not_carry_out_is_a_condition(world: World, reason: str):
    world.change(executors=[{**LARGE, "cpu": "600m"}, SMALL])
    world.settle()
    pending = {"type": "PodResizePending", "status": "True", "reason": reason, "message": "not enough cpu"}
    world.objects["Pod", "flow-large-0"]["status"]["conditions"].append(pending)
    world.carry_out(world.decide())
    assert condition(world, "Degraded") == ("True", f"Resize{reason}")
    world.objects["Pod", "flow-large-0"]["status"]["conditions"].remove(pending)
    world.settle()
    assert condition(world, "Degraded") == ("False", "AsExpected")
    assert ("Recovered", f"Resize{reason} is over") in world.events


def test_other_code_restarts_the_driver_and_nobody_else(world: World):
    driver, executors = run_driver_pod(world), world.pod_names("executor")
    uids = [world.objects["Pod", name]["metadata"]["uid"] for name in executors]
    world.change(operators=[{**COUNTS, "run": "own.module:Class"}])
    assert reasons(world.decide().steps) == ["apply ConfigMap flow-routing", "apply Deployment flow-driver"]
    world.settle()
    assert run_driver_pod(world) != driver
    assert [world.objects["Pod", name]["metadata"]["uid"] for name in executors] == uids
    assert "Restarting" in dict(world.events)


def test_end_of_input_stops_everything_until_the_next_generation():
    world = World(manifest(trigger={"availableNow": True}))
    world.settle()
    world.phase = "done"
    world.settle()
    assert (world.manifest["status"]["phase"], condition(world, "Ready")) == ("Completed", ("True", "Completed"))
    assert world.pod_names("driver") + world.pod_names("executor") == []
    world.phase = "running"
    world.change(trigger={"availableNow": True}, onBadTuple="deadLetter")
    world.settle()
    assert world.manifest["status"]["phase"] == "Running"


def test_a_restart_is_not_forgotten_by_an_operator_killed_between_its_two_steps(world: World):
    driver = run_driver_pod(world)
    world.change(operators=[{**COUNTS, "run": "own.module:Class"}])
    world.carry_out(world.decide(), steps=1)
    world.settle()
    assert run_driver_pod(world) != driver


def test_another_image_replaces_everything(world: World):
    uids = {name: world.objects["Pod", name]["metadata"]["uid"] for name in world.pod_names("executor")}
    world.change(image="registry.example/spark:2")
    world.settle()
    assert all(world.objects["Pod", name]["metadata"]["uid"] != uid for name, uid in uids.items())
    assert world.objects["Pod", "flow-large-0"]["spec"]["containers"][0]["image"] == "registry.example/spark:2"


def test_suspend_stops_the_driver_first_and_can_be_resumed(world: World):
    world.change(suspend=True)
    world.carry_out(world.decide())
    assert world.objects["Deployment", "flow-driver"]["spec"]["replicas"] == 0
    assert world.objects["StatefulSet", "flow-large"]["spec"]["replicas"] == 2, "executors hold what the driver hands over"
    world.settle()
    assert world.manifest["status"]["phase"] == "Suspended"
    assert world.pod_names("executor") == []
    world.change(suspend=False)
    world.settle()
    assert world.manifest["status"]["phase"] == "Running"


def test_nothing_is_called_suspended_while_a_pod_runs(world: World):
    world.change(suspend=True)
    seen: list[tuple[int, int, str]] = []
    for _ in range(8):
        decision = world.decide()
        world.carry_out(decision)
        driver, executors = (len(world.pod_names(component)) for component in ("driver", "executor"))
        ready, phase = condition(world, "Ready"), world.manifest["status"]["phase"]
        assert (ready, phase) in ((("False", "Suspending"), "Suspending"), (("True", "Suspended"), "Suspended"))
        assert (phase == "Suspended") == (driver == executors == 0)
        seen.append((driver, executors, phase))
        world.work()
    assert (0, 3, "Suspending") in seen
    assert [reason for reason, _ in world.events].count("Suspended") == 1


def test_suspension_is_in_status_before_it_is_carried_out(world: World):
    world.change(executors=[{**LARGE, "replicas": 3}, SMALL])
    world.carry_out(world.decide())
    assert world.manifest["status"]["intent"]["action"] == "Scaling"
    world.change(suspend=True)
    decision = world.decide()
    assert decision.status["intent"]["action"] == "Suspending", "not the scaling that was under way"
    assert decision.status["intent"]["steps"] == reasons(decision.steps)
    world.settle()
    assert condition(world, "Reconfiguring") == ("False", "Settled")


def test_resuming_is_not_called_suspending(world: World):
    world.change(suspend=True)
    world.carry_out(world.decide())
    world.change(suspend=False)
    assert world.decide().status["intent"]["action"] == "Updating"
    world.settle()


def test_pause_leaves_everything_as_it_is(world: World):
    world.manifest["metadata"]["annotations"] = {names.PAUSE: "true"}
    world.change(executors=[{**LARGE, "replicas": 4}, SMALL])
    decision = world.decide()
    assert decision.steps == ()
    world.carry_out(decision)
    assert condition(world, "Reconfiguring") == ("False", "Paused")
    del world.manifest["metadata"]["annotations"]
    assert world.decide().steps


def test_topology_created_paused_says_so_and_nothing_else(world: World):
    fresh = World(world.manifest)
    del fresh.manifest["status"]
    fresh.manifest["metadata"]["annotations"] = {names.PAUSE: "true"}
    decision = fresh.decide()
    assert (decision.steps, decision.status["phase"]) == ((), "Paused")
    fresh.carry_out(decision)
    assert condition(fresh, "Ready") == ("False", "Paused")
    assert condition(fresh, "Degraded") == ("False", "AsExpected")
    assert condition(fresh, "Reconfiguring") == ("False", "Paused")
    del fresh.manifest["metadata"]["annotations"]
    fresh.settle()
    assert condition(fresh, "Ready") == ("True", "Running")


def test_invalid_manifest_is_reported_in_full_and_touches_nothing(world: World):
    before = copy.deepcopy(world.objects)
    world.change(executors=[{**LARGE, "cpu": "0m"}], operators=[{**COUNTS, "grouping": {"policy": "mixd", "key": "key"}}])
    decision = world.decide()
    assert decision.steps == ()
    assert decision.target is not None, "the running driver is still polled"
    world.carry_out(decision)
    assert condition(world, "Ready") == ("False", "InvalidManifest")
    text = next(one["message"] for one in world.manifest["status"]["conditions"] if one["type"] == "Ready")
    assert "spec.executors[0].cpu" in text
    assert "did you mean 'mixed'?" in text
    assert world.objects == before


def test_a_change_that_had_begun_is_finished_under_an_invalid_manifest(world: World):
    """A scale-down stayed half done, with Ready "False" for the manifest and Reconfiguring "True" for ever."""
    world.change(executors=[{**LARGE, "replicas": 1}, SMALL])
    world.carry_out(world.decide())
    world.change(executors=[{**LARGE, "replicas": 1, "cpu": "0m"}, SMALL])
    world.settle()
    assert world.objects["StatefulSet", "flow-large"]["spec"]["replicas"] == 1
    assert condition(world, "Ready") == ("False", "InvalidManifest")
    assert condition(world, "Reconfiguring")[0] == "False"
    assert condition(world, "Stalled") == ("True", "InvalidManifest")
    events = len(world.events)
    del world.objects["Pod", "flow-small-0"]
    world.settle()
    assert [reason for reason, _ in world.events[events:]] == ["ExecutorsMissing", "Recovered"]
    world.change(executors=[{**LARGE, "replicas": 3}, SMALL])
    world.settle()
    assert condition(world, "Ready") == ("True", "Running")
    assert world.objects["StatefulSet", "flow-large"]["spec"]["replicas"] == 3


def test_a_suspended_topology_stays_so_under_an_invalid_manifest(world: World):
    world.change(suspend=True)
    world.settle()
    world.change(suspend=False, executors=[{**LARGE, "cpu": "0m"}, SMALL])
    world.settle()
    assert world.objects["Deployment", "flow-driver"]["spec"]["replicas"] == 0
    assert world.pod_names("executor") == []


def test_status_that_was_lost_is_rebuilt(world: World):
    world.manifest["spec"]["executors"][0].pop("replicas")
    world.change(autoscale={"class": "large", "by": "Operator", "replicas": 1, "maxReplicas": 5})
    world.settle()
    world.scaling = Scaling({"large": 3}, "busy 90 %")
    world.settle()
    world.scaling = None
    before, objects = world.manifest["status"], copy.deepcopy(world.objects)
    del world.manifest["status"]
    decision = world.decide()
    assert decision.steps == ()
    rebuilt = decision.status
    assert {name: rebuilt[name] for name in ("phase", "epoch", "executors", "classes", "policy")} == {
        name: before[name] for name in ("phase", "epoch", "executors", "classes", "policy")
    }
    assert rebuilt["autoscale"]["desired"] == 3
    assert world.objects == objects


def test_foreign_change_is_reverted(world: World):
    world.edit("StatefulSet", "flow-large", "spec.replicas", 7)
    assert reasons(world.decide().steps) == ["apply StatefulSet flow-large: changed by others: spec.replicas"]
    world.settle()
    del world.objects["Service", "flow-driver"]
    assert reasons(world.decide().steps) == ["apply Service flow-driver"]


def test_deleted_configmap_returns_without_a_driver_restart(world: World):
    driver = run_driver_pod(world)
    del world.objects["ConfigMap", "flow-routing"]
    world.settle()
    assert run_driver_pod(world) == driver


def test_secret_that_was_deleted_is_made_again_and_all_pods_know_it(world: World):
    before = {name: world.objects["Pod", name]["metadata"]["uid"] for kind, name in world.objects if kind == "Pod"}
    del world.objects["Secret", "flow-spark"]
    assert reasons(world.decide().steps) == ["create Secret flow-spark and restart 4 pods with it"]
    world.settle()
    assert ("Secret", "flow-spark") in world.objects
    after = {name: body["metadata"]["uid"] for (kind, name), body in world.objects.items() if kind == "Pod"}
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert (
        "Restarting",
        "Secret flow-spark was not found: if it is gone, another one is made, and 4 pods restart with it",
    ) in world.events


def test_topology_that_begins_restarts_no_pod_of_a_former_one(world: World):
    former = {place: body for place, body in world.objects.items() if place[0] == "Pod"}
    new = World(manifest(), objects=former)
    assert "create Secret flow-spark" in reasons(new.decide().steps)


def test_deletion_waits_for_the_driver_and_lets_the_owner_references_do_the_rest(world: World):
    world.manifest["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    world.now = 1_700_000_000.0
    decision = world.decide()
    assert [type(step) for step in decision.steps] == [Patch]
    assert decision.status["intent"]["action"] == "Deleting"
    assert "" not in decision.status["intent"].values(), "the API server refuses it, and with it the deletion"
    assert decision.status["intent"]["steps"] == reasons(decision.steps)
    world.carry_out(decision)
    assert world.objects["Deployment", "flow-driver"]["spec"]["replicas"] == 0
    assert names.FINALIZER in world.manifest["metadata"]["finalizers"]
    assert world.decide().steps == (), "the driver's pod is still there"
    world.work()
    decision = world.decide()
    assert decision.steps == (Finalizer(present=False),)
    assert decision.status["intent"]["steps"] == reasons(decision.steps)
    world.carry_out(decision)
    assert world.manifest["metadata"]["finalizers"] == []
    for (kind, _), body in world.objects.items():
        if kind != "Pod":
            assert body["metadata"]["ownerReferences"][0]["uid"] == "uid-1"


def test_deletion_does_not_wait_for_ever(world: World):
    world.manifest["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    world.now = 1_700_000_000.0 + world.settings.drain_seconds + 1
    decision = world.decide()
    assert decision.steps == (Finalizer(present=False),), "a refused step before it would keep the topology"
    assert decision.status == (world.manifest.get("status") or {}), "so would a refused write"


def test_a_driver_that_refuses_the_topology_says_so(world: World):
    pod = world.objects["Pod", run_driver_pod(world)]
    pod["status"]["conditions"] = []
    terminated = {"exitCode": 2, "message": "spec.sources[0].options.path: no such folder"}
    pod["status"]["containerStatuses"] = [{"name": "driver", "lastState": {"terminated": terminated}}]
    world.carry_out(world.decide())
    assert condition(world, "Ready") == ("False", "DriverRefused")
    assert "no such folder" in dict(world.events)["DriverRefused"]


changes = st.one_of(
    st.fixed_dictionaries({"replicas": st.integers(0, 4), "cpu": st.sampled_from(["200m", "400m", "1"])}).map(
        lambda one: {"executors": [{**LARGE, **one}, SMALL]}
    ),
    st.sampled_from(["fields", "mixed", "dkg"]).map(
        lambda policy: {"operators": [{**COUNTS, "grouping": {"policy": policy, "key": "key"}}]}
    ),
    st.sampled_from(["count", "own.module:Class"]).map(lambda run: {"operators": [{**COUNTS, "run": run}]}),
    st.just({"executors": [LARGE]}),
    st.booleans().map(lambda suspend: {"suspend": suspend}),
    st.sampled_from(["a:1", "b:2"]).map(lambda image: {"image": image}),
)


@settings(max_examples=40)
@given(st.lists(st.tuples(changes, st.integers(0, 8), st.booleans()), min_size=1, max_size=5))
def test_changes_and_operator_kills_end_in_the_same_world(history: list[Any]):
    """Level-triggered: changes over each other, each carried out only so far before the operator is killed, and status
    lost now and then, end where a new topology of the last spec begins. And a settled world asks for nothing."""
    world = World(manifest())
    for change, steps, forget in history:
        world.change(**copy.deepcopy(change))
        world.carry_out(world.decide(), steps=steps)
        if steps % 2:
            world.work()
        if forget:
            del world.manifest["status"]
        world.now += 1
    world.settle()
    assert world.decide().steps == ()
    fresh = World(manifest())
    fresh.manifest["spec"] = copy.deepcopy(world.manifest["spec"])
    fresh.settle()
    assert shape(world) == shape(fresh)


@settings(max_examples=40)
@given(st.lists(st.sets(st.sampled_from(["controllers", "slowly", "kubelet", "forget"])), max_size=12))
def test_nothing_is_called_settled_while_a_pod_is_of_an_older_template(story: list[set[str]]):
    """In any order: the StatefulSet's next pod, its being ready, the loss of status."""
    world = World(manifest())
    world.settle()
    world.change(executors=[{**LARGE, "pod": {"annotations": {"team": "streams"}}}, SMALL])
    for happens in story:
        world.carry_out(world.decide())
        if outdated(world):
            assert condition(world, "Reconfiguring")[0] == "True"
        pods = world.pod_names("executor")
        if "controllers" in happens:
            world.work()
        for pod in world.pod_names("executor"):
            conditions = world.objects["Pod", pod]["status"]["conditions"]
            if "slowly" in happens and pod not in pods:
                conditions.clear()
            if "kubelet" in happens and not conditions:
                conditions.append({"type": "Ready", "status": "True"})
        if "forget" in happens:
            del world.manifest["status"]
        world.now += 1


def outdated(world: World) -> list[str]:
    """Pods that differ from the template of their class."""
    found: list[str] = []
    for pod in world.pod_names("executor"):
        metadata = world.objects["Pod", pod]["metadata"]
        template = world.objects["StatefulSet", pod.rpartition("-")[0]]["spec"]["template"]["metadata"]
        if metadata["annotations"][names.POD_CONTENT] != template["annotations"][names.POD_CONTENT]:
            found.append(pod)
    return found


def test_the_steps_of_a_decision_are_values(world: World):
    world.change(executors=[{**LARGE, "cpu": "600m"}, SMALL])
    assert world.decide().steps == world.decide().steps
    assert any(isinstance(step, Apply) for step in world.decide().steps)
