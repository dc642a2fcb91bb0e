"""State pre-copied before its switch: the switch takes in the copies and what changed since, and nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep
from support.stages import SLOTS, Flow, Loss, manifest, random_table

from streamtopology.jobs.rerouting.movement import moving_bytes
from streamtopology.jobs.rerouting.precopy_job import LeaseReleased, migrate
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable

KEYS = 200


def counting() -> dict[str, Any]:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    return manifest([operator], {"s": "k BIGINT"})


def table(seed: int) -> RoutingTable:
    return random_table(np.random.default_rng(seed), SLOTS, hash_int64(np.arange(KEYS)))


def rows_of(seed: int, number: int = 300) -> pa.Table:
    return pa.table({"k": np.random.default_rng(seed).integers(0, KEYS, number)})


def counted(*batches: pa.Table) -> Counter[int]:
    return sum((Counter(batch["k"].to_pylist()) for batch in batches), Counter[int]())


def counts(flow: Flow) -> dict[int, int]:
    return {row["k"]: row["count"] for row in flow.state("n")}


def files_of(flow: Flow) -> list[str]:
    return [path.relative_to(flow.checkpoint.uri).as_posix() for path in Path(flow.checkpoint.uri).rglob("*") if path.is_file()]


def quietly(text: str) -> None:
    """Progress that nobody reads."""


@deep(gate=10, long=25)
@given(
    between=st.integers(0, 3),
    after=st.integers(0, 2),
    losses=st.lists(st.sampled_from(["in time", "late"]), max_size=2),
    restarted=st.booleans(),
    forgets=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_plan_whose_state_is_copied_ahead_changes_no_count(
    tmp_path_factory: pytest.TempPathFactory,
    between: int,
    after: int,
    losses: list[str],
    restarted: bool,
    forgets: bool,
    seed: int,
) -> None:
    flow = Flow(tmp_path_factory.mktemp("flow"), counting())
    seen = [rows_of(seed), rows_of(seed + 1)]
    for rows in seen:
        flow.batch(s=rows)
    epoch = flow.router.prepare({"n": table(seed)})
    for number in range(between + after):
        if number == between:
            migrate(flow.checkpoint, epoch, quietly)
        seen.append(rows_of(seed + 2 + number, 40))
        flow.batch(s=seen[-1])
    migrate(flow.checkpoint, epoch, quietly)
    flow.router.copied()
    flow.losses = [Loss(1 if when == "in time" else 2, number) for number, when in enumerate(losses)]
    seen.append(rows_of(seed + 9, 50))
    commit = flow.batch(s=seen[-1])
    assert commit.epoch == epoch
    copies = [path for ref in commit.state["n"].values() for path in ref.deltas if f"-e{epoch}-" in path]
    assert copies, "the copies are part of the state now"
    assert counts(flow) == counted(*seen)
    if forgets:
        for slot in flow.slots:
            flow.forget(slot)
    if restarted:
        flow.start(counting())
    for number in range(2):
        seen.append(rows_of(seed + 20 + number))
        flow.batch(s=seen[-1])
        assert counts(flow) == counted(*seen)
    assert flow.checkpoint.precopies.leases() == []


@pytest.mark.parametrize("damage", ["a byte", "gone", "cut short"])
def test_a_copy_that_cannot_be_used_costs_an_attempt(tmp_path: Path, damage: str) -> None:
    """The state it was made from is whole: it moves with the batch, as without a copy."""
    flow = Flow(tmp_path, counting())
    seen = [rows_of(1), rows_of(2)]
    for rows in seen:
        flow.batch(s=rows)
    epoch = flow.router.prepare({"n": table(3)})
    copied = migrate(flow.checkpoint, epoch, quietly)
    flow.router.copied()
    path = Path(flow.checkpoint.uri, next(file.path for part in copied.parts for file in part.files))
    if damage == "a byte":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:10])
    seen.append(rows_of(4))
    commit = flow.batch(s=seen[-1])
    assert (commit.epoch, commit.attempt) == (epoch, 2)
    assert path.name in flow.reported[-1]
    assert "the state moves with the batches" in flow.reported[-1]
    assert counts(flow) == counted(*seen)
    assert flow.checkpoint.precopies.leases() == []
    flow.start(counting())
    seen.append(rows_of(5))
    flow.batch(s=seen[-1])
    assert counts(flow) == counted(*seen)


def test_the_switch_writes_only_what_changed_since_the_copy(tmp_path: Path) -> None:
    flow = Flow(tmp_path, counting())
    flow.batch(s=pa.table({"k": list(range(20_000))}))
    buckets = flow.router.plan.epoch.routes["n"].table.buckets.copy()
    buckets[::8] = (buckets[::8] + 1) % SLOTS
    epoch = flow.router.prepare({"n": RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), buckets)})
    copied = migrate(flow.checkpoint, epoch, quietly)
    moved = sum(part.bytes for part in copied.parts)
    assert sum(part.keys for part in copied.parts) == pytest.approx(20_000 / 8, rel=0.1)
    flow.batch(s=pa.table({"k": [1, 2, 3]}))
    flow.router.copied()
    before = set(Path(flow.checkpoint.uri).rglob("*.delta"))
    flow.batch(s=pa.table({"k": [4, 5]}))
    switch = sum(path.stat().st_size for path in set(Path(flow.checkpoint.uri).rglob("*.delta")) - before)
    marks = SLOTS * 4_000  # each instance's delta says under which table it let go of others' keys
    assert switch < marks + 1_000
    assert moved + switch < 1.3 * moved
    results = flow.router.done[-1].results
    assert results.keys_moved["n"] == sum(part.keys for part in copied.parts)
    assert results.bytes_moved["n"] >= moved


def test_the_switch_reads_no_deltas_to_know_what_changed(tmp_path: Path) -> None:
    flow = Flow(tmp_path, counting())
    seen = [rows_of(1), rows_of(2)]
    flow.batch(s=seen[0])
    epoch = flow.router.prepare({"n": table(3)})
    migrate(flow.checkpoint, epoch, quietly)
    flow.batch(s=seen[1])
    flow.router.copied()
    state = Path(flow.checkpoint.uri, "state")
    deltas = [path for path in state.rglob("*.delta") if f"-e{epoch}-" not in path.name]
    for path in deltas:
        path.rename(path.with_suffix(".away"))
    seen.append(rows_of(3))
    assert flow.batch(s=seen[-1]).epoch == epoch
    for path in deltas:
        path.with_suffix(".away").rename(path)
    assert counts(flow) == counted(*seen)


def test_stopped_copy_resumes_and_may_run_twice(tmp_path: Path) -> None:
    flow = Flow(tmp_path, counting())
    flow.batch(s=rows_of(1))
    epoch = flow.router.prepare({"n": table(7)})

    class Stopped(Exception):
        pass

    reported: list[str] = []

    def stop_after_two(text: str) -> None:
        reported.append(text)
        if len(reported) == 2:
            raise Stopped

    with pytest.raises(Stopped):
        migrate(flow.checkpoint, epoch, stop_after_two)
    assert flow.checkpoint.precopies.parts_done(epoch) == 2
    assert flow.checkpoint.precopies.copied(epoch) is None
    made = {path: path.stat().st_mtime_ns for path in Path(flow.checkpoint.uri).rglob("*-e*.delta")}
    copied = migrate(flow.checkpoint, epoch, quietly)
    assert migrate(flow.checkpoint, epoch, quietly) == copied
    assert all(path.stat().st_mtime_ns == at for path, at in made.items())
    assert len(copied.parts) == SLOTS


def test_the_leased_version_outlives_many_batches_and_goes_with_the_epoch(tmp_path: Path) -> None:
    flow = Flow(tmp_path, counting())
    seen = [rows_of(0)]
    flow.batch(s=seen[0])
    epoch = flow.router.prepare({"n": table(3)})
    for number in range(1, 25):
        seen.append(rows_of(number, 20))
        flow.batch(s=seen[-1])
        flow.checkpoint.collect_garbage()
    migrate(flow.checkpoint, epoch, quietly)
    flow.router.copied()
    seen.append(rows_of(99))
    flow.batch(s=seen[-1])
    assert counts(flow) == counted(*seen)
    for number in range(30, 36):
        seen.append(rows_of(number))
        flow.batch(s=seen[-1])
    flow.driver.compaction.close()
    flow.checkpoint.collect_garbage()
    left = files_of(flow)
    assert not [path for path in left if path.startswith("migrations/") or path.endswith("/0-1.delta")]


def test_an_epoch_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    flow = Flow(tmp_path, counting())
    flow.batch(s=rows_of(0))
    epoch = flow.router.prepare({"n": table(3)})
    migrate(flow.checkpoint, epoch, quietly)
    flow.checkpoint.precopies.release(epoch)
    with pytest.raises(LeaseReleased, match=f"epoch {epoch} holds no lease"):
        migrate(flow.checkpoint, epoch, quietly)
    flow.router.reroute({"n": table(4)})
    seen = [rows_of(0)]
    for number in range(1, 8):
        seen.append(rows_of(number))
        flow.batch(s=seen[-1])
    flow.checkpoint.collect_garbage()
    left = files_of(flow)
    assert not [
        path for path in left if path.startswith("migrations/") or f"-e{epoch}-" in path or path == f"epochs/{epoch}.json"
    ]
    assert counts(flow) == counted(*seen)


def test_a_copy_that_later_snapshots_swallowed_is_not_used(tmp_path: Path) -> None:
    """A compaction that began just before the lease may hide deltas after it: then all state moves with the batch."""
    flow = Flow(tmp_path, counting())
    seen = [rows_of(0), rows_of(1)]
    flow.batch(s=seen[0])
    epoch = flow.router.prepare({"n": table(3)})
    last = flow.batch(s=seen[1])
    schema = flow.router.plan.compile().node("n").state
    assert schema is not None
    covered = last.state["n"][0]
    snapshot = flow.checkpoint.compact(covered, schema)
    flow.driver.compaction.adopt = lambda state, compacted: {"n": {**state["n"], 0: state["n"][0].compacted(snapshot, covered)}}  # type: ignore[method-assign]
    seen.append(rows_of(2))
    flow.batch(s=seen[-1])
    del flow.driver.compaction.adopt
    migrate(flow.checkpoint, epoch, quietly)
    flow.router.copied()
    seen.append(rows_of(4))
    flow.batch(s=seen[-1])
    assert flow.router.done[-1].attempt.precopied_at is None
    assert counts(flow) == counted(*seen)


def test_moving_bytes_are_estimated_from_shares_of_buckets(tmp_path: Path) -> None:
    flow = Flow(tmp_path, counting())
    commit = flow.batch(s=pa.table({"k": list(range(5_000))}))
    before = flow.router.plan.epoch
    buckets = before.routes["n"].table.buckets.copy()
    buckets[buckets == 0] = 1
    flow.router.reroute({"n": RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), buckets)})
    assert moving_bytes(flow.router.plan.epoch, commit, ["n"], before) == commit.state["n"][0].bytes
    assert moving_bytes(before, commit, ["n"], before) == 0
