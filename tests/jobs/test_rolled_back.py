"""Notes, plans and places of former runs, where a checkpoint goes back and batches are read again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from support.stages import Flow, counting, manifest

from streamtopology.jobs.admin.checkpoints import rollback
from streamtopology.jobs.admin.export_batch import export_batch
from streamtopology.jobs.admin.watermark import set_watermark
from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.errors import WrongUse

MANIFEST = "job.yaml"
STEPS = """
import numpy as np
from streamtopology.api import Field, TupleOperator


class Steps(TupleOperator):
    fields = (Field("n", np.int64),)

    def process_tuple(self, row, state):
        state["n"] += {step}
"""


def flow_of(folder: Path, batches: int) -> Flow:
    flow = Flow(folder, counting(), compaction=lambda checkpoint: Compaction(checkpoint, commits_per_sweep=1_000))
    for number in range(batches):
        flow.batch(s=pa.table({"k": [number]}))
    return flow


def test_batch_that_was_exported_is_published_when_it_is_read_again(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, 3)
    notes = flow.checkpoint.publications
    for batch, place in ((1, "/out/1"), (2, "/out/2"), (2, "nowhere, as it has no rows")):
        notes.exported("n" if place.startswith("/") else "other", batch, place)
    notes.failed("n", 2, "no room")
    notes.complete(2, 1)
    printed = rollback(flow.checkpoint.uri, 1)
    assert printed.endswith(". Sinks get what was exported before, too, once it is read again: batch 2 for sink 'n', in /out/2")
    assert notes.known() == {"publications/n/1.exported"}
    flow.sinks.clear()  # the sink has another place
    flow.start(counting())
    flow.batch(s=pa.table({"k": [7]}))
    assert flow.published("n")["k"].to_pylist() == [7]


def test_rollback_that_dies_before_its_notes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = flow_of(tmp_path, 2)
    flow.checkpoint.publications.exported("n", 1, "/out")

    def die(checkpoint: Checkpoint, batch: int) -> None:
        assert flow.checkpoint.publications.exported_to("n", 1) == "/out", "the batch is there, and is not published twice"
        forget(checkpoint, batch)
        raise KeyboardInterrupt

    forget = Checkpoint.forget_commit
    with monkeypatch.context() as dying:
        dying.setattr(Checkpoint, "forget_commit", die)
        with pytest.raises(KeyboardInterrupt):
            rollback(flow.checkpoint.uri, 0)
    assert "is at batch 0 already" in rollback(flow.checkpoint.uri, 0)
    assert flow.checkpoint.publications.known() == set()


def test_export_refuses_to_replace_rows_of_another_batch_of_its_number(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, 2)
    for _ in range(2):
        export_batch(flow.checkpoint.uri, flow.topology, "n", tmp_path / "out")
        flow.checkpoint.publications.forget_after(0)  # as if it had died before its note
    before = ds.dataset(tmp_path / "out").to_table()
    rollback(flow.checkpoint.uri, 0)
    flow.sinks.clear()
    flow.start(counting())
    flow.batch(s=pa.table({"k": [7, 8]}))
    with pytest.raises(WrongUse, match="holds other rows, of another batch of this number: name another folder"):
        export_batch(flow.checkpoint.uri, flow.topology, "n", tmp_path / "out")
    assert ds.dataset(tmp_path / "out").to_table() == before
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_watermark_is_taken_back_also_where_spark_reads_a_source(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, 2)
    path = Path(flow.checkpoint.where(f"epochs/{flow.last.epoch}.json"))
    wire = json.loads(path.read_text())
    wire["manifest"]["spec"]["sources"][0].update(format="rate", options={})
    path.write_text(json.dumps(wire))
    assert "`streamtopology state rollback job.yaml --to 1`" in set_watermark(
        flow.checkpoint.uri, MANIFEST, flow.topology, 12.0
    )
    assert "is back at batch 1; 1 later batches" in rollback(flow.checkpoint.uri, 1)
    with pytest.raises(CheckpointError, match="sources that Spark reads itself cannot be read again"):
        rollback(flow.checkpoint.uri, 0)


def test_batch_runs_whose_recorded_plan_was_swept_meanwhile(tmp_path: Path) -> None:
    """The sweep keeps what commits name, and an attempt at a batch that is still to be read again names an older plan."""
    flow = flow_of(tmp_path, 8)
    rollback(flow.checkpoint.uri, 1)
    flow.start(counting("fields"))
    for number in range(2, 8):
        flow.batch(s=pa.table({"k": [number]}))
        if number == 4:
            assert "epochs/1.json" in flow.checkpoint.collect_garbage()
    assert sum(row["count"] for row in flow.state("n")) == 8


@pytest.mark.parametrize("goes_back", [False, True])
def test_operators_are_of_the_folder_that_the_manifest_is_in_now(tmp_path: Path, goes_back: bool) -> None:
    for folder, step in (("former", 1), ("present", 100)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "steps.py").write_text(STEPS.format(step=step))
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "steps.py:Steps"}
    given, row = manifest([operator], {"s": "k BIGINT"}), pa.table({"k": [1]})
    flow = Flow(tmp_path, given, base_dir=tmp_path / "former")
    for _ in range(3 if goes_back else 1):
        flow.batch(s=row)
    if goes_back:
        rollback(flow.checkpoint.uri, 0)
    shutil.rmtree(tmp_path / "former")
    flow = Flow(tmp_path, given, base_dir=tmp_path / "present")
    for _ in range(3):
        flow.batch(s=row)
    assert [row["n"] for row in flow.state("n")] == [1 + 3 * 100]
    epochs = flow.checkpoint.epochs()
    flow.start(given)
    assert flow.checkpoint.epochs() == epochs, "in the same folder the plan stays"
