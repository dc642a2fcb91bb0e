"""Decisions: what each change of a topology leads to, and that they are level-triggered."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operator_world import World, manifest, reasons, shape
from support.reasons import BUSY, REBALANCED

from streamtopology.contract.reason_text import describe
from streamtopology.contract.stats import Refusal
from streamtopology.k8s import names
from streamtopology.k8s.decide.answers import Judgement, Scaling, Silence
from streamtopology.k8s.decide.steps import Apply, Delete, Finalizer, MakeSecret, Patch, Resize

COUNTS = {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}
LARGE = {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"}
SMALL = {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"}


@pytest.fixture
def world() -> World:
    """A topology that runs and has settled."""
    world = World(manifest())
    world.settle()
    world.events.clear()
    return world


def routing(world: World) -> dict[str, Any]:
    return world.objects["ConfigMap", "flow-routing"]["data"]


def condition(world: World, kind: str) -> tuple[str, str]:
    return next((one["status"], one["reason"]) for one in world.manifest["status"]["conditions"] if one["type"] == kind)


def run_driver_pod(world: World) -> str:
    return world.pod_names("driver")[0]


def proposal(number: int, moved_bytes: int = 1000) -> Judgement:
    return Judgement("reroute", REBALANCED, 1, number, b"packed", ("counts",), 0.2, 0.4, 10, moved_bytes)


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


def test_more_executors_are_started_at_once(world: World):
    world.change(executors=[{**LARGE, "replicas": 4}, SMALL])
    world.carry_out(world.decide())
    assert world.objects["StatefulSet", "flow-large"]["spec"]["replicas"] == 4
    assert json.loads(routing(world)["topology"])["spec"]["executors"][0]["replicas"] == 4


def test_scaling_ends_when_executors_have_joined_not_when_pods_are_ready(world: World):
    world.change(executors=[{**LARGE, "replicas": 3}, SMALL])
    world.joining = 1
    for _ in range(3):
        world.carry_out(world.decide())
        world.work()
    assert condition(world, "Reconfiguring") == ("True", "Scaling")
    world.joining = 0
    world.settle()
    assert condition(world, "Reconfiguring") == ("False", "Settled")


def test_a_scale_out_that_finds_no_room_says_so(world: World):
    world.change(executors=[{**LARGE, "replicas": 3}, SMALL])
    world.carry_out(world.decide())
    world.work()
    no_room = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
    world.objects["Pod", "flow-large-2"]["status"] = {"phase": "Pending", "conditions": [no_room]}
    reported = next(one for one in world.decide().status["conditions"] if one["type"] == "Reconfiguring")
    assert reported["reason"] == "Scaling"
    assert reported["message"] == "3 of 4 executors are ready; no node takes flow-large-2: 0/2 nodes are available"


def test_before_the_first_batch_executors_count_when_the_driver_has_admitted_them(world: World):
    assert world.driver is not None
    world.driver.epoch, world.joining = None, 1
    assert world.decide().status["executors"]["summary"] == "1/3", "one large one"
    world.joining = 0
    assert world.decide().status["executors"]["summary"] == "3/3"


def test_fewer_executors_only_when_the_driver_has_left_them(world: World):
    world.change(executors=[{**LARGE, "replicas": 1}, SMALL])
    world.carry_out(world.decide())
    assert json.loads(routing(world)["topology"])["spec"]["executors"][0]["replicas"] == 1
    assert world.objects["StatefulSet", "flow-large"]["spec"]["replicas"] == 2, "the driver does not know yet"
    assert world.decide().status["intent"]["action"] == "Scaling"
    world.work()  # the driver takes it
    world.settle()
    assert world.objects["StatefulSet", "flow-large"]["spec"]["replicas"] == 1
    assert world.pod_names("executor") == ["flow-large-0", "flow-small-0"]


def test_a_driver_that_never_leaves_them_is_waited_for_so_long_and_no_longer(world: World):
    world.change(executors=[{**LARGE, "replicas": 1}, SMALL])
    world.carry_out(world.decide())
    world.silence = Silence("no answer", world.now, 5)
    world.now += world.settings.drain_seconds - 1
    world.carry_out(world.decide())
    assert world.objects["StatefulSet", "flow-large"]["spec"]["replicas"] == 2
    world.now += 2
    world.carry_out(world.decide())
    assert world.objects["StatefulSet", "flow-large"]["spec"]["replicas"] == 1


def test_drain_time_starts_when_the_driver_is_notified(world: World):
    world.joining = 1
    world.change(executors=[{**LARGE, "replicas": 3}, SMALL])
    world.carry_out(world.decide())
    world.work()
    world.now += world.settings.drain_seconds * 10
    world.change(executors=[{**LARGE, "replicas": 1}, SMALL])
    world.carry_out(world.decide())
    assert world.objects["StatefulSet", "flow-large"]["spec"]["replicas"] == 3
    world.joining = 0
    world.settle()
    assert world.objects["StatefulSet", "flow-large"]["spec"]["replicas"] == 1


def replicas(world: World, class_name: str) -> int:
    return world.objects["StatefulSet", f"flow-{class_name}"]["spec"]["replicas"]


@pytest.mark.parametrize("absent", ["large-1", "large-2"])
def test_an_executor_leaves_once_the_driver_counts_on_it_no_more(world: World, absent: str):
    """Without large-1 the driver's slots are large-0 and large-2, which has state; large-2 itself may still come."""
    world.change(executors=[{**LARGE, "replicas": 3}, SMALL])
    world.missing = {absent}
    for _ in range(3):
        world.carry_out(world.decide())
        world.work()
    world.change(executors=[{**LARGE, "replicas": 2}, SMALL])
    world.carry_out(world.decide())
    world.carry_out(world.decide())
    assert replicas(world, "large") == 3, "the driver has large-2, or may admit it with the next batch"
    world.work()
    world.carry_out(world.decide())
    assert replicas(world, "large") == 2


def test_each_decision_of_an_autoscaler_gives_executors_all_their_time_to_hand_over(world: World):
    world.manifest["spec"]["executors"][0].pop("replicas")
    world.change(autoscale={"class": "large", "by": "Operator", "replicas": 4, "maxReplicas": 5})
    world.settle()
    world.joining = 1
    world.scaling = Scaling(5, BUSY)
    for _ in range(3):
        world.carry_out(world.decide())
        world.work()
    assert world.manifest["status"]["intent"]["action"] == "Scaling"
    world.now += world.settings.drain_seconds * 10
    world.scaling = Scaling(2, BUSY)
    world.carry_out(world.decide())
    world.silence = Silence("no answer", world.now, 5)
    world.now += world.settings.drain_seconds - 1
    world.carry_out(world.decide())
    assert replicas(world, "large") == 5
    assert world.manifest["status"]["intent"]["target"] == "2 large, 1 small"
    world.now += 2
    world.carry_out(world.decide())
    assert replicas(world, "large") == 2


def test_a_driver_that_is_not_ready_for_a_moment_still_has_state_on_its_executors(world: World):
    world.change(executors=[{**LARGE, "replicas": 1}, SMALL])
    world.carry_out(world.decide())
    world.objects["Pod", run_driver_pod(world)]["status"]["conditions"] = []
    world.carry_out(world.decide())
    assert replicas(world, "large") == 2


def test_a_driver_of_the_release_before_is_believed_by_its_generation(world: World):
    world.says_replicas = False
    world.change(executors=[{**LARGE, "replicas": 1}, SMALL])
    world.carry_out(world.decide())
    world.carry_out(world.decide())
    assert replicas(world, "large") == 2
    world.settle()
    assert replicas(world, "large") == 1


def test_a_class_that_is_removed_goes_when_it_has_been_left(world: World):
    world.change(executors=[LARGE])
    world.carry_out(world.decide())
    assert ("StatefulSet", "flow-small") in world.objects
    world.settle()
    assert ("StatefulSet", "flow-small") not in world.objects
    assert world.pod_names("executor") == ["flow-large-0", "flow-large-1"]


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


def test_a_proposal_is_published_once_and_waited_for(world: World):
    assert world.driver is not None
    number = world.driver.newest + 1
    world.judgement = proposal(number)
    assert reasons(world.decide().steps) == ["apply ConfigMap flow-routing"]
    world.carry_out(world.decide())
    assert routing(world)["epochNumber"] == str(number)
    assert routing(world)["epochState"] == "ready"
    assert world.decide().steps == ()
    assert world.decide().target.request.may_judge is False
    world.settle()
    assert world.driver.epoch == number
    assert [reason for reason, _ in world.events if reason == "Rerouting"] == ["Rerouting"]


def test_a_proposal_for_another_generation_is_not_published(world: World):
    world.change(rebalance={"interval": "3s"})
    world.settle()
    world.judgement = proposal(world.driver.newest + 1)
    assert world.decide().steps == ()


def test_large_state_is_copied_ahead_by_a_job(world: World):
    number = world.driver.newest + 1
    world.judgement = proposal(number, moved_bytes=2**30)
    world.carry_out(world.decide())
    assert routing(world)["epochState"] == "prepared"
    job = world.objects["Job", f"flow-migrate-{number}"]
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][-1] == str(number)
    world.work()
    assert world.driver.epoch == number - 1
    is_complete(world, number)
    world.settle()
    assert world.driver.epoch == number


def migrate_ahead(world: World) -> int:
    """The number of an epoch whose migration Job has been made, and that nobody asks for any more."""
    number = world.driver.newest + 1
    world.judgement = proposal(number, moved_bytes=2**30)
    world.carry_out(world.decide())
    world.judgement = None
    return number


def is_complete(world: World, number: int) -> None:
    """The epoch's migration Job has done."""
    world.objects["Job", f"flow-migrate-{number}"]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}


def test_a_migration_that_fails_withdraws_its_epoch(world: World):
    number = migrate_ahead(world)
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}
    world.objects["Job", f"flow-migrate-{number}"]["status"] = {"conditions": [failed]}
    world.settle()
    assert "epochNumber" not in routing(world)
    assert ("Job", f"flow-migrate-{number}") not in world.objects
    assert "MigrationFailed" in dict(world.events)


def test_state_moves_with_the_batches_after_three_failed_migrations(world: World):
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}
    for _ in range(3):
        number = migrate_ahead(world)
        assert routing(world)["epochState"] == "prepared"
        world.objects["Job", f"flow-migrate-{number}"]["status"] = {"conditions": [failed]}
        world.settle()
    assert "state moves in portions" in dict(world.events)["MigrationFailed"]
    number = migrate_ahead(world)
    assert routing(world)["epochState"] == "ready"
    assert ("Job", f"flow-migrate-{number}") not in world.objects
    world.settle()
    world.change(migration={"resources": {"memory": "2Gi"}})
    world.settle()
    number = world.driver.newest + 1
    world.judgement = replace(proposal(number, moved_bytes=2**30), generation=2)
    world.carry_out(world.decide())
    assert routing(world)["epochState"] == "prepared", "the manifest may have mended it"
    limits = world.objects["Job", f"flow-migrate-{number}"]["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert limits == {"requests": {"cpu": "100m", "memory": "2Gi"}, "limits": {"cpu": "500m", "memory": "2Gi"}}


def test_a_successful_migration_forgets_those_that_failed(world: World):
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}
    number = migrate_ahead(world)
    world.objects["Job", f"flow-migrate-{number}"]["status"] = {"conditions": [failed]}
    world.settle()
    assert routing(world)["failedMigrations"] == "1"
    is_complete(world, migrate_ahead(world))
    world.settle()
    assert "failedMigrations" not in routing(world)


def test_a_migration_is_stopped_by_an_operator_killed_as_it_gave_up_the_epoch(world: World):
    number = migrate_ahead(world)
    world.change(rebalance={"tolerance": 0.3})
    world.carry_out(world.decide(), steps=1)
    assert "epochNumber" not in routing(world)
    world.settle()
    assert ("Job", f"flow-migrate-{number}") not in world.objects


def test_a_migration_that_has_done_is_no_migration_of_the_next_epoch_of_that_number(world: World):
    number = migrate_ahead(world)
    is_complete(world, number)
    world.change(migration={"threshold": "1Mi"})
    world.settle()
    assert world.driver.newest == number - 1
    assert ("Job", f"flow-migrate-{number}") not in world.objects


def test_the_migration_of_an_epoch_that_was_active_stays_to_be_looked_at(world: World):
    number = migrate_ahead(world)
    is_complete(world, number)
    world.settle()
    world.change(operators=[{**COUNTS, "run": "own.module:Class"}])
    world.settle()
    assert ("Job", f"flow-migrate-{number}") in world.objects


def test_an_epoch_that_the_driver_refuses_is_withdrawn(world: World):
    number = world.driver.newest + 1
    world.judgement, world.refused = proposal(number), Refusal(number, None, "another generation")
    world.carry_out(world.decide())
    world.judgement = None
    world.settle()
    assert "epochNumber" not in routing(world)
    (reported,) = [message for reason, message in world.events if reason == "EpochRefused"]
    assert world.refused.why in reported


def test_a_recommendation_is_reported_and_left(world: World):
    world.judgement = Judgement("recommend", REBALANCED, 1, 9, b"", ("counts",), 0.2, 0.4, 10, 1000)
    decision = world.decide()
    assert decision.steps == ()
    assert decision.status["recommendation"]["stages"] == ["counts"]
    assert "saves 200 ms a batch" in decision.status["recommendation"]["text"]
    world.carry_out(decision)
    assert condition(world, "Balanced") == ("False", "Recommended")
    assert [event.reason for event in world.decide().events] == [], "the same advice once"


def test_status_that_was_lost_is_rebuilt(world: World):
    world.manifest["spec"]["executors"][0].pop("replicas")
    world.change(autoscale={"class": "large", "by": "Operator", "replicas": 1, "maxReplicas": 5})
    world.settle()
    world.scaling = Scaling(3, "busy 90 %")
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


def test_the_autoscaler_decides_in_status_and_never_in_spec(world: World):
    world.manifest["spec"]["executors"][0].pop("replicas")
    world.change(autoscale={"class": "large", "by": "Operator", "replicas": 2, "maxReplicas": 4})
    world.settle()
    spec = copy.deepcopy(world.manifest["spec"])
    world.scaling = Scaling(9, BUSY)
    world.settle()
    reported = [message for reason, message in world.events if reason == "Scaling"]
    assert len(reported) == 1
    assert reported[0].endswith(f"executor class large replicas: 2 -> 4 (generation 2); {describe(BUSY)}")
    status = world.manifest["status"]["autoscale"]
    assert (status["desired"], status["replicas"]) == (4, 4), "within the bounds"
    assert status["selector"].endswith("streamtopology.dev/class=large")
    assert status["reason"] == describe(BUSY)
    assert world.manifest["spec"] == spec


def test_scaling_reason_survives_operator_kill_and_is_reported_once(world: World):
    world.manifest["spec"]["executors"][0].pop("replicas")
    world.change(autoscale={"class": "large", "by": "Operator", "replicas": 2, "maxReplicas": 4})
    world.settle()
    world.scaling = Scaling(3, BUSY)
    world.carry_out(world.decide(), steps=0)
    world.events.clear()
    world.scaling = None
    world.settle()
    assert describe(BUSY) in dict(world.events)["Scaling"]
    world.change(operators=[{**COUNTS, "grouping": {"policy": "fields", "key": "key"}}])
    world.settle()
    assert dict(world.events)["Routing"].endswith("(generation 3)")


def test_kubectl_scale_is_a_change_of_the_class(world: World):
    world.manifest["spec"]["executors"][0].pop("replicas")
    world.change(autoscale={"class": "large", "by": "External", "replicas": 2})
    world.settle()
    world.change(autoscale={"class": "large", "by": "External", "replicas": 5})
    world.settle()
    assert len(world.pod_names("executor")) == 6
    assert world.manifest["status"]["autoscale"]["replicas"] == 5


def test_a_bound_that_holds_what_was_asked_for_is_reported(world: World):
    world.manifest["spec"]["executors"][0].pop("replicas")
    world.change(autoscale={"class": "large", "by": "External", "replicas": 9, "maxReplicas": 3})
    world.settle()
    status = world.manifest["status"]["autoscale"]
    assert (status["replicas"], status["reason"]) == (3, "9 replicas were asked for; maxReplicas is 3")


def test_nobody_scales_where_nobody_may(world: World):
    world.manifest["spec"]["executors"][0].pop("replicas")
    world.change(autoscale={"class": "large", "by": "External", "replicas": 3})
    world.settle()
    world.change(autoscale={"class": "large", "by": "Nobody", "replicas": 1})
    world.scaling = Scaling(5, "busy 95 %")
    world.settle()
    assert world.manifest["status"]["autoscale"]["replicas"] == 3


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
