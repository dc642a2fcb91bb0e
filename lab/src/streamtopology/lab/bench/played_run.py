"""A run that is played: batches with the reports of real ones, at the pace of a clock, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streamtopology.contract.phases import Phase
from streamtopology.contract.reasons import EpochCause, EpochReason
from streamtopology.contract.stats import LiveExecutor, Slot
from streamtopology.contract.stats_question import Question
from streamtopology.jobs.observe.history import BatchOutcome, History
from streamtopology.jobs.observe.stats import Standing, build_stats
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport, SourceReport
from streamtopology.routing.table.table import BUCKETS, RoutingTable

ROWS, KEYS, HEAVY_KEYS = 50_000, 20_000, 256
BATCH_SECONDS = 1.0
# Batches that differ; they come again and again.
DRAWN = 16

OPERATOR = "counts"
SLOTS = tuple(
    Slot(number, executor, class_name, cpu)
    for number, (executor, class_name, cpu) in enumerate(
        [("large-0", "large", 0.4), ("large-1", "large", 0.4), ("small-0", "small", 0.15)]
    )
)


class PlayedRun:
    """A run of one counting operator on three executors that is in balance. `clock`: seconds since 1970."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        table = RoutingTable.uniform(range(len(SLOTS)))
        route = Route("mixed", table, tuple(range(len(SLOTS))))
        self._epoch = Epoch(1, {OPERATOR: route}, (), EpochReason(EpochCause.FIRST))
        self._drawn = _draw(table)
        self._history = History("", SLOTS, {OPERATOR: "mixed"})
        self._history.enter(Phase.RUNNING)
        self._answers: dict[tuple[int, Question], dict[str, Any]] = {}

    def stats(self, topology: str, generation: int, asked: Question) -> dict[str, Any]:
        """The answer of this topology's driver now."""
        newest = self._catch_up()
        if (newest, asked) not in self._answers:
            self._answers = {known: answer for known, answer in self._answers.items() if known[0] == newest}
            standing = Standing(self._epoch, newest_epoch=1, checkpoint="/checkpoint")
            self._answers[newest, asked] = build_stats(self._history, standing, asked)
        executors = [
            vars(LiveExecutor(str(slot.index), slot.class_name, f"{topology}-{slot.executor}", slot.index, admitted=True))
            for slot in SLOTS
        ]
        there = [{**{"class" if name == "class_name" else name: value for name, value in one.items()}} for one in executors]
        return {**self._answers[newest, asked], "topology": topology, "generation": generation, "executors": there}

    def _catch_up(self) -> int:
        """Commit what is due; returns the number of the last batch."""
        due = int((self._clock() - self._began) / BATCH_SECONDS)
        for number in range(self._history.totals.batches, due + 1):
            at = self._began + number * BATCH_SECONDS
            self._history.batch_done(replace(self._drawn[number % DRAWN], number=number, committed_at=at))
        return due


def _draw(table: RoutingTable) -> list[BatchOutcome]:
    rng = np.random.default_rng(7)
    hashes = np.sort(rng.integers(0, 2**64, KEYS, dtype=np.uint64))
    shares = rng.permutation(1 / np.arange(10, KEYS + 10))
    owners = table.lookup(hashes)
    batches: list[BatchOutcome] = []
    for number in range(DRAWN):
        rows = rng.multinomial(ROWS, shares / shares.sum())
        reports = [_report(slot.index, hashes, np.where(owners == slot.index, rows, 0), rng) for slot in SLOTS]
        sources = [SourceReport(slot.index, ROWS // len(SLOTS), 0.05, 0.06) for slot in SLOTS]
        batches.append(
            BatchOutcome(
                number=number,
                epoch=1,
                rows=ROWS,
                seconds=BATCH_SECONDS,
                committed_at=0.0,
                reports=tuple(reports),
                source_reports=tuple(sources),
            )
        )
    return batches


def _report(instance: int, hashes: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> LoadReport:
    """An instance as fast as its load asks for: the run is in balance, but for some noise."""
    heavy = np.sort(np.argsort(-rows, kind="stable")[:HEAVY_KEYS])
    light = rows.copy()
    light[heavy] = 0
    busy = 0.5 * float(rng.lognormal(0, 0.01))
    return LoadReport(
        operator=OPERATOR,
        instance=instance,
        slot=instance,
        rows=int(rows.sum()),
        busy_seconds=busy,
        task_seconds=busy + 0.05,
        state_keys=int(np.count_nonzero(rows)),
        state_bytes=48 * int(np.count_nonzero(rows)),
        heavy_hashes=hashes[heavy],
        heavy_rows=rows[heavy].astype(np.int64),
        heavy_seconds=np.zeros(len(heavy)),
        heavy_bytes=np.full(len(heavy), 48, np.int64),
        heavy_labels=tuple(str(key) for key in heavy),
        bucket_rows=BucketRows.of_keys(hashes, light, BUCKETS),
    )
