"""Executors are added at once, and removed when the driver has left them; who decides their number."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from support.operator_world import World, condition, routing
from support.reasons import BUSY

from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import Choice, ChoiceReason
from streamtopology.k8s.decide.answers import Scaling, Silence

COUNTS = {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}
LARGE = {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"}
SMALL = {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"}


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
    world.scaling = Scaling({"large": 5}, BUSY)
    for _ in range(3):
        world.carry_out(world.decide())
        world.work()
    assert world.manifest["status"]["intent"]["action"] == "Scaling"
    world.now += world.settings.drain_seconds * 10
    world.scaling = Scaling({"large": 2}, BUSY)
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
    world.objects["Pod", world.pod_names("driver")[0]]["status"]["conditions"] = []
    world.carry_out(world.decide())
    assert replicas(world, "large") == 2


def test_a_class_that_is_removed_goes_when_it_has_been_left(world: World):
    world.change(executors=[LARGE])
    world.carry_out(world.decide())
    assert ("StatefulSet", "flow-small") in world.objects
    world.settle()
    assert ("StatefulSet", "flow-small") not in world.objects
    assert world.pod_names("executor") == ["flow-large-0", "flow-large-1"]


def test_the_autoscaler_decides_in_status_and_never_in_spec(world: World):
    world.manifest["spec"]["executors"][0].pop("replicas")
    world.change(autoscale={"class": "large", "by": "Operator", "replicas": 2, "maxReplicas": 4})
    world.settle()
    spec = copy.deepcopy(world.manifest["spec"])
    world.scaling = Scaling({"large": 9}, BUSY)
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
    world.scaling = Scaling({"large": 3}, BUSY)
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
    world.scaling = Scaling({"large": 5}, "busy 95 %")
    world.settle()
    assert world.manifest["status"]["autoscale"]["replicas"] == 3


def two_classes(world: World, stop: int = 3) -> None:
    """Both classes scaled by the operator, large from one executor on."""
    for executor in world.manifest["spec"]["executors"]:
        executor.pop("replicas", None)
    bounds = [{"name": "large", "minReplicas": 1, "maxReplicas": 4}, {"name": "small", "maxReplicas": stop}]
    world.change(autoscale={"classes": bounds, "by": "Operator"})
    world.settle()


def desired(world: World) -> dict[str, int]:
    return {one["name"]: one["desired"] for one in world.manifest["status"]["autoscale"]["classes"]}


CHOSEN = replace(
    BUSY,
    replicas=4,
    choice=Choice((("large", 1), ("small", 3)), ChoiceReason.MOST_FOR_PRICE, "small", "large", times=1.8),
)


def test_several_classes_start_with_what_runs_and_scale_by_decision(world: World):
    two_classes(world)
    assert desired(world) == {"large": 2, "small": 1}, "those that run are kept until it is decided"
    assert world.manifest["status"]["autoscale"].keys() == {"classes", "at"}, "no scale subresource"
    world.scaling = Scaling({"large": 1, "small": 9}, CHOSEN)
    world.settle()
    assert desired(world) == {"large": 1, "small": 3}, "within the bounds"
    assert (replicas(world, "large"), replicas(world, "small")) == (1, 3)
    reason = world.manifest["status"]["autoscale"]["reason"]
    assert reason.startswith("1 of class large and 3 of class small: for its price one of small brings 1.8 times what one of")
    assert [message for kind, message in world.events if kind == "Scaling" and reason in message]


def test_choice_among_classes_survives_a_killed_operator_and_a_lost_driver(world: World):
    two_classes(world)
    world.scaling = Scaling({"large": 1, "small": 3}, CHOSEN)
    world.carry_out(world.decide(), steps=0)
    world.events.clear()
    world.scaling = None
    world.settle()
    assert desired(world) == {"large": 1, "small": 3}
    assert (replicas(world, "large"), replicas(world, "small")) == (1, 3)
    assert describe(CHOSEN) in dict(world.events)["Scaling"]
    assert world.decide().steps == ()


def test_class_that_joins_the_choice_keeps_its_executors(world: World):
    two_classes(world)
    world.scaling = Scaling({"large": 1, "small": 3}, CHOSEN)
    world.settle()
    two_classes(world, stop=2)
    assert desired(world) == {"large": 1, "small": 2}, "a bound that changes holds at once"
    scaled = {"class": "small", "by": "Operator", "minReplicas": 1, "maxReplicas": 4}
    world.manifest["spec"]["executors"][0]["replicas"] = 1
    world.change(autoscale=scaled)
    world.scaling = None
    world.settle()
    assert world.manifest["status"]["autoscale"]["desired"] == 2
    assert "classes" not in world.manifest["status"]["autoscale"]


def test_number_of_a_class_is_not_carried_to_another(world: World) -> None:
    world.manifest["spec"]["executors"][0].pop("replicas")
    world.change(autoscale={"class": "large", "by": "Operator", "replicas": 2, "maxReplicas": 5})
    world.settle()
    world.scaling = Scaling({"large": 5}, BUSY)
    world.settle()
    assert (world.manifest["status"]["autoscale"]["class"], replicas(world, "large")) == ("large", 5)
    executors = [{**LARGE, "replicas": 5}, {name: value for name, value in SMALL.items() if name != "replicas"}]
    world.change(autoscale={"class": "small", "by": "Operator", "replicas": 1, "maxReplicas": 5}, executors=executors)
    world.settle()
    status = world.manifest["status"]["autoscale"]
    assert (status["class"], status["desired"], replicas(world, "small")) == ("small", 1, 1)
    assert "reason" not in status, "that was of the other class"
