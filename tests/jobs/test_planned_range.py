"""Ranges that are too large for one batch: read in parts, each with a commit, every row once."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.depth import deep
from support.spark_stream import run_query
from support.stages import SLOTS, Flow, manifest

from streamtopology.jobs.checkpoint import CommitRecord
from streamtopology.jobs.runtime.streaming_query import Until

LARGE = "x" * 100_000


def counting(data: Path, trigger: Mapping[str, Any] = {"availableNow": True}, **spec: Any) -> dict[str, Any]:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    made = manifest([operator], {"s": "k BIGINT, text STRING"}, trigger=dict(trigger), **spec)
    made["spec"]["sources"][0]["options"] = {"path": str(data)}
    return made


class Texts:
    """Files of rows with texts, counted by key; a task may read `task_bytes` of them in a batch."""

    def __init__(self, folder: Path, task_bytes: int) -> None:
        self._folder, self._task_bytes = folder, task_bytes
        (folder / "data").mkdir()
        self.flow = self._start()

    def add_file(self, number: int, texts: Sequence[str], row_group_rows: int = 1000) -> None:
        rows = pa.table({"k": range(len(texts)), "text": texts})
        pq.write_table(rows, self._folder / "data" / f"{number}.parquet", row_group_size=row_group_rows)

    def run(self, until: Until | None = None) -> list[CommitRecord]:
        """One run, by a new driver; the commits that are kept."""
        self.flow = self._start()
        run_query(self.flow, until)
        checkpoint = self.flow.checkpoint
        return [checkpoint.read_commit(number) for number in checkpoint.commits()]

    def counts(self) -> dict[int, int]:
        return {row["k"]: row["count"] for row in self.flow.state("n")}

    def _start(self) -> Flow:
        flow = Flow(self._folder, counting(self._folder / "data", onBadTuple="deadLetter"))  # else no text would be read
        flow.driver.progress.sizes.share_of_memory = self._task_bytes / 2**30
        return flow


def rows_in_parts(commits: Sequence[CommitRecord]) -> list[int]:
    return [commit.rows_in for commit in commits if commit.rows_in]


def test_each_part_commits_with_its_positions_and_the_end_of_its_range(tmp_path: Path) -> None:
    topology = Texts(tmp_path, task_bytes=25_000)
    topology.add_file(0, [f"{number:01000}" for number in range(250)], row_group_rows=100)
    commits = topology.run()
    assert rows_in_parts(commits) == [96, 96, 58], "about 100 kB a batch, over the border of row groups"
    assert [commit.range_end for commit in commits] == [{"s": 1}, {"s": 1}, None, None], "the drain is a batch of its own"
    positions = [commit.end.positions["s"] for commit in commits]
    assert positions == [[0, 0, 96], [0, 1, 92], 1, 1]
    assert topology.counts() == dict.fromkeys(range(250), 1)


def test_run_that_stops_between_two_parts_is_continued_by_the_next(tmp_path: Path) -> None:
    topology = Texts(tmp_path, task_bytes=25_000)
    topology.add_file(0, [f"{number:01000}" for number in range(250)])
    assert rows_in_parts(topology.run(Until(batches=1))) == [97]
    topology.add_file(1, ["later"])
    assert sum(rows_in_parts(topology.run())) == 251
    assert topology.counts() == {**dict.fromkeys(range(250), 1), 0: 2}


def test_batches_within_a_latency_begin_small_and_grow(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"k": range(20_000), "text": [""] * 20_000}), tmp_path / "data" / "0.parquet")
    flow = Flow(tmp_path, counting(tmp_path / "data", {"availableNow": True, "latency": "1h"}))
    run_query(flow)
    commits = [flow.checkpoint.read_commit(number) for number in flow.checkpoint.commits()]
    assert rows_in_parts(commits) == [1000, 4000, 15_000], "as much as was planned is less than four times the batch before"
    assert {row["count"] for row in flow.state("n")} == {1}
    assert len(flow.state("n")) == 20_000


@deep(gate=5, long=10)
@given(
    files=st.lists(st.integers(1, 6_000), min_size=1, max_size=4),
    latencies=st.lists(st.sampled_from(["1ms", "30ms", "1h", None]), min_size=1, max_size=4),
    batches=st.integers(1, 4),
)
def test_every_row_is_read_once_whatever_latencies_its_runs_have(
    files: list[int], latencies: list[str | None], batches: int
) -> None:
    """Runs that stop between two parts, each with a latency of its own; the last reads the rest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        for number, rows in enumerate(files):
            table = pa.table({"k": range(rows), "text": [""] * rows})
            pq.write_table(table, folder / "data" / f"{number}.parquet", row_group_size=700)
        flow = Flow(folder, counting(folder / "data", within(latencies[0])))
        for latency in latencies:
            flow.start(counting(folder / "data", within(latency)))
            run_query(flow, Until(batches=batches))
        flow.start(counting(folder / "data", within(latencies[0])))
        run_query(flow)
        assert {row["k"]: row["count"] for row in flow.state("n")} == Counter(k for rows in files for k in range(rows))


def within(latency: str | None) -> dict[str, Any]:
    return {"availableNow": True} if latency is None else {"availableNow": True, "latency": latency}


def test_rows_larger_than_their_file_says_are_found_out_and_read_in_smaller_parts(tmp_path: Path) -> None:
    """One text 400 times is 100 kB in a parquet file and 40 MB in memory; guessed sizes of Kafka are the same case."""
    topology = Texts(tmp_path, task_bytes=2 << 20)
    topology.add_file(0, [LARGE] * 400)
    commits = topology.run()
    assert [commit.attempt for commit in commits] == [2] + [1] * (len(commits) - 1), "a void attempt, and its lesson"
    assert max(rows_in_parts(commits)) * len(LARGE) <= SLOTS * (2 << 20)
    assert topology.counts() == dict.fromkeys(range(400), 1)
    assert topology.flow.reported == [
        "batch 0: rows of source 's' are larger than expected: 4Mi is reached; fewer are read at a time"
    ]


def test_row_larger_than_all_limits_passes(tmp_path: Path) -> None:
    topology = Texts(tmp_path, task_bytes=20_000)
    topology.add_file(0, ["small", 20 * LARGE, "small"])
    topology.run()
    assert topology.counts() == {0: 1, 1: 1, 2: 1}


def test_blobs_are_no_more_than_a_task_may_fill_however_wrong_the_sizes_were(tmp_path: Path) -> None:
    """Each part was too large, and doubled what was expected of all others: of a few kB that is terabytes in the end."""
    topology = Texts(tmp_path, task_bytes=20_000)
    for number in range(12):
        topology.add_file(number, [f"{'x' * 100_000}{number}"] * 3, row_group_rows=1)
    topology.run()
    assert topology.counts() == dict.fromkeys(range(3), 12)
    assert {attempt.attempt.blobs for attempt in topology.flow.router.done} == {1}


def passing_on(folder: Path, texts: Sequence[str]) -> Flow:
    """After a run of one task that sends all of `texts` on, with no limit."""
    (folder / "data").mkdir()
    pq.write_table(pa.table({"k": [0] * len(texts), "text": texts}), folder / "data" / "0.parquet")
    made = counting(folder / "data", executors=[{"name": "slot", "replicas": 1, "cpu": "1"}])
    made["spec"]["operators"][0]["with"] = {"emit": "tuples"}
    flow = Flow(folder, made)
    flow.driver.progress.sizes.share_of_memory = 1.0
    run_query(flow)
    return flow


def test_large_envelopes_arrive_in_several_blobs_in_order(tmp_path: Path) -> None:
    texts = [f"{number:0100000}" for number in range(400)]
    flow = passing_on(tmp_path, texts)
    assert flow.published("n")["text"].to_pylist() == texts
    assert [attempt.attempt.blobs for attempt in flow.router.done][:1] == [4], "40 MB in blobs of 16"


def test_envelope_larger_than_foreseen_costs_an_attempt_and_passes_in_more_blobs(tmp_path: Path) -> None:
    """A text that repeats takes next to nothing in a parquet file."""
    flow = passing_on(tmp_path, [LARGE] * 700)
    assert flow.state("n") == [{"k": 0, "count": 700}]
    assert [(attempt.attempt.attempt, attempt.attempt.blobs) for attempt in flow.router.done][:1] == [(2, 8)]
    assert flow.reported == [
        "batch 0, attempt 1: a task sends more to an executor than was foreseen; it is divided more finely now; "
        "retrying on the remaining executors"
    ]


@pytest.mark.parametrize("files", [1, 3])
def test_small_ranges_are_one_batch(tmp_path: Path, files: int) -> None:
    topology = Texts(tmp_path, task_bytes=1 << 20)
    for number in range(files):
        topology.add_file(number, ["small"] * 1000)
    assert rows_in_parts(topology.run()) == [1000 * files]


def windowed(folder: Path, latency: str | None, executors: int) -> dict[str, Any]:
    windows = {
        "name": "w", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "window-aggregate",
        "with": {"time": "t", "size": "10s", "aggregates": {"n": "count()"}},
    }  # fmt: skip
    slots = [{"name": "slot", "replicas": executors, "cpu": "1"}]
    made = manifest([windows], {"s": "k BIGINT, t BIGINT"}, trigger=within(latency), executors=slots)
    made["spec"]["sources"][0] |= {
        "options": {"path": str(folder / "data"), "maxFilesPerTrigger": 1},
        "watermark": {"column": "t", "delay": "5s"},
    }
    return made


def windows_of(
    folder: Path, files: Sequence[Sequence[int]], latency: str | None, task_bytes: int, executors: Sequence[int]
) -> Any:
    """The windows and the number of late rows, of a run for each number of executors; all but the last stop after a batch."""
    (folder / "data").mkdir(parents=True)
    for number, times in enumerate(files):
        path = folder / "data" / f"{number}.parquet"
        pq.write_table(pa.table({"k": [time % 3 for time in times], "t": times}), path, row_group_size=500)
        os.utime(path, (1_700_000_000 + number,) * 2)
    flow, late = Flow(folder, windowed(folder, latency, executors[0])), 0
    for number, until in zip(executors, [*[Until(batches=1)] * (len(executors) - 1), Until(drain=True)], strict=True):
        flow.start(windowed(folder, latency, number))
        flow.driver.progress.sizes.share_of_memory = task_bytes / 2**30
        run_query(flow, until)
        late += sum(r.report.late_rows for done in flow.router.done for r in done.results.instances)
        flow.router.done.clear()
    return sorted(tuple(row.values()) for row in flow.published("w").to_pylist()), late


@deep(gate=4, long=10)
@given(
    files=st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=1_500), min_size=1, max_size=3),
    latency=st.sampled_from([None, "1ms", "1h"]),
    task_bytes=st.sampled_from([4_000, 1 << 20]),
    executors=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
@example(files=[[time for _ in range(20) for time in range(0, 200, 2)]], latency="1ms", task_bytes=1 << 20, executors=[4, 4, 4])
@example(files=[[time for _ in range(20) for time in range(0, 200, 2)]], latency=None, task_bytes=4_000, executors=[1, 6, 2])
def test_same_rows_are_late_however_a_range_is_cut(
    files: list[list[int]], latency: str | None, task_bytes: int, executors: list[int]
) -> None:
    """Parts are cut by latency, memory and the number of executors; runs stop between them and go on with others."""
    with tempfile.TemporaryDirectory() as name:
        whole = windows_of(Path(name) / "whole", files, None, 1 << 20, [SLOTS])
        assert windows_of(Path(name) / "cut", files, latency, task_bytes, executors) == whole
