"""Sources that are removed from a manifest and come back: they continue where they were left, and no row counts twice."""

from __future__ import annotations

from collections import Counter
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

from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.runtime.carried_positions import refuse_other_sources
from streamtopology.topology import Topology, parse

KEYS = 7
BOTH = ("a", "b")


class Life:
    """A count of the rows of folders, which are sources of their names as far as each run's manifest has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.added: dict[str, int] = dict.fromkeys(BOTH, 0)
        for name in BOTH:
            (folder / name).mkdir(parents=True)
        self.flow: Flow | None = None

    def add_files(self, name: str, count: int = 1) -> None:
        for _ in range(count):
            number = self.added[name]
            pq.write_table(pa.table({"k": [number % KEYS, 99]}), self.folder / name / f"{number:04}.parquet")
            self.added[name] += 1

    def manifest(self, *sources: str, **changed: Any) -> dict[str, Any]:
        operator = {"name": "n", "inputs": list(sources), "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
        made = manifest([operator], dict.fromkeys(sources, "k BIGINT"), trigger={"availableNow": True})
        for source in made["spec"]["sources"]:
            source["options"] = {"path": str(self.folder / source["name"]), "maxFilesPerTrigger": "1"}
            if source["name"] == "b":
                source |= changed
        return made

    def start(self, *sources: str, **changed: Any) -> Flow:
        if self.flow is None:
            self.flow = Flow(self.folder, self.manifest(*sources, **changed))
        else:
            self.flow.reported.clear()
            self.flow.start(self.manifest(*sources, **changed))
        return self.flow

    def run(self, *sources: str) -> Flow:
        flow = self.start(*sources)
        run_query(flow)
        return flow

    def check(self) -> None:
        """Every row of every file counts once, as soon as all sources are there."""
        expected = Counter(key for count in self.added.values() for number in range(count) for key in (number % KEYS, 99))
        assert {row["k"]: row["count"] for row in self.run(*BOTH).state("n")} == expected


def test_source_that_comes_back_continues_where_it_was_left(tmp_path: Path) -> None:
    life = Life(tmp_path)
    for name in BOTH:
        life.add_files(name, 5)
    life.run("a", "b")
    life.run("a")
    for name in BOTH:
        life.add_files(name, 2)
    before = life.run("a").last.batch
    flow = life.run("a", "b")
    assert flow.reported == [
        "source 'b' was added again: it continues where it was left, after 5 files; under another name it is read from its "
        "start"
    ]
    life.check()
    read = [flow.checkpoint.read_commit(batch).rows_in for batch in flow.checkpoint.commits() if batch > before]
    assert sum(map(bool, read)) == 2, "one for each new file, and none over what was read before"


def test_start_names_files_that_were_changed_after_they_were_read(tmp_path: Path) -> None:
    """As an export that is written over each day: its rows are never read, and nothing was said."""
    life = Life(tmp_path)
    life.add_files("a", 3)
    assert life.run("a").reported == []
    for number in (1, 2):
        pq.write_table(pa.table({"k": [1, 2, 3]}), tmp_path / "a" / f"{number:04}.parquet")
    assert life.run("a").reported == [
        f"source 'a': {tmp_path}/a/0001.parquet (and 1 more) was changed after it was read, and rows that came into it since "
        "then are not read; write them to a file of another name"
    ]


steps = st.tuples(st.sampled_from([("a",), ("b",), ("a", "b"), ("b", "a")]), st.integers(0, 2), st.integers(0, 2))


@deep(gate=6, long=12)
@given(st.lists(steps, min_size=2, max_size=6))
def test_rows_count_once_through_any_removals(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[tuple[str, ...], int, int]]
) -> None:
    life = Life(tmp_path_factory.mktemp("life"))
    for name in BOTH:
        life.add_files(name)
    for sources, *counts in story:
        for name, count in zip(BOTH, counts, strict=True):
            life.add_files(name, count)
        life.run(*sources)
    life.check()


@pytest.mark.parametrize("meanwhile", [("a",), ("a", "b")])
def test_source_of_another_kind_needs_another_name(tmp_path: Path, meanwhile: tuple[str, ...]) -> None:
    life = Life(tmp_path)
    for name in BOTH:
        life.add_files(name)
    life.run("a", "b")
    life.run(*meanwhile)
    kafka = {"format": "kafka", "options": {"subscribe": "t", "kafka.bootstrap.servers": "nowhere:1"}}
    with pytest.raises(TopologyFailed) as refused:
        life.start("a", "b", **kafka, schema=None, select=['"offset" AS k'])
    assert str(refused.value) == (
        "source 'b' is of format kafka, but the checkpoint has read it up to 1 file: a position belongs to the name of a "
        "source. Give this one another name, under which it is read from its start, or go back to the former format"
    )


def ticks(name: str) -> dict[str, Any]:
    return {"name": name, "format": "rate", "options": {"rowsPerSecond": "1"}, "select": ["value AS k"]}


@pytest.mark.parametrize(("before", "after"), [([], ["x"]), (["x"], []), (["x", "y"], ["y", "x"]), (["x"], ["y"])])
def test_sources_that_spark_reads_stay_the_same_ones_in_one_order(tmp_path: Path, before: list[str], after: list[str]) -> None:
    """Spark's log has their positions by their order, and no names."""
    life = Life(tmp_path)
    life.add_files("a")
    flow = life.run("a")

    def with_ticks(names: list[str]) -> Topology:
        made = life.manifest("a")
        made["spec"]["sources"] += map(ticks, names)
        made["spec"]["operators"][0]["inputs"] += names
        return parse(made)

    refuse_other_sources(with_ticks(before), with_ticks(before), flow.last)
    with pytest.raises(TopologyFailed, match=r"the sources that Spark reads itself were .*, and are .*: Spark keeps their"):
        refuse_other_sources(with_ticks(before), with_ticks(after), flow.last)
