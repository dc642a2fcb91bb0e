"""Dead letters of a checkpoint that goes back are those of the batches that it has."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from support.stages import Flow, Kept, manifest

from streamtopology.jobs.admin.checkpoints import rollback
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.connectors.sinks.base import BatchSink
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS, DeadLetters

PICKY = '''
import json
import numpy as np
from streamtopology.api import Field, TupleOperator


class Picky(TupleOperator):
    """Raises on the values that the file `bad` names."""

    fields = (Field("n", np.int64),)

    def process_tuple(self, row, state):
        if row["v"] in json.loads((self.base_dir / "bad").read_text()):
            raise ValueError("bad")
        state["n"] += 1
'''
OPERATOR = {"name": "counts", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "picky.py:Picky"}
MANIFEST = manifest([OPERATOR], {"s": "k BIGINT, v BIGINT"}, onBadTuple="deadLetter")


def sink_of(name: str, checkpoint: Checkpoint) -> BatchSink:
    return DeadLetters(checkpoint.keep) if name == DEAD_LETTERS else Kept()


def rows(*values: int) -> pa.Table:
    return pa.table({"k": [1] * len(values), "v": values})


def letters(flow: Flow) -> dict[str, list[int]]:
    """The values that were set aside, by file."""
    files = flow.checkpoint.files("dead-letters")
    lines = {file: flow.checkpoint.read(file).splitlines() for file in files}
    return {Path(file).stem: [json.loads(json.loads(line)["tuple"])["v"] for line in found] for file, found in lines.items()}


@pytest.mark.parametrize("still_bad", [[], [4]])
def test_batch_after_a_rollback_has_its_own_dead_letters(tmp_path: Path, still_bad: list[int]) -> None:
    (tmp_path / "picky.py").write_text(PICKY)
    (tmp_path / "bad").write_text("[3]")
    flow = Flow(tmp_path, MANIFEST, sink=sink_of)
    for values in ([1, 3], [3, 4], [5, 3]):
        flow.batch(s=rows(*values))
    assert letters(flow) == {"batch-000000000": [3], "batch-000000001": [3], "batch-000000002": [3]}
    rollback(flow.checkpoint.uri, 0)
    assert letters(flow) == {"batch-000000000": [3]}
    (tmp_path / "bad").write_text(json.dumps(still_bad))
    flow.start(MANIFEST)
    flow.batch(s=rows(3, 4))
    assert letters(flow) == {"batch-000000000": [3]} | ({"batch-000000001": still_bad} if still_bad else {})
    assert [row["n"] for row in flow.state("counts")] == [1 + 2 - len(still_bad)]


def test_rollback_that_dies_at_a_commit_loses_no_dead_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "picky.py").write_text(PICKY)
    (tmp_path / "bad").write_text("[3]")
    flow = Flow(tmp_path, MANIFEST, sink=sink_of)
    for values in ([1], [3, 4]):
        flow.batch(s=rows(*values))

    def die(_: Checkpoint, batch: int) -> None:
        raise KeyboardInterrupt(batch)

    monkeypatch.setattr(Checkpoint, "forget_commit", die)
    with pytest.raises(KeyboardInterrupt):
        rollback(flow.checkpoint.uri, 0)
    committed = flow.start(MANIFEST)
    assert committed is not None
    flow.driver.publisher.publish_again(committed, flow.topology)
    assert letters(flow) == {"batch-000000001": [3]}
