"""A run on real executors that begins with the checkpoint of another topology: its state, and where it was in the sources."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.manifests import counting, files, manifest, memory_sink, write_rows

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.plan.as_of import node_state
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.runtime.streaming_query import Until

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.topologies import Runner

pytest_plugins = ("support.topologies",)
pytestmark = pytest.mark.timeout(300)


def test_restored_run_reads_on_where_the_original_was_and_never_goes_back(runner: Runner, tmp_path: Path) -> None:
    rows, first, second = tmp_path / "rows", tmp_path / "first", tmp_path / "second"
    expected = sum((write_rows(rows, part) for part in range(5)), Counter[int]())
    original = manifest("original", [files(rows)], [counting()], [memory_sink("a", "counts")], checkpoint=str(first))
    runner.run(original, Until(batches=2))
    other: dict[str, Any] = manifest(
        "other", [files(rows)], [counting()], [memory_sink("b", "counts")], checkpoint=str(second), restore={"from": str(first)}
    )
    history = runner.run(other, Until(batches=1))
    assert [batch.number for batch in history.batches if batch.rows] == [2]
    history = runner.run(other, Until(drain=True))
    assert [batch.number for batch in history.batches if batch.rows] == [3, 4]
    assert counts_in(str(second)) == expected
    last = Checkpoint.attach(str(first)).last_commit()
    assert last is not None
    assert last.batch == 1, "the original is where it was"


def counts_in(uri: str) -> Counter[int]:
    """The counts that the newest commit holds, from all instances."""
    checkpoint = Checkpoint.attach(uri)
    commit = checkpoint.last_commit()
    assert commit is not None
    plan = ExecutionPlan.from_json(checkpoint.read_epoch(commit.epoch))
    kept = node_state(checkpoint, commit, plan.compile().node("counts"))
    assert kept is not None
    return Counter({row["key"]: row["count"] for row in kept.to_pylist()})
