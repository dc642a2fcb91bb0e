"""Every condition that a person may meet: what there is to see, and the reason and the sentence that it leads to."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from support.operator_world import World, manifest
from support.reasons import REBALANCED

from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import Hold, HoldReason
from streamtopology.contract.stats import DriverRefusal, LostAttempts, SlotMemory
from streamtopology.k8s.decide.answers import Judgement, Silence
from streamtopology.k8s.settings import Settings

Arrange = Callable[[World], None]

NOT_DUE = Hold(HoldReason.NOT_DUE, due_seconds=3.0)


def driver_pod(world: World) -> dict[str, Any]:
    """The status of the driver's pod, as Kubernetes reports it."""
    return world.objects["Pod", world.pod_names("driver")[0]]["status"]


def executor_pods(world: World) -> list[dict[str, Any]]:
    return [world.objects["Pod", name]["status"] for name in world.pod_names("executor")]


def waits(container: str, reason: str, message: str) -> dict[str, Any]:
    """The status of a pod whose container does not run yet, or not again."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "conditions": [], "containerStatuses": [{"name": container, "state": state}]}


def no_image(world: World) -> None:
    world.settings = Settings(image=None)


def nothing_is_made(world: World) -> None:
    world.objects.clear()
    world.driver = None


def the_driver_is_not_ready(world: World) -> None:
    driver_pod(world)["conditions"] = []
    world.phase = "waiting for executors, 1 of 3 there"


def no_batch(world: World) -> None:
    assert world.driver is not None
    world.driver.epoch = None


def no_node_for_the_driver(world: World) -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: insufficient memory"}
    world.objects["Pod", world.pod_names("driver")[0]]["status"] = {"phase": "Pending", "conditions": [unscheduled]}


def the_image_cannot_be_pulled(world: World) -> None:
    pod = world.objects["Pod", world.pod_names("driver")[0]]
    pod["status"] = waits("driver", "ImagePullBackOff", "manifest unknown")


def the_driver_ended(exit_code: int, message: str) -> Arrange:
    def arrange(world: World) -> None:
        terminated = {"exitCode": exit_code, "message": message}
        driver_pod(world)["conditions"] = []
        driver_pod(world)["containerStatuses"] = [{"name": "driver", "lastState": {"terminated": terminated}}]

    return arrange


def the_driver_cannot_be_made(world: World) -> None:
    pod = world.objects["Pod", world.pod_names("driver")[0]]
    pod["status"] = waits("driver", "CreateContainerConfigError", 'secret "s3" not found')


def the_driver_does_not_answer(world: World) -> None:
    world.silence = Silence("no route to host", world.now, 3)


def no_executor_is_there(world: World) -> None:
    for name in world.pod_names("executor"):
        world.objects["Pod", name]["status"] = waits("executor", "ErrImagePull", "not found")


def one_executor_is_missing(world: World) -> None:
    world.objects["Pod", "flow-large-1"]["status"] = {
        "phase": "Running", "conditions": [],
        "containerStatuses": [{"name": "executor", "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}],
    }  # fmt: skip


def a_resize(kind: str, reason: str, message: str) -> Arrange:
    def arrange(world: World) -> None:
        reported = {"type": kind, "status": "True", "reason": reason, "message": message}
        world.objects["Pod", "flow-large-0"]["status"]["conditions"].append(reported)

    return arrange


def state_fills_two_executors(world: World) -> None:
    world.memory = (SlotMemory(0, 200 * 2**20, 250 * 2**20), SlotMemory(1, 10, 250), SlotMemory(2, 240, 250))


def a_batch_is_lost(times: int) -> Arrange:
    def arrange(world: World) -> None:
        world.lost = LostAttempts(8, times, "executor large-0 could not reach executor small-0")

    return arrange


def the_topology_is_refused(world: World) -> None:
    world.refused = DriverRefusal(None, 2, "operator 'counts' has no column 'key'")


def an_epoch(packed: bytes) -> Arrange:
    """The controller proposes one and the operator publishes it, if it can."""

    def arrange(world: World) -> None:
        assert world.driver is not None
        world.judgement = Judgement("reroute", REBALANCED, 1, world.driver.newest + 1, packed, ("counts",))
        world.carry_out(world.decide())

    return arrange


def an_epoch_is_left_aside(world: World) -> None:
    an_epoch(b"packed")(world)
    world.now += 61


def judged(imbalance: float | None, verdict: Hold | None, mode: str = "Auto") -> Arrange:
    """The controller's judgement of the last batches."""

    def arrange(world: World) -> None:
        world.change(rebalance={"mode": mode, "tolerance": 0.1})
        world.settle()
        world.imbalance = 0.3
        world.judgement = Judgement("hold", NOT_DUE, 1, verdict=verdict, imbalance=imbalance)

    return arrange


NOT_WORTH_IT = Hold(HoldReason.NOT_WORTH_COST, gain_seconds=0.012, batches=30, cost_seconds=0.42)
FULL = Hold(HoldReason.NO_ROOM, stages=("counts",), slot=2, state_bytes=3e8, free_bytes=2e7)
NO_BETTER = Hold(HoldReason.NO_BETTER_PLAN, stages=("counts",))
BALANCED = Hold(HoldReason.BALANCED, imbalance=0.05, tolerance=0.1)
NO_ROOM = "node didn't have enough capacity: cpu"

CASES: list[tuple[Arrange, str, str, str]] = [
    (no_image, "Ready", "False/NoImage", "set spec.image, or let the operator run with --image"),
    (nothing_is_made, "Ready", "False/DriverStarting", "the driver's pod has not been created yet"),
    (the_driver_is_not_ready, "Ready", "False/DriverStarting", "waiting for executors, 1 of 3 there"),
    (no_batch, "Ready", "False/DriverStarting", "no batch has been committed yet (running)"),
    (no_node_for_the_driver, "Ready", "False/DriverNotScheduled", "0/3 nodes are available: insufficient memory"),
    (the_image_cannot_be_pulled, "Ready", "False/ImageUnavailable", "ImagePullBackOff: manifest unknown"),
    (the_driver_ended(1, "MemoryError"), "Ready", "False/DriverFailed", "failed and is restarted: MemoryError"),
    (the_driver_cannot_be_made, "Ready", "False/DriverFailed", 'CreateContainerConfigError: secret "s3" not found'),
    (the_driver_ended(2, "no such folder"), "Ready", "False/DriverRefused", "refuses the topology: no such folder"),
    (the_driver_does_not_answer, "Ready", "False/DriverSilent", "its /stats cannot be read: no route to host"),
    (no_executor_is_there, "Ready", "False/ExecutorsStarting", "0 of 3 executors are ready; flow-large-0: ErrImagePull"),
    (nothing_is_made, "Balanced", "Unknown/NotMeasured", "no batch has been measured yet"),
    (judged(0.05, BALANCED), "Balanced", "True/WithinTolerance", "imbalance 5 %, within the tolerance of 10 %"),
    (judged(0.25, None), "Balanced", "False/OutOfTolerance", "imbalance 25 %, beyond the tolerance of 10 %"),
    (
        judged(0.25, NOT_WORTH_IT),
        "Balanced",
        "False/NotWorthIt",
        f"a better routing is {describe(NOT_WORTH_IT)}",
    ),
    (judged(0.25, NO_BETTER), "Balanced", "False/NoBetterPlan", f"imbalance 25 %: {describe(NO_BETTER)}; status.boundBy"),
    (
        judged(0.25, FULL),
        "Balanced",
        "False/NoRoom",
        "imbalance 25 %: a better routing of counts would put 300 MB more of state on executor slot 2, whose memory has room "
        "for 20.0 MB",
    ),
    (judged(None, None, "Off"), "Balanced", "False/RebalanceOff", "imbalance 30 %, beyond the tolerance of 10 %"),
    (one_executor_is_missing, "Degraded", "True/ExecutorsMissing", "not ready; flow-large-1 ended with 137: OOMKilled"),
    (a_resize("PodResizePending", "Deferred", NO_ROOM), "Degraded", "True/ResizeDeferred", NO_ROOM),
    (a_resize("PodResizePending", "Infeasible", NO_ROOM), "Degraded", "True/ResizeInfeasible", NO_ROOM),
    (a_resize("PodResizeInProgress", "Error", "cgroup: no"), "Degraded", "True/ResizeError", "flow-large-0: cgroup: no"),
    (
        state_fills_two_executors,
        "Degraded",
        "True/MemoryCrowded",
        "the state of executor small-0 takes 90 % or more of what its memory has room for beside all else (and 1 more)",
    ),
    (a_batch_is_lost(2), "Degraded", "False/AsExpected", "everything is as it should be"),
    (
        a_batch_is_lost(3),
        "Degraded",
        "True/BatchLost",
        "batch 8 was lost 3 times and is tried again; the last time because executor large-0 could not reach executor small-0",
    ),
    (the_topology_is_refused, "Degraded", "True/TopologyRefused", "keeps its former topology: operator 'counts' has no column"),
    (an_epoch_is_left_aside, "Degraded", "True/EpochNotTaken", "epoch 2 is ready, the driver still runs under 1"),
    (an_epoch(random.Random(1).randbytes(900_000)), "Degraded", "True/RoutingTooLarge", "lower rebalance.maxTableEntries"),
]


@pytest.mark.parametrize(("arrange", "kind", "reached", "message"), CASES, ids=[case[2] for case in CASES])
def test_condition_has_a_reason_and_a_sentence(arrange: Arrange, kind: str, reached: str, message: str):
    world = World(manifest())
    world.settle()
    arrange(world)
    reported = next(one for one in world.decide().status["conditions"] if one["type"] == kind)
    assert f"{reported['status']}/{reported['reason']}" == reached
    assert message in reported["message"]


@pytest.mark.parametrize("verdict", [NOT_WORTH_IT, NO_BETTER])
def test_that_the_routing_is_left_as_it_is_is_an_event_with_the_figures_once(verdict: Hold):
    world = World(manifest())
    world.settle()
    world.events.clear()
    judged(0.25, verdict)(world)
    world.settle()
    judged(0.24, verdict)(world)
    world.settle()
    reported = [message for reason, message in world.events if reason in ("NotWorthIt", "NoBetterPlan")]
    assert len(reported) == 1, "figures alone cause no event"
    assert describe(verdict) in reported[0]
    assert "imbalance 25 %" in reported[0]


def test_an_epoch_that_is_too_large_is_reported_once():
    world = World(manifest())
    world.settle()
    world.events.clear()
    an_epoch(random.Random(1).randbytes(900_000))(world)
    world.settle()
    world.settle()
    assert [reason for reason, _ in world.events] == ["RoutingTooLarge"]


def test_an_executor_is_crowded_until_its_state_has_clearly_room_and_says_so_in_round_figures():
    world = World(manifest())
    world.settle()

    def degraded(state: int) -> tuple[str, str]:
        world.memory = (SlotMemory(0, state, 100),)
        world.settle()
        found = next(one for one in world.decide().status["conditions"] if one["type"] == "Degraded")
        return found["reason"], found["message"]

    assert degraded(69)[0] == "AsExpected"
    reason, message = degraded(71)
    assert reason == "MemoryCrowded"
    assert degraded(79) == (reason, message), "figures of every batch would be written again and again"
    assert degraded(61)[0] == "MemoryCrowded"
    assert degraded(59)[0] == "AsExpected"
    assert degraded(69)[0] == "AsExpected"
