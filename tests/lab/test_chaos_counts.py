"""The chaos bench finds what it looks for: rows that were lost or counted twice, in state and in a sink."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.stages import Flow, manifest

from streamtopology.jobs.connectors.sinks import Writer
from streamtopology.jobs.connectors.sinks.folder import FolderSink, write_parquet
from streamtopology.lab.bench.chaos import sink_faults, state_counts, stated_twice

BATCHES = [[1, 2, 2, 3], [2, 3], [1, 5, 5], [2]]
EXPECTED = Counter(key for keys in BATCHES for key in keys)


@pytest.fixture
def counted(tmp_path: Path) -> Flow:
    operator = {"name": "key", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}
    flow = Flow(
        tmp_path,
        manifest([operator], {"s": "key BIGINT"}),
        sink=lambda name, checkpoint: FolderSink(tmp_path / "out", ".parquet", write_parquet, Writer("flow", checkpoint.run)),
    )
    for keys in BATCHES:
        flow.batch(s=pa.table({"key": keys}))
    return flow


TABLES = [pa.table({"key": keys}) for keys in BATCHES]


def test_both_say_what_was_counted(counted: Flow, tmp_path: Path) -> None:
    assert state_counts(counted.checkpoint, "key") == EXPECTED
    assert sink_faults(tmp_path / "out", "key", TABLES) == (0, 0)


def test_a_batch_that_counted_twice_shows_in_both(counted: Flow, tmp_path: Path) -> None:
    counted.batch(s=TABLES[1])
    assert (state_counts(counted.checkpoint, "key") - EXPECTED).total() == 2
    others = [pa.table({"key": [*BATCHES[0], 3]}), *TABLES[1:]]  # as if the sink had a row less than there was
    assert sink_faults(tmp_path / "out", "key", others)[0] > 0
    fewer = [pa.table({"key": BATCHES[0][:-1]}), *TABLES[1:]]  # as if it had one more
    assert sink_faults(tmp_path / "out", "key", fewer)[1] > 0


@pytest.mark.parametrize("batch", range(len(BATCHES)))
def test_a_batch_that_is_missing_shows_in_the_sink(counted: Flow, tmp_path: Path, batch: int) -> None:
    (tmp_path / "out" / f"batch-{batch:09d}.parquet").unlink()
    assert sink_faults(tmp_path / "out", "key", TABLES)[0] >= len(BATCHES[batch])


def test_a_row_that_is_there_twice_shows_in_the_sink(counted: Flow, tmp_path: Path) -> None:
    path = tmp_path / "out" / "batch-000000002.parquet"
    rows = pq.read_table(path)
    pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), path)
    assert sink_faults(tmp_path / "out", "key", TABLES) == (0, 1)


def test_a_count_of_a_divided_key_that_does_not_grow_shows(tmp_path: Path) -> None:
    for number, counts in enumerate([[("a", 1), ("b", 1)], [("a", 3)], [("a", 3), ("b", 2)]]):
        rows = [{"hot": key, "count": count} for key, count in counts]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"batch-{number:09d}.parquet")
    assert stated_twice(tmp_path) == 1


def test_state_that_went_back_shows(counted: Flow) -> None:
    counted.checkpoint.forget_commit(len(BATCHES) - 1)
    assert (EXPECTED - state_counts(counted.checkpoint, "key")).total() == 1
