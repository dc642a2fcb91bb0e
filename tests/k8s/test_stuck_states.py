"""Conditions are a function of today's observation: what has no cause any more is not said, and what lasts is not repeated.

Every state that somebody has to end (support/stuck_states.py) lasts for a virtual hour, or a part of it, and is ended.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from support.depth import examples
from support.fake_api import NAME, FakeCluster
from support.operator_world import manifest
from support.stuck_states import PASSING, STATES, Stage, Stuck
from support.virtual_operator import VirtualRelease
from support.virtual_time import run_virtual

from streamtopology.contract.conditions import BalancedReason, DegradedReason, MutatedReason, ReadyReason, ReconfiguringReason

HOUR = 3600.0
# How long a state lasts. All delays have grown to their longest after a few minutes.
LASTS = examples(gate=20, long=60) * 60.0
# Until a state is said: an executor's pod has five minutes to start.
SAID_SECONDS = 900.0
# What is refused or taken back is written once a minute at last, for each object (attempts.LONGEST_DELAY); what has no
# answer every quarter of a minute (reconciler.AWAY_SECONDS), as nobody tells when there is one again. The first delays
# are shorter.
WRITES_OF_AN_OBJECT, WRITES_UNANSWERED = LASTS / 60 + 6, LASTS / 15 + 6
EVENTS = LASTS / 60


def conditions(cluster: FakeCluster) -> dict[str, tuple[str, str]]:
    status = (cluster.topology or {}).get("status") or {}
    return {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions") or ()}


async def until(holds: Callable[[], bool], seconds: float, what: str, cluster: FakeCluster) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.25)
    except TimeoutError:
        raise AssertionError(f"{what}, but {conditions(cluster)}") from None


async def play(stuck: Stuck) -> None:
    cluster = FakeCluster()
    running = asyncio.create_task(cluster.run())
    stage = Stage(cluster, VirtualRelease(cluster, "operators"))
    stage.release.start()
    kind, reason = stuck.says
    try:
        cluster.create(manifest(NAME, **stuck.spec))
        await until(lambda: (cluster.topology or {}).get("status", {}).get("phase") == "Running", SAID_SECONDS, "runs", cluster)
        await asyncio.sleep(60.0)
        before = conditions(cluster)
        stuck.begins(stage)
        await until(lambda: conditions(cluster)[kind][1] == reason, SAID_SECONDS, f"{reason} is said", cluster)
        written, events = len(cluster.writes), len(cluster.events)
        await asyncio.sleep(LASTS)
        writes = Counter(call.split("/status ")[0] for _, _, call in cluster.writes[written:])
        events = Counter(cluster.events[events:])
        stuck.ends(stage)
        stage.all_is_well()
        await until(lambda: conditions(cluster) == before, HOUR, f"after {stuck.name} all is as before, {before}", cluster)
        most = WRITES_UNANSWERED if reason == DegradedReason.API_FAILING else WRITES_OF_AN_OBJECT
        assert max(writes.values(), default=0) <= most, writes
        assert events.total() <= EVENTS, events
        assert stage.release.mistakes == 0
    finally:
        stage.quieten()
        await stage.release.stop()
        running.cancel()


# The others are like one of these.
FIRST = {
    "invalid manifest", "image pull failure", "unschedulable pods", "quota", "resize refused, no node for others",
    "missing right", "contested", "refused epoch", "no step comes through", "half of the calls fail",
}  # fmt: skip
CASES = [pytest.param(one, id=one.name, marks=() if one.name in FIRST else pytest.mark.long) for one in STATES]


@pytest.mark.deep
@pytest.mark.parametrize("stuck", CASES)
def test_state_is_said_without_many_writes_and_not_after_its_end(stuck: Stuck) -> None:
    run_virtual(play(stuck))


async def edit_for_a_minute() -> None:
    """A class comes and goes with each edit, so the operator makes and removes the same object over and over."""
    cluster = FakeCluster()
    running = asyncio.create_task(cluster.run())
    release = VirtualRelease(cluster, "operators")
    release.start()
    try:
        cluster.create(manifest(NAME))
        await until(lambda: (cluster.topology or {}).get("status", {}).get("phase") == "Running", SAID_SECONDS, "runs", cluster)
        await asyncio.sleep(60.0)
        before = conditions(cluster)
        for edit in range(90):
            classes = [{"name": "large", "replicas": 2}, {"name": f"small{edit % 2}", "replicas": 1}]
            cluster.edit({"spec": {"executors": classes, "trigger": {"interval": f"{edit + 1}s"}}})
            await asyncio.sleep(0.7)
            assert conditions(cluster)["Degraded"][1] != DegradedReason.CONTESTED, f"edit {edit}"
        await until(lambda: conditions(cluster) == before, 60.0, f"all is as before, {before}", cluster)
    finally:
        await release.stop()
        running.cancel()


def test_edits_of_the_user_are_no_fight_and_the_last_one_is_done_in_a_minute() -> None:
    run_virtual(edit_for_a_minute())


def test_every_reason_is_of_a_state_or_passes() -> None:
    every = {*ReadyReason, *BalancedReason, *ReconfiguringReason, *DegradedReason, *MutatedReason}
    assert {reason for _, reason in (stuck.says for stuck in STATES)} == every - PASSING
