"""Every policy with a planner re-routes a running stream as it promises, and its results stay those of a plain count.

Two runs, each with all its policies side by side, until all have moved state; then the stream drifts, until they have
again. A test looks at what one policy did.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from streamtopology.contract.stats import Rerouting
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.observe.figures import locality
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.topology import groupings

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from collections.abc import Callable

    from support.topologies import Runner

from support.feeding import Feed
from support.manifests import counting, counts_in, files, manifest, memory_sink

pytest_plugins = ("support.topologies",)

# Policies before state with their options; `dkg`'s suit unequal executors.
LOOKED_UP = {"mixed": {}, "mintable": {}, "minmig": {}, "simple": {}, "readj": {}, "kip": {}, "dkg": {"theta": 0.02, "mu": 64}}
LOCAL = ("locality", "locality-offline", "locality-worst")
COSTLY = {"costPerTuple": "10us"}


@dataclass(frozen=True)
class Ran:
    """A run that is over: its history, its checkpoint, the rows of each key, and the first batch that drifted."""

    history: History
    checkpoint: Checkpoint
    expected: Counter[int]
    drifts_at: int


def changes(history: History, operator: str) -> list[Rerouting]:
    """The re-routings of an operator in a history."""
    return [change for change in history.reconfigurations if change.operator == operator]


def moves(history: History, operator: str) -> list[int]:
    """The batches in which an operator's state began to move."""
    return [change.batch for change in changes(history, operator) if change.keys_moved]


def run(
    runner: Runner,
    name: str,
    operators: list[dict[str, Any]],
    sinks: dict[str, str],
    answered: Callable[[History, int], bool],
) -> Ran:
    """Run these operators until they have answered the stream, then, with other keys frequent, until they have again.

    sinks: sink -> the operator that it shows; answered: have all, later than with that batch?
    """
    feed = Feed(runner.folder / "rows", 6_000)
    source = files(feed.folder) | {"select": ["key", "value", "(key + 2) % 60 AS grp"]}
    shown = [memory_sink(sink, operator) for sink, operator in sinks.items()]
    rebalance = {"interval": "1s", "tolerance": 0.02}
    with runner.running(manifest(name, [source], operators, shown, trigger={}, rebalance=rebalance)) as running:
        history = running.history
        feed.until(running, lambda: answered(history, 0), waiting=1)
        drifts_at = history.batches[-1].number + 1
        feed.until(running, lambda: answered(history, drifts_at + 1), first=1001, waiting=1)
    return Ran(history, Checkpoint.attach(str(runner.folder / name / "checkpoint")), feed.expected, drifts_at)


@pytest.fixture(scope="module")
def by_key(new_runner: Callable[[str], Runner]) -> Ran:
    """One operator for each policy, all of them counting the same keys."""
    policies = {**LOOKED_UP, "consistent": {}}
    operators = [
        counting(policy, grouping={"policy": policy, "key": "key", "options": options}, **{"with": COSTLY})
        for policy, options in policies.items()
    ]
    sinks = {f"{policy}-counts": policy for policy in policies}

    def moved_since(history: History, batch: int) -> bool:
        workers = changes(history, "consistent.partial")
        return bool(workers) and all(moves(history, policy)[-1:] > [batch] for policy in LOOKED_UP)

    return run(new_runner("by-key"), "by-key", operators, sinks, moved_since)


@pytest.fixture(scope="module")
def chained(new_runner: Callable[[str], Runner]) -> Ran:
    """For each policy two operators, by key and then by a group that each key is always in."""
    operators: list[dict[str, Any]] = []
    for policy in LOCAL:
        operators.append(counting(f"{policy}-first", policy, **{"with": {"emit": "tuples", **COSTLY}}))
        grouping = {"policy": policy, "key": "grp"}
        operators.append(counting(f"{policy}-second", of=f"{policy}-first", grouping=grouping, **{"with": COSTLY}))
    sinks = {f"{policy}-counts": f"{policy}-second" for policy in LOCAL}

    def local_since(history: History, batch: int) -> bool:
        if not all(changes(history, f"{policy}-first") for policy in LOCAL) or history.batches[-1].number <= batch:
            return False
        shares = locality(history.batches[-1])
        return shares["locality-first", "locality-second"] > 0.9 > 0.1 > shares["locality-worst-first", "locality-worst-second"]

    return run(new_runner("chained"), "chained", operators, sinks, local_since)


def test_no_policy_with_a_planner_is_left_out() -> None:
    planned = {name for name, spec in groupings.GROUPINGS.items() if spec.planner is not None}
    assert planned - {"auto"} == {*LOOKED_UP, *LOCAL, "consistent"}  # auto: tests/runs/test_examples.py


@pytest.mark.parametrize("policy", LOOKED_UP)
def test_state_moves_and_moves_again_when_the_stream_drifts(by_key: Ran, policy: str) -> None:
    moved = moves(by_key.history, policy)
    assert any(batch < by_key.drifts_at for batch in moved), moved
    assert any(batch > by_key.drifts_at + 1 for batch in moved), moved
    assert counts_in(f"{policy}-counts") == by_key.expected


def test_virtual_workers_move_and_tuples_follow_them_and_no_state_moves(by_key: Ran) -> None:
    moved = changes(by_key.history, "consistent.partial")
    assert moved, by_key.history.reconfigurations
    assert not any(change.keys_moved for change in moved)
    last = [batch for batch in by_key.history.batches if batch.rows][-1]
    table = ExecutionPlan.from_json(by_key.checkpoint.read_epoch(last.epoch)).epoch.routes["consistent.partial"].table
    assert table is not None
    held = np.bincount(table.buckets, minlength=3)
    assert held.sum() == 60
    assert held.tolist() != [20, 20, 20], "as they began"
    rows = {report.instance: report.rows for report in last.reports if report.operator == "consistent.partial"}
    shares = [rows[instance] / sum(rows.values()) for instance in range(3)]
    assert shares == pytest.approx((held / 60).tolist(), abs=0.02)
    assert counts_in("consistent-counts") == by_key.expected


@pytest.mark.parametrize("policy", LOCAL)
def test_keys_that_follow_each_other_live_where_the_policy_says(chained: Ran, policy: str) -> None:
    first, second = f"{policy}-first", f"{policy}-second"
    grouped = Counter[int]()
    for key, count in chained.expected.items():
        grouped[(key + 2) % 60] += count
    assert counts_in(f"{policy}-counts", "grp") == grouped

    of_first, of_second = (changes(chained.history, operator) for operator in (first, second))
    assert of_first, chained.history.reconfigurations
    assert [change.epoch for change in of_first] == [change.epoch for change in of_second], "one epoch for both"
    assert sum(change.keys_moved for change in of_first) > 0, "state has moved"
    shares = {batch.number: locality(batch)[first, second] for batch in chained.history.batches if batch.rows}
    assert shares[min(shares)] < 0.5
    before, drifted = shares[chained.drifts_at - 1], shares[max(shares)]
    if policy == "locality":
        assert min(before, drifted) > 0.9, shares
    elif policy == "locality-worst":
        assert max(before, drifted) < 0.1, shares
    else:
        assert max(change.batch for change in of_first) < chained.drifts_at, "planned once, for the keys before the drift"
        assert before > 0.9 > 0.75 > drifted, shares
        assert len(of_first) == 1, "and never again"
