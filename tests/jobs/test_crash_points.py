"""Every crash point: the process really dies there, its successor continues, and every row counts once in state and sink.

A life is a driver, its workers and the sinks in one process, from the checkpoint as the last one left it. Spark is not
part of it: what Spark does in a crash, the runs on a real cluster show (tests/runs).
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from support.depth import deep
from support.processes import killed_in
from support.stages import SLOTS, Flow, manifest, random_table

from streamtopology.contract.errors import UnknownFailpoint
from streamtopology.jobs import failpoints
from streamtopology.jobs.checkpoint import Checkpoint, open_store
from streamtopology.jobs.connectors.sinks import BatchSink, Writer
from streamtopology.jobs.connectors.sinks.folder import FolderSink, write_parquet
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.failpoints import POINTS, arm
from streamtopology.jobs.rerouting.precopy_job import migrate
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.s3 import S3Server

pytest_plugins = ("support.s3",)

BATCHES = 14
KEYS = 60
COMMITS_KEPT = 3
# The state of these keys moves in two or three portions.
PORTION = 4000

# Lives of about three deaths each, at points of different steps.
LIVES = 9
# The others: tests/jobs/test_kafka.py, tests/jobs/test_lookup_tables.py, tests/jobs/test_partitioned_sinks.py.
IN_A_LIFE = [point for point in POINTS if not point.startswith(("kafka.", "sink.placing", "table."))]


def keys_of(batch: int) -> list[int]:
    return np.minimum(np.random.default_rng(batch).zipf(1.3, 200), KEYS).tolist()


def counting() -> dict[str, Any]:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    return manifest([operator], {"s": "k BIGINT"}, migration={"portion": PORTION})


def compacting_often(checkpoint: Checkpoint) -> Compaction:
    return Compaction(checkpoint, most_deltas=3, commits_per_sweep=4)


def life(folder: Path, crash_at: str | None, uri: str | None = None) -> None:
    """Continue from the checkpoint until all batches are committed, re-routing now and then; chains of deltas stay short."""

    def sink(name: str, checkpoint: Checkpoint) -> BatchSink:
        return FolderSink(folder / "out", ".parquet", write_parquet, Writer("flow", checkpoint.run))

    arm(crash_at)
    flow = Flow(folder, counting(), sink=sink, checkpoint=uri, compaction=compacting_often)
    last = flow.checkpoint.last_commit()
    for batch in range(0 if last is None else last.spark_batch + 1, BATCHES):
        copy_ahead(flow, batch)
        if batch % 5 == 4:
            flow.router.reroute({"n": table_at(batch)})
        flow.batch(s=pa.table({"k": keys_of(batch)}))
    flow.driver.compaction.close()


def table_at(batch: int) -> RoutingTable:
    return random_table(np.random.default_rng(batch), SLOTS, hash_int64(np.arange(KEYS)))


def copy_ahead(flow: Flow, batch: int) -> None:
    """Before every fifth batch a plan is prepared; two batches later what it moves is copied, and it is ready.

    It has one batch for a first portion before the next plan, which is not copied, takes its place.
    """
    if batch % 5 == 1 and batch > 1 and flow.last.switch is None:
        flow.router.prepare({"n": table_at(batch)})
    elif batch % 5 == 3 and batch > 5:
        epoch = flow.router.prepared.epoch.number if flow.router.prepared else flow.router.take_up_prepared()
        if epoch is not None and flow.checkpoint.precopies.lease(epoch):
            migrate(flow.checkpoint, epoch, lambda text: None)
            flow.router.copied()


def check(folder: Path, uri: str | None = None) -> None:
    """State and sink say what a plain count says, and nothing lies around that no one needs."""
    expected = Counter(key for batch in range(BATCHES) for key in keys_of(batch))
    flow = Flow(folder, counting(), checkpoint=uri)
    assert flow.last.spark_batch == flow.last.batch == BATCHES - 1
    assert {row["k"]: row["count"] for row in flow.state("n")} == expected
    seen: dict[int, int] = {}
    for batch, path in enumerate(sorted((folder / "out").glob("*.parquet"))):
        rows = pq.read_table(path).to_pylist()
        assert sorted(row["k"] for row in rows) == sorted(set(keys_of(batch)))
        seen.update((row["k"], row["count"]) for row in rows)
    assert seen == expected
    for _ in range(COMMITS_KEPT):  # what a death in the last batches left becomes old
        flow.batch(s=pa.table({"k": [1]}))
    flow.checkpoint.collect_garbage(COMMITS_KEPT)
    kept = [flow.checkpoint.read_commit(number) for number in flow.checkpoint.commits()]
    needed = set[str]().union(*(commit.paths() for commit in kept))
    unnamed = {path.removesuffix(".delta") + ".snapshot" for path in needed}  # snapshots that a commit may yet name
    left = open_store(flow.checkpoint.uri).list("")
    drafts = [path for path in left if path.endswith(".partial")]
    assert {re.sub(r"/\.(.+)\.[0-9a-f]{32}\.partial", r"/\1", path) for path in drafts} <= unnamed  # may be being written
    assert not [path for path in left if path.startswith("migrations/")]
    assert {path for path in left if path.startswith(("state/", "outputs/"))} <= needed | unnamed | {*drafts}


def test_the_life_itself_is_right(tmp_path: Path) -> None:
    assert not killed_in(lambda: life(tmp_path, None))
    check(tmp_path)


@pytest.mark.parametrize("points", [IN_A_LIFE[first::LIVES] for first in range(LIVES)], ids=",".join)
def test_a_death_at_any_point_costs_nothing(tmp_path: Path, points: list[str]) -> None:
    for point in points:
        assert killed_in(lambda point=point: life(tmp_path, point)), f"no step passes {point}"
    for point in points:
        killed_in(lambda point=point: life(tmp_path, f"{point}:2"))  # the successor may pass it less often
    assert not killed_in(lambda: life(tmp_path, None))
    check(tmp_path)


@pytest.mark.parametrize("points", [("state.written", "commit.written", "copy.written"), ("sink.placed", "garbage.deleting")])
def test_deaths_cost_nothing_where_the_checkpoint_is_in_a_bucket(
    tmp_path: Path, s3_server: S3Server, points: tuple[str, ...]
) -> None:
    uri = s3_server.uri()
    for point in points:
        assert killed_in(lambda point=point: life(tmp_path, point, uri)), f"no step passes {point}"
    assert not killed_in(lambda: life(tmp_path, None, uri))
    assert not killed_in(lambda: check(tmp_path, uri))  # in a fork, too: the s3 library's threads would not let us fork again


@deep(gate=4, long=8, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # lives are too long to shrink
@given(deaths=st.lists(st.tuples(st.sampled_from(IN_A_LIFE), st.integers(1, 12)), min_size=2, max_size=6))
def test_deaths_in_any_order_cost_nothing(tmp_path_factory: pytest.TempPathFactory, deaths: list[tuple[str, int]]) -> None:
    folder = tmp_path_factory.mktemp("lives")
    for point, nth in deaths:
        killed_in(lambda point=point, nth=nth: life(folder, f"{point}:{nth}"))
    assert not killed_in(lambda: life(folder, None))
    check(folder)


def test_a_switch_names_a_point_that_there_is() -> None:
    with pytest.raises(UnknownFailpoint, match=r"STREAMTOPOLOGY_CRASH_AT=commit\.done: .*commit\.written"):
        arm("commit.done")


def test_a_point_that_is_to_be_hit_once_leaves_successors_alone(tmp_path: Path) -> None:
    def pass_twice() -> None:
        arm(f"commit.written:2@{tmp_path / 'hit'}")
        failpoints.passing("commit.written")
        failpoints.passing("commit.writing")
        (tmp_path / "between").touch()
        failpoints.passing("commit.written")
        (tmp_path / "after").touch()

    assert killed_in(pass_twice)
    assert (tmp_path / "between").exists()
    assert not (tmp_path / "after").exists()
    assert not killed_in(pass_twice)
