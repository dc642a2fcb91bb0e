"""A run continues from a checkpoint that the version before the rooms (commit fcf0264) wrote on Spark.

checkpoints/fcf0264 holds three batches of one file each: counts and open windows per key, the offsets and the file log of the
source, and two epochs, of which the third batch ran under the second with tables drawn at random. @FOLDER@ stands for the
folder of that run. It is never written again.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.manifests import counting, files, manifest, memory_sink, write_rows

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.connectors.sinks import memory_rows
from streamtopology.jobs.plan.as_of import node_state
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.runtime.streaming_query import Until

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.topologies import Runner

pytest_plugins = ("support.topologies",)
pytestmark = pytest.mark.timeout(300)

OLD = Path(__file__).parent / "checkpoints" / "fcf0264"
ROWS, KEYS = 300, 20


def topology() -> dict[str, Any]:
    source = files(Path("rows")) | {"watermark": {"column": "value", "delay": "1h"}}
    options = {"time": "value", "size": "250s", "aggregates": {"count": "count()"}}
    windows = counting("windows", run="window-aggregate", **{"with": options})
    sinks = [memory_sink("counted", "counts"), memory_sink("closed", "windows")]
    return manifest("kept", [source], [counting(), windows], sinks, rebalance={"mode": "Off"})


@pytest.fixture
def old(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    """The old run's folder: its checkpoint and the three files that it has read."""
    folder = runner.folder / "kept" / "checkpoint"
    shutil.copytree(OLD, folder)
    for path in [*(folder / "files").rglob("*.json"), *(folder / "epochs").glob("*.json")]:
        path.write_text(path.read_text().replace("@FOLDER@", str(runner.folder)))
    monkeypatch.chdir(runner.folder)
    return Checkpoint.attach(str(folder))


def test_run_continues_from_checkpoint_of_fcf0264_with_right_counts(runner: Runner, old: Checkpoint) -> None:
    commit = old.last_commit()
    assert commit is not None
    assert (commit.batch, commit.epoch, old.epochs()) == (2, 2, [1, 2])
    expected = sum((write_rows(runner.folder / "rows", number, ROWS, KEYS) for number in range(5)), Counter[int]())

    history = runner.run(topology(), Until(drain=True))

    assert sum(batch.rows for batch in history.batches) == 2 * ROWS, "the three old files are not read again"
    assert Counter({row["key"]: row["count"] for row in kept_rows(old)}) == expected
    in_windows = Counter[int]()
    for row in memory_rows("closed").to_pylist():
        in_windows[row["key"]] += row["count"]
    assert in_windows == expected, "windows that were open then close with the rows of all five files"


def kept_rows(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """The counts that the newest commit holds, from all instances."""
    commit = checkpoint.last_commit()
    assert commit is not None
    rows = node_state(checkpoint, commit, ExecutionPlan.from_json(checkpoint.read_epoch(commit.epoch)).compile().node("counts"))
    assert rows is not None
    return rows.to_pylist()
