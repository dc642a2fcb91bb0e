"""Our commit records and Spark's offset log: where they differ ours win, and no row is dropped or counted twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep
from support.manifests import counting, manifest, memory_sink
from support.noting_driver import NotingDriver
from support.spark_stream import SparkStream

from streamtopology.jobs.checkpoint import CommitRecord, SourceEnd
from streamtopology.jobs.checkpoint.spark_log import SparkFolder
from streamtopology.jobs.checkpoint.spark_offsets import SparkOffsets
from streamtopology.jobs.runtime.streaming_query import TopologyQuery, Until
from streamtopology.topology import parse


class Life:
    """A topology over rows that Spark reads, in one run after another, with whatever happens to Spark's logs in between."""

    def __init__(self, folder: Path, rows_a_batch: int = 2) -> None:
        self._folder, self.spark = folder, folder / "spark"
        source = {"name": "rows", "format": "rate"}
        self._topology = parse(manifest("fake", [source], [counting()], [memory_sink("fake", "counts")], trigger={}))
        self._rows_a_batch = rows_a_batch
        self._rows = 0
        self._commits: list[CommitRecord] = []
        self._read: list[list[int]] = []

    def add_rows(self, count: int) -> None:
        self._rows += count

    def run(self, until: Until | None = None) -> None:
        last = self._commits[-1] if self._commits else None
        driver = NotingDriver(-1 if last is None else last.spark_batch)
        SparkOffsets(self.spark).agree_with(last)
        stream = SparkStream(self._rows, self._rows_a_batch)
        query = TopologyQuery(self._topology, {"rows": stream}, SparkFolder(self._folder), driver)  # type: ignore[arg-type]
        query.run(until or Until(), prepare=lambda: None)
        for one in driver.given:
            self._commits.append(commit(one.spark_batch, one.end.spark_offsets))
            self._read.append(list(one.rows))  # type: ignore[call-overload]

    def lose_commits(self, count: int) -> None:
        del self._commits[-count:], self._read[-count:]

    def check(self) -> None:
        """Run to the end of the input: every row counts once."""
        self.run()
        assert [row for rows in self._read for row in rows] == list(range(self._rows))

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
    newest.write_text(f"v1\n{{}}\n{int(newest.read_text().splitlines()[2]) - 1}")


def planned_ahead(life: Life) -> None:
    """Spark counts a batch as done that we have not begun."""
    newest = life.newest("offsets")
    (life.spark / "offsets" / str(int(newest.name) + 1)).write_text(newest.read_text())
    (life.spark / "commits" / str(int(newest.name) + 1)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def counted_without_a_plan(life: Life) -> None:
    """Spark counts a batch as done that we have not begun, and its plan never reached the disk."""
    newest = int(life.newest("offsets").name)
    (life.spark / "commits" / str(newest + 1)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def plan_left_out(life: Life) -> None:
    """Of two batches that Spark has planned and we have not begun, the plan of the first never reached the disk."""
    newest = life.newest("offsets")
    (life.spark / "offsets" / str(int(newest.name) + 2)).write_text(newest.read_text())


def uncommitted(life: Life) -> None:
    """The end of the newest batch reached the disk neither with us nor with Spark, which had planned it."""
    life.lose_commits(1)
    life.newest("commits").unlink()


DAMAGES: list[Callable[[Life], None]] = [
    lost, behind, torn, uncounted, replanned, planned_ahead, counted_without_a_plan, plan_left_out, uncommitted,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("rows_a_batch", [2, 100])
def test_run_continues_after_the_newest_commit_whatever_spark_knows(
    tmp_path: Path, damage: Callable[[Life], None], rows_a_batch: int
) -> None:
    """With many rows a batch, one that is planned again has other rows than before."""
    life = Life(tmp_path, rows_a_batch)
    for rows in (3, 4):
        life.add_rows(rows)
        life.run()
    life.add_rows(2)
    life.run(Until(batches=2))
    damage(life)
    life.add_rows(5)
    life.check()
    life.add_rows(1)
    life.check()


@deep(gate=10, long=200)
@given(
    rows_a_batch=st.sampled_from([1, 2, 100]),
    story=st.lists(
        st.tuples(st.integers(0, 5), st.none() | st.integers(1, 3), st.none() | st.sampled_from(DAMAGES)),
        min_size=2,
        max_size=6,
    ),
)
def test_every_row_counts_once_through_any_sequence_of_runs_and_damages(
    tmp_path_factory: pytest.TempPathFactory,
    rows_a_batch: int,
    story: list[tuple[int, int | None, Callable[[Life], None] | None]],
) -> None:
    life = Life(tmp_path_factory.mktemp("life"), rows_a_batch)
    life.add_rows(4)
    life.run()
    for rows, batches, damage in story:
        if damage is not None and all(len(list((life.spark / log).iterdir())) > 2 for log in ("offsets", "commits")):
            damage(life)
        life.add_rows(rows)
        life.run(Until(batches=batches))
    life.check()


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
