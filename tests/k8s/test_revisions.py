"""Another version of the operator: which pods are kept as the former one made them, and what brings them up to date."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.operator_world import World, manifest, reasons

from streamtopology.k8s import names
from streamtopology.k8s.decide.steps import Delete, Resize

OLD, NEW = "registry.example/spark:1", "registry.example/spark:2"
COUNTS = {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}
LARGE = {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"}
SMALL = {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"}


@pytest.fixture
def world() -> World:
    """A topology that a former version runs: with other templates and another default image."""
    world = World(manifest())
    world.settle()
    for (kind, _), body in world.objects.items():
        if kind in ("StatefulSet", "Deployment"):
            body["metadata"]["annotations"][names.CONTENT] = "former"
            as_former(body["spec"]["template"])
        elif kind == "Pod":
            as_former(body)
    world.work()  # the name of the driver's pod follows its template
    world.settings = replace(world.settings, image=NEW)
    world.attempts.clear()  # it was another process
    world.events.clear()
    return world


def as_former(pod: dict[str, object]) -> None:
    pod["metadata"]["annotations"][names.POD_CONTENT] = "former"  # type: ignore[index]
    pod["spec"]["containers"][0]["env"].append({"name": "FORMER", "value": "1"})  # type: ignore[index]


def pods(world: World) -> dict[str, str]:
    """Executor pod -> uid."""
    return {name: world.objects["Pod", name]["metadata"]["uid"] for name in world.pod_names("executor")}


def images(world: World) -> set[str]:
    of_all = [*world.pod_names("executor"), *world.pod_names("driver")]
    return {world.objects["Pod", name]["spec"]["containers"][0]["image"] for name in of_all}


def is_former(world: World, pod: str) -> bool:
    return any(one["name"] == "FORMER" for one in world.objects["Pod", pod]["spec"]["containers"][0]["env"])


def waits(world: World) -> bool:
    decision = world.decide()
    settled = next(one for one in decision.status["conditions"] if one["type"] == "Reconfiguring")
    assert decision.waits is ("a former version" in settled["message"])
    return decision.waits


def test_running_pods_are_left_as_they_are(world: World) -> None:
    assert world.decide().steps == ()
    assert waits(world)


def test_another_routing_restarts_nothing(world: World) -> None:
    executors, driver = pods(world), world.pod_names("driver")
    world.change(operators=[{**COUNTS, "grouping": {"policy": "fields", "key": "key"}}])
    world.settle()
    assert (pods(world), world.pod_names("driver")) == (executors, driver)


def test_kept_pods_are_resized_in_place_and_new_ones_are_like_them(world: World) -> None:
    before = pods(world)
    world.change(executors=[{**LARGE, "replicas": 3, "cpu": "600m"}, SMALL])
    steps = world.decide().steps
    assert "set replicas and resources in the former template (StatefulSet flow-large)" in reasons(steps)
    assert [step.pod for step in steps if isinstance(step, Resize)] == ["flow-large-0", "flow-large-1"]
    world.settle()
    assert before.items() <= pods(world).items()
    assert is_former(world, "flow-large-2")
    assert images(world) == {OLD}
    limits = {world.objects["Pod", f"flow-large-{n}"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] for n in range(3)}
    assert limits == {"600m"}


def test_a_class_with_other_pod_settings_is_replaced_and_keeps_the_image(world: World) -> None:
    world.settle()
    before, driver = pods(world), world.pod_names("driver")
    world.change(executors=[{**LARGE, "pod": {"annotations": {"team": "streams"}}}, SMALL])
    world.settle()
    assert [is_former(world, name) for name in sorted(before)] == [False, False, True]
    assert pods(world)["flow-small-0"] == before["flow-small-0"]
    assert world.pod_names("driver") == driver
    assert images(world) == {OLD}, "one topology, one image"


def test_a_driver_that_restarts_takes_all_pods_along(world: World) -> None:
    before = pods(world)
    world.change(operators=[{**COUNTS, "run": "own.module:Class"}])
    world.settle()
    assert not before.items() & pods(world).items()
    assert images(world) == {NEW}
    assert not waits(world)


def test_a_suspended_topology_comes_back_with_present_pods(world: World) -> None:
    world.change(suspend=True)
    world.settle()
    world.change(suspend=False)
    world.settle()
    assert images(world) == {NEW}
    assert not any(is_former(world, name) for name in pods(world))


@pytest.mark.parametrize("killed_after", range(12))
def test_a_killed_operator_is_followed_by_one_that_completes_the_upgrade(world: World, killed_after: int) -> None:
    world.settle()
    world.reached = True
    decision = world.decide()
    assert decision.status["intent"]["action"] == "Upgrading"
    world.carry_out(decision, steps=killed_after)
    world.reached = False
    for _ in range(killed_after):
        world.carry_out(world.decide(), steps=1)
        world.work()
    world.settle()
    assert images(world) == {NEW}
    assert not any(is_former(world, name) for name in pods(world))
    assert [reason for reason, _ in world.events].count("Upgrading") == 1
    assert not waits(world)


def test_a_former_driver_that_knows_all_of_its_manifest_gets_no_other_text(world: World) -> None:
    known = world.objects["ConfigMap", "flow-routing"]["data"]
    known["topology"] = known["topology"].replace('"onRemove":"fail",', "")
    assert not [step for step in reasons(world.decide().steps) if "ConfigMap" in step], "a field with its default is no change"


def test_completion_is_known_where_the_status_is_lost() -> None:
    world = World(manifest(trigger={"availableNow": True}))
    world.settle()
    world.phase = "done"
    world.settle()
    world.phase = "running"
    del world.manifest["status"]
    decision = world.decide()
    assert decision.steps == ()
    assert (decision.status["phase"], decision.status["completed"]) == ("Completed", 1)
    world.change(trigger={"availableNow": True}, onBadTuple="deadLetter")
    world.settle()
    assert world.manifest["status"]["phase"] == "Running"
    assert not [step for step in world.decide().steps if isinstance(step, Delete)]
