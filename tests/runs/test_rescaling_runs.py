"""Real executors are started and ended while a topology runs, and every row counts once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.feeding import Feed
from support.manifests import counting, counts_in, files, manifest, memory_sink

from streamtopology.jobs.local import control_socket
from streamtopology.jobs.plan.execution_plan import ExecutionPlan

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.topologies import Runner, Running

pytest_plugins = ("support.topologies",)
pytestmark = pytest.mark.timeout(300)

HELD_BACK = 2
SINKS = {"mixed": "counts", "fields": "hashed", "split": "spread"}


def given(name: str, folder: Path, large: int, small: int = 1, **of_counts: Any) -> dict[str, Any]:
    """The rows of each key, counted three times: by a planned table, by plain hashing and on a split edge."""
    executors = [
        {"name": "large", "replicas": large, "cpu": "1", "memory": "768Mi"},
        {"name": "small", "replicas": small, "cpu": "300m", "memory": "768Mi"},
    ]
    operators = [
        counting(**of_counts), counting("hashed", "fields"), counting("spread", "partial-key", aggregateEvery=HELD_BACK),
    ]  # fmt: skip
    sinks = [memory_sink(f"{name}-{sink}", operator) for sink, operator in SINKS.items()]
    return manifest(name, [files(folder)], operators, sinks, trigger={}, executors=executors, rebalance={"interval": "1s"})


def feed_until_merged(feed: Feed, running: Running) -> None:
    """Until partials, which hold every other batch back, hold nothing."""
    while not feed.sent or running.history.batches[-1].number % HELD_BACK:
        feed.files(running, 1)


def executors_in_use(running: Running) -> set[str]:
    """The executors with instances in the newest batch."""
    batch = running.history.batches[-1]
    names = {slot.index: slot.executor for slot in running.history.slots}
    return {names[report.slot] for report in batch.reports}


def test_executors_join_and_leave_a_running_topology(runner: Runner) -> None:
    feed = Feed(runner.folder / "rows")
    manifest_of = {large: given("scaled", feed.folder, large) for large in (1, 2)}
    with runner.running(manifest_of[2]) as running:
        running.wait_until(lambda: running.history.is_ready())
        feed.files(running)
        assert executors_in_use(running) == {"large-0", "large-1", "small-0"}
        answer = control_socket.ask("scaled", "scale", class_name="large", replicas=3)
        assert "replicas: 2 -> 3" in answer
        assert "large-2 will take part when warm" in answer
        while "large-2" not in executors_in_use(running):
            feed.files(running, 1)
        feed.files(running, 3)
        assert executors_in_use(running) == {"large-0", "large-1", "large-2", "small-0"}
        instances = {report.instance for report in running.history.batches[-1].reports if report.operator == "counts"}
        assert instances == {0, 1, 2, 3}

        control_socket.ask("scaled", "apply", path=str(runner.save(manifest_of[1])))
        feed.files(running)
        assert executors_in_use(running) == {"large-0", "small-0"}
        running.wait_until(lambda: {slot.name for slot in runner.embedded.slots} == {"large-0", "small-0"})
        running.wait_until(lambda: not runner.embedded.cluster.processes("large-2"))
        feed.files(running)
        with pytest.raises(control_socket.Refused, match="no executor class 'huge'; there are: large, small"):
            control_socket.ask("scaled", "scale", class_name="huge", replicas=1)
        with pytest.raises(control_socket.Refused, match="found 1,001 executors, this machine has room for"):
            control_socket.ask("scaled", "scale", class_name="large", replicas=1000)
        with pytest.raises(control_socket.Refused, match=r"did you mean 300m, 0.3 of one\? nothing is changed"):
            control_socket.ask("scaled", "resize", class_name="small", cpu="300")
        assert {slot.name: slot.cpu for slot in runner.embedded.slots} == {"large-0": 1.0, "small-0": 0.3}
        assert [batch.attempt for batch in running.history.batches] == [1] * len(running.history.batches)
        feed_until_merged(feed, running)
    for sink in SINKS:
        assert counts_in(f"scaled-{sink}") == feed.expected
    assert any(change.keys_moved for change in running.history.reconfigurations)


def test_parallelism_and_executors_shrink_over_a_restart(runner: Runner) -> None:
    feed = Feed(runner.folder / "rows")
    seen: dict[str, dict[int, int]] = {"mixed": {}, "fields": {}}  # a run's memory sink has nothing of the runs before it
    for large, parallelism in ((2, 6), (1, 2)):
        with runner.running(given("again", feed.folder, large, parallelism=parallelism)) as running:
            feed.files(running)
            commit = running.run.checkpoint.last_commit()
            assert commit is not None
            assert len(commit.state["counts"]) == parallelism
            assert len(commit.state["hashed"]) == large + 1
            for sink, counts in seen.items():
                counts |= counts_in(f"again-{sink}")
                assert counts == feed.expected
    plan = ExecutionPlan.from_json(running.run.checkpoint.read_epoch(commit.epoch))
    assert plan.placement.names == ("large-0", "small-0")
