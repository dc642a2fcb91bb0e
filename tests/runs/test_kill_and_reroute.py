"""The promise in two tests, on one real cluster: a killed executor costs an attempt, a re-routing costs no row."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from support.faults import kill_executor
from support.feeding import Feed
from support.gate import Gate, gated, write_all
from support.manifests import counting, counts_in, files, manifest, memory_sink
from support.states import extracted

from streamtopology.jobs.admin.inspect_key import describe_key
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.plan.as_of import node_state
from streamtopology.jobs.plan.execution_plan import ExecutionPlan

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.topologies import Runner

pytest_plugins = ("support.topologies",)
pytestmark = [pytest.mark.smoke, pytest.mark.timeout(300)]


@pytest.mark.parametrize("real_time", [False, True])
def test_a_rerouted_run_equals_a_group_by_and_keys_are_where_the_table_says(runner: Runner, real_time: bool) -> None:
    feed = Feed(runner.folder / "rows", 12_000)
    given = manifest(
        "rerouted",
        [files(feed.folder)],
        [
            counting("first", **{"with": {"emit": "tuples", "costPerTuple": "20us"}}),
            counting("second", of="first", **{"with": {"costPerTuple": "20us"}}),
        ],
        [memory_sink("rerouted", "second")],
        trigger={"realTime": real_time},
        rebalance={"interval": "1s", "tolerance": 0.02},
    )
    with runner.running(given) as running:
        history = running.history
        feed.until(running, lambda: any(change.keys_moved for change in history.reconfigurations))
        feed.files(running)
    assert history.reconfigurations, [event.text for event in history.events]
    assert sum(change.keys_moved for change in history.reconfigurations) > 0
    assert counts_in("rerouted") == feed.expected

    checkpoint = Checkpoint.attach(str(runner.folder / "rerouted" / "checkpoint"))
    commit = checkpoint.last_commit()
    assert commit is not None
    plan = ExecutionPlan.from_json(checkpoint.read_epoch(commit.epoch))
    for operator in ("first", "second"):
        node, table = plan.compile().node(operator), plan.epoch.routes[operator].table
        assert table is not None
        assert node.state is not None
        held = node_state(checkpoint, commit, node)
        assert held is not None
        assert Counter(held["key"].to_pylist()) == Counter(feed.expected.keys()), "every key is kept once"
        for instance, reference in commit.state[operator].items():
            state = checkpoint.load_state(reference, node.state)
            strangers = extracted(state, lambda hashes, table=table, here=instance: table.lookup(hashes) != here)
            assert strangers.num_rows == 0, f"instance {instance} of {operator} keeps keys of others"
    reported = describe_key(runner.save(given), "second", ["1"], runner.folder)
    assert f"count: {feed.expected[1]}" in reported


@pytest.mark.parametrize(
    ("slot", "policy", "real_time"),
    [("large-1", "mixed", False), ("small-0", "partial-key", False), ("large-1", "mixed", True)],
)
def test_an_executor_killed_in_a_batch_costs_one_attempt(
    runner: Runner, gate: Gate, slot: str, policy: str, real_time: bool
) -> None:
    expected = write_all(runner.folder / "rows")
    given = manifest(
        "orphaned",
        [files(runner.folder / "rows")],
        [gated(gate, policy)],
        [memory_sink("orphaned", "counts")],
        trigger={"availableNow": True, "realTime": real_time},
    )
    with runner.running(given) as running:
        running.wait_until(lambda: gate.waiting() == 3)
        kill_executor(runner.embedded.cluster, slot)
        running.wait_until(lambda: any("retrying" in event.text for event in running.history.events))
        gate.open()
        running.wait_until(running.ended.done)
    assert counts_in("orphaned") == expected
    attempts = {batch.number: batch.attempt for batch in running.history.batches}
    assert attempts[0] == 1
    assert attempts[1] == 2
