"""Snapshots take the place of deltas in the background, and no batch fails with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.stages import SLOTS, Flow, Loss, manifest
from support.stories import CHAIN, COUNTS, some_rows

from streamtopology.jobs.checkpoint.records import CommitRecord
from streamtopology.jobs.driver import compaction as driver_compaction
from streamtopology.jobs.driver.compaction import COMMITS_PER_SWEEP, SWEEPS_PER_TRIM, Compaction
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.worker.cache import WorkerCache

Rows = list[dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


class AtOnce(Executor):
    """Does what is submitted before `submit` returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done = Future[Any]()
        done.set_result(fn(*args, **kwargs))
        return done


def test_long_chains_of_deltas_become_snapshots_and_old_files_go(folder: Path) -> None:
    flow = Flow(folder, CHAIN, compaction=partial(Compaction, most_deltas=4, thread=AtOnce()))
    random = np.random.default_rng(1)
    seen: Rows = []
    for _ in range(2 * COMMITS_PER_SWEEP + 2):
        table = some_rows(random, 40)
        flow.batch(s=table)
        seen += table.to_pylist()
    references = [reference for instances in flow.last.state.values() for reference in instances.values()]
    assert all(reference.snapshot is not None for reference in references if reference.keys)
    assert max(len(reference.deltas) for reference in references) <= 5
    assert min(int(path.stem) for path in (folder / "checkpoint" / "commits").iterdir()) >= COMMITS_PER_SWEEP
    for instance in range(SLOTS):
        deltas = (folder / "checkpoint" / "state" / "counts" / str(instance)).glob("*.delta")
        assert min(int(path.stem.split("-")[0]) for path in deltas) > 4, "what the first snapshot covers has gone"
    flow.start(CHAIN)  # the state is now what the files say
    flow.batch(s=table)
    assert {row["k"]: row["count"] for row in flow.state("counts")} == Counter(row["k"] for row in seen + table.to_pylist())


def test_a_worker_reads_no_commit_record_while_nothing_is_asked_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def noted(cache: WorkerCache, attempt: Attempt) -> CommitRecord:
        read.append(attempt.number)
        return reading(cache, attempt)

    reading, random = WorkerCache.commit, np.random.default_rng(1)
    monkeypatch.setattr(WorkerCache, "commit", noted)
    flow = Flow(folder, CHAIN, compaction=partial(Compaction, most_deltas=6, thread=AtOnce()))
    for number in range(6):
        flow.batch(s=some_rows(random))
        assert not read, f"in batch {number} each worker has its state, and nobody asked for a snapshot"
    while not read:
        flow.batch(s=some_rows(random))


def test_snapshot_equals_its_deltas_while_batches_continue(folder: Path) -> None:
    waiting: list[Callable[[], None]] = []
    late = partial(WorkerCache, background=waiting.append)
    flow = Flow(folder, manifest([COUNTS], {"s": "k BIGINT"}), compaction=partial(Compaction, most_deltas=3), worker=late)
    for number in range(6):
        flow.batch(s=pa.table({"k": np.arange(number, 20)}))
    assert len(waiting) == SLOTS, "each worker makes one snapshot at a time"
    for work in list(waiting):
        work()
    before = flow.last.state["counts"]
    after = flow.batch(s=pa.table({"k": [1]})).state["counts"]
    schema = flow.router.plan.compile().node("counts").state
    assert schema is not None
    for instance, reference in after.items():
        assert reference.deltas[:2] == before[instance].deltas[4:], "four deltas were there when the driver asked"
        kept = flow.checkpoint.load_state(replace(reference, deltas=reference.deltas[:2]), schema).snapshot()
        expected = flow.checkpoint.load_state(before[instance], schema).snapshot()
        assert sorted(kept.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)
    assert {row["k"]: row["count"] for row in flow.state("counts")}[1] == 3


def test_compaction_that_a_worker_took_with_it_is_asked_for_again(folder: Path) -> None:
    lost: list[Callable[[], None]] = []
    new: list[WorkerCache] = [WorkerCache(lost.append) for _ in range(SLOTS)]
    flow = Flow(
        folder,
        manifest([COUNTS], {"s": "k BIGINT"}),
        compaction=partial(Compaction, most_deltas=3),
        worker=lambda: new.pop() if new else WorkerCache(),
    )
    for number in range(5):
        flow.batch(s=pa.table({"k": np.arange(number, 20)}))
    assert lost
    assert all(reference.snapshot is None for reference in flow.last.state["counts"].values())
    flow.losses = [Loss(1, slot) for slot in range(SLOTS)]
    for _ in range(2):
        flow.batch(s=pa.table({"k": np.arange(20)}))
    assert all(reference.snapshot is not None for reference in flow.last.state["counts"].values())


def test_failed_compaction_ends_no_batch_and_is_tried_again(folder: Path) -> None:
    reported: list[str] = []
    often = partial(Compaction, most_deltas=3, thread=AtOnce(), notify=reported.append)
    flow = Flow(folder, manifest([{**COUNTS, "parallelism": 1}], {"s": "k BIGINT"}), compaction=often)
    flow.batch(s=pa.table({"k": [1]}))
    (first,) = (folder / "checkpoint" / "state" / "counts" / "0").glob("*.delta")
    away = first.rename(folder / "away")
    for _ in range(9):
        flow.batch(s=pa.table({"k": [1]}))
    assert len(flow.last.state["counts"][0].deltas) == 10, "nothing is compacted, and every batch is committed"
    failures = [text for text in reported if "state of counts 0 could not be compacted" in text and str(first) in text]
    assert [text.partition("trying again after ")[2].partition(".")[0] for text in failures] == ["4 batches", "8 batches"]
    away.rename(first)
    for _ in range(10):
        flow.batch(s=pa.table({"k": [1]}))
    assert len(flow.last.state["counts"][0].deltas) < 10
    assert flow.state("counts") == [{"k": 1, "count": 20}]


def test_compaction_that_falls_behind_says_so_once_per_doubling(folder: Path) -> None:
    reported: list[str] = []

    soon = partial(Compaction, most_deltas=1, notify=reported.append)
    never = partial(WorkerCache, background=lambda work: None)
    flow = Flow(folder, manifest([{**COUNTS, "parallelism": 1}], {"s": "k BIGINT"}), compaction=soon, worker=never)
    for _ in range(20):
        flow.batch(s=pa.table({"k": [1]}))
    starts = [f"compaction is behind: state of counts 0 is in {deltas} deltas" for deltas in (9, 18)]
    assert [line[: len(start)] for line, start in zip(reported, starts, strict=True)] == starts


def test_idle_memory_is_given_back_once_in_many_sweeps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(driver_compaction, "give_back_idle_memory", lambda: given_back.append(flow.last.batch))
    flow = Flow(folder, CHAIN, compaction=partial(Compaction, commits_per_sweep=1, thread=AtOnce()))
    random = np.random.default_rng(1)
    for _ in range(2 * SWEEPS_PER_TRIM + 2):
        flow.batch(s=some_rows(random, 4))
    assert given_back == [SWEEPS_PER_TRIM - 1, 2 * SWEEPS_PER_TRIM - 1]
