"""Our commit records and Spark's offset log: where they differ ours win, and no row is dropped or counted twice."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
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
from support.stages import Flow, Kept, manifest

from streamtopology.jobs.checkpoint import CommitRecord, SourceEnd
from streamtopology.jobs.checkpoint.spark_offsets import SparkOffsets
from streamtopology.jobs.runtime.streaming_query import Until

KEYS, OTHERS = 7, 5
WHOLE, IN_PARTS = 1 << 20, 20  # bytes


def counting(data: Path, files_a_batch: int) -> dict[str, Any]:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    made = manifest([operator], {"s": "k BIGINT"}, trigger={"availableNow": True})
    made["spec"]["sources"][0]["options"] = {"path": str(data), "maxFilesPerTrigger": str(files_a_batch)}
    return made


class Life:
    """A topology over files, in one run after another, with whatever happens to its folder in between.

    `task_bytes`: of rows that a task may read in a batch; a range that is larger is read in parts.
    """

    def __init__(self, folder: Path, files_a_batch: int = 2, task_bytes: int = 1 << 20) -> None:
        self.data, self.spark = folder / "data", folder / "checkpoint" / "spark"
        self.data.mkdir(parents=True)
        self._folder = folder
        self._given = counting(self.data, files_a_batch)
        self._task_bytes = task_bytes
        self._files = 0
        self._flow: Flow | None = None

    def add_files(self, count: int) -> None:
        for _ in range(count):
            rows = pa.table({"k": [self._files % KEYS, *[99] * OTHERS]})
            pq.write_table(rows, self.data / f"{self._files:04}.parquet", row_group_size=4)
            self._files += 1

    def run(self, until: Until | None = None) -> Flow:
        if self._flow is None:
            self._flow = Flow(self._folder, self._given)
        else:
            self._flow.start(self._given)
        self._flow.driver.progress.sizes.share_of_memory = self._task_bytes / 2**30
        run_query(self._flow, until)
        return self._flow

    def check(self) -> None:
        """Run to the end of the input: every row counts once."""
        flow = self.run()
        expected = Counter(number % KEYS for number in range(self._files)) + Counter({99: OTHERS * self._files})
        assert {row["k"]: row["count"] for row in flow.state("n")} == expected

    def unpublish(self, batch: int) -> None:
        """The sinks get a batch once it is committed, so one that is not was never there."""
        for sink in self._flow.sinks.values() if self._flow is not None else ():
            assert isinstance(sink, Kept)
            sink.batches.pop(batch, None)

    def newest(self, log: str) -> Path:
        return self.spark / log / str(max(int(path.name) for path in (self.spark / log).iterdir()))


def lost(life: Life) -> None:
    shutil.rmtree(life.spark)


def behind(life: Life) -> None:
    """The newest two batches never reached the disk."""
    for log in ("commits", "offsets"):
        for _ in range(2):
            life.newest(log).unlink()


def torn(life: Life) -> None:
    """Renamed, but its content never reached the disk."""
    life.newest("offsets").write_text("")
    life.newest("commits").unlink()


def uncounted(life: Life) -> None:
    life.newest("commits").unlink()


def replanned(life: Life) -> None:
    """Another plan under the same number."""
    newest = life.newest("offsets")
    end = json.loads(newest.read_text().splitlines()[2])
    newest.write_text(f"v1\n{{}}\n{json.dumps({'s': end['s'] - 1})}")


def planned_ahead(life: Life) -> None:
    """Spark counts a batch as done that we have not begun."""
    newest = life.newest("offsets")
    end = json.loads(newest.read_text().splitlines()[2])
    (life.spark / "offsets" / str(int(newest.name) + 1)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
    (life.spark / "commits" / str(int(newest.name) + 1)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def counted_without_a_plan(life: Life) -> None:
    """Spark counts a batch as done that we have not begun, and its plan never reached the disk."""
    newest = int(life.newest("offsets").name)
    (life.spark / "commits" / str(newest + 1)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def plan_left_out(life: Life) -> None:
    """Of two batches that Spark has planned and we have not begun, the plan of the first never reached the disk."""
    newest = life.newest("offsets")
    (life.spark / "offsets" / str(int(newest.name) + 2)).write_text(newest.read_text())


def uncommitted(life: Life, batches: int = 2) -> None:
    """The ends of the newest batches reached the disk neither with us nor with Spark, which had planned them all."""
    commits = life.spark.parent / "commits"
    for path in sorted(commits.glob("[0-9]*.json"), key=lambda path: int(path.stem))[-batches:]:
        path.unlink()
        life.unpublish(int(path.stem))
    for path in (life.spark / "commits").iterdir():
        path.unlink()


DAMAGES: list[Callable[[Life], None]] = [
    lost, behind, torn, uncounted, replanned, planned_ahead, counted_without_a_plan, plan_left_out,
    uncommitted,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize(
    ("files_a_batch", "task_bytes"),
    [(2, WHOLE), (100, IN_PARTS), *(pytest.param(*one, marks=pytest.mark.long) for one in ((2, IN_PARTS), (100, WHOLE)))],
)
def test_run_continues_after_the_newest_commit_whatever_spark_knows(
    tmp_path: Path, damage: Callable[[Life], None], files_a_batch: int, task_bytes: int
) -> None:
    """With many files a batch, one that is planned again has other rows than before."""
    life = Life(tmp_path, files_a_batch, task_bytes)
    for files in (3, 4):
        life.add_files(files)
        life.run()
    life.add_files(2)
    life.run(Until(batches=2))  # leaves the rest of a batch that is read in parts
    damage(life)
    life.add_files(5)
    life.check()
    life.add_files(1)
    life.check()


def test_nothing_is_left_out_if_of_several_planned_batches_none_was_committed(tmp_path: Path) -> None:
    life = Life(tmp_path, files_a_batch=2)
    life.add_files(4)
    life.run()
    uncommitted(life, 100)
    life.check()


@deep(gate=4, long=8)
@given(
    files_a_batch=st.sampled_from([1, 2, 100]),
    task_bytes=st.sampled_from([WHOLE, 200, IN_PARTS]),
    story=st.lists(
        st.tuples(st.integers(0, 5), st.none() | st.integers(1, 3), st.none() | st.sampled_from(DAMAGES)),
        min_size=2,
        max_size=6,
    ),
)
def test_every_row_counts_once_through_any_sequence_of_runs_and_damages(
    tmp_path_factory: pytest.TempPathFactory,
    files_a_batch: int,
    task_bytes: int,
    story: list[tuple[int, int | None, Callable[[Life], None] | None]],
) -> None:
    life = Life(tmp_path_factory.mktemp("life"), files_a_batch, task_bytes)
    life.add_files(4)
    life.run()
    for files, batches, damage in story:
        if damage is not None and all(len(list((life.spark / log).iterdir())) > 2 for log in ("offsets", "commits")):
            damage(life)
        life.add_files(files)
        life.run(Until(batches=batches))
    life.check()


def test_records_say_where_a_batch_ends_in_its_sources(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.add_files(3)
    flow = life.run()
    assert flow.last.end.positions == {"s": 3}
    assert [record.sources["end"] for record in flow.checkpoint.batch_records(1)] == [{"s": 3}]
    known = flow.last.end_digest
    others = (replace(flow.last, watermark_after=7.0), replace(flow.last, end=replace(flow.last.end, positions={"s": 4})))
    assert known is not None
    assert known not in {other.end_digest for other in others}
    assert known == replace(flow.last, attempt=2, epoch=9, rows_in=0).end_digest, "other attempts at it are the same batch"


def commit(spark_batch: int, offsets: str | None) -> CommitRecord:
    end = SourceEnd({}, offsets)
    return CommitRecord(spark_batch, 1, 1, spark_batch, {}, {}, None, {}, 0, end=end)


def test_a_log_that_agrees_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for number in range(3):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{number}")
    assert not SparkOffsets(tmp_path).agree_with(commit(1, "v1\n{}\n1"))
    assert sorted(path.name for path in (tmp_path / "offsets").iterdir()) == ["0", "1", "2"]


@pytest.mark.parametrize("newest", [None, 0])
def test_of_several_plans_that_follow_the_newest_commit_the_first_is_kept(tmp_path: Path, newest: int | None) -> None:
    """Spark begins with the newest that it has planned, and would leave out those before."""
    (tmp_path / "offsets").mkdir()
    for number in range(5):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{number}")
    last = None if newest is None else commit(newest, f"v1\n{{}}\n{newest}")
    assert SparkOffsets(tmp_path).agree_with(last)
    kept = range(1) if newest is None else range(newest + 2)
    assert sorted(int(path.name) for path in (tmp_path / "offsets").iterdir()) == [*kept]
    assert not SparkOffsets(tmp_path).agree_with(last)


def test_plans_of_another_history_are_dropped(tmp_path: Path) -> None:
    """Sources that Spark reads itself continue by its log alone."""
    (tmp_path / "offsets").mkdir()
    for number in range(4):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{10 * number}")
    (tmp_path / "offsets" / ".1.crc").write_text("of the other one")
    assert SparkOffsets(tmp_path).agree_with(commit(2, "v1\n{}\n7"))
    assert {path.name: path.read_text() for path in (tmp_path / "offsets").iterdir()} == {
        "0": "v1\n{}\n0", "1": "v1\n{}\n10", "2": "v1\n{}\n7",
    }  # fmt: skip
    assert (tmp_path / "commits" / "2").exists()
