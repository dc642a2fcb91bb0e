"""Batches that were recorded and whose commits are gone are read again as they were: sinks know them by their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep
from support.spark_stream import run_query
from support.stages import Flow, manifest

from streamtopology.jobs.runtime.streaming_query import Until

KEYS, OTHERS = 7, 5
WHOLE, IN_PARTS = 1 << 20, 20  # bytes that a task may read in a batch


class Life:
    """A topology over files, in one run after another; its newest commits are lost in between.

    `task_bytes`: of rows that a task may read in a batch; a range that is larger is read in parts.
    """

    def __init__(self, folder: Path, files_a_batch: int, task_bytes: int) -> None:
        self._folder, self._data = folder, folder / "data"
        self._data.mkdir(parents=True)
        self._task_bytes = task_bytes
        self._files = 0
        self.flow = Flow(folder, self._manifest(files_a_batch))

    def add_files(self, count: int) -> None:
        for _ in range(count):
            rows = pa.table({"k": [self._files % KEYS, *[99] * OTHERS]})
            pq.write_table(rows, self._data / f"{self._files:04}.parquet", row_group_size=4)
            self._files += 1

    def run(self, until: Until | None = None, files_a_batch: int = 2) -> None:
        self.flow.start(self._manifest(files_a_batch))
        self.flow.driver.progress.sizes.share_of_memory = self._task_bytes / 2**30
        run_query(self.flow, until)
        self.flow.driver.compaction.close()  # it forgets old commits beside the run

    def lose_commits(self, count: int) -> None:
        """As a rollback does, or a power cut. Sinks get a batch once it is committed: those they have stay."""
        for number in self.flow.checkpoint.commits()[: -count - 1 : -1]:
            self.flow.checkpoint.forget_commit(number)

    def ends(self) -> Mapping[int, tuple[Any, Any]]:
        """By batch where it ends, and where its range does."""
        checkpoint = self.flow.checkpoint
        commits = [checkpoint.read_commit(number) for number in checkpoint.commits()]
        return {commit.batch: (commit.end.positions, commit.range_end) for commit in commits}

    def check(self) -> None:
        """Run to the end of the input: every row counts once."""
        self.run()
        expected = Counter(number % KEYS for number in range(self._files)) + Counter({99: OTHERS * self._files})
        assert {row["k"]: row["count"] for row in self.flow.state("n")} == expected

    def _manifest(self, files_a_batch: int) -> dict[str, Any]:
        operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
        made = manifest([operator], {"s": "k BIGINT"}, trigger={"availableNow": True})
        made["spec"]["sources"][0]["options"] = {"path": str(self._data), "maxFilesPerTrigger": str(files_a_batch)}
        return made


@pytest.mark.parametrize("task_bytes", [WHOLE, IN_PARTS])
def test_batches_are_the_same_again_though_more_could_be_read(tmp_path: Path, task_bytes: int) -> None:
    life = Life(tmp_path, 2, task_bytes)
    life.add_files(5)
    life.run(Until(batches=6))
    before = life.ends()
    life.lose_commits(2)
    life.add_files(4)
    life.run(Until(batches=2), files_a_batch=100)
    assert life.ends() == before
    life.check()


@deep(gate=4, long=8)
@given(
    task_bytes=st.sampled_from([WHOLE, 200, IN_PARTS]),
    story=st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(1, 3), st.integers(0, 2)), min_size=2, max_size=6),
)
def test_every_row_counts_once_through_any_sequence_of_runs_and_lost_commits(
    tmp_path_factory: pytest.TempPathFactory, task_bytes: int, story: list[tuple[int, int | None, int]]
) -> None:
    life = Life(tmp_path_factory.mktemp("life"), 2, task_bytes)
    life.add_files(4)
    life.run()
    for files, batches, lost in story:
        known = life.ends()
        life.lose_commits(min(lost, len(known) - 1))
        life.add_files(files)
        life.run(Until(batches=batches))
        assert {batch: end for batch, end in life.ends().items() if batch in known}.items() <= known.items()
    life.check()


def test_records_say_where_a_batch_ends_in_its_sources(tmp_path: Path) -> None:
    life = Life(tmp_path, 2, WHOLE)
    life.add_files(3)
    life.run()
    flow = life.flow
    assert flow.last.end.positions == {"s": 3}
    assert [record.end for record in flow.checkpoint.batch_records(1)] == [{"s": 3}]
    known = flow.last.end_digest
    others = (replace(flow.last, watermark_after=7.0), replace(flow.last, end=replace(flow.last.end, positions={"s": 4})))
    assert known is not None
    assert known not in {other.end_digest for other in others}
    assert known == replace(flow.last, attempt=2, epoch=9, rows_in=0).end_digest, "other attempts at it are the same batch"
