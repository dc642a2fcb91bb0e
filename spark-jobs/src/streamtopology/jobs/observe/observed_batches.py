"""The batches of a run as a controller outside of the driver observes them, within the size of one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.routing.control import observed
from streamtopology.routing.control.feed import CommittedBatch
from streamtopology.routing.control.window import MAX_BATCHES, MIN_BATCHES
from streamtopology.routing.load.load_report import HEAVY_KEYS
from streamtopology.routing.load.load_sum import sums_of

# Timings of all batches in an answer, 11 bytes each when packed: 15 batches of 100 executors and four stages.
MOST_TIMINGS = 6_000

# Heavy keys of all operators in an answer, 12 bytes each when packed.
MOST_KEYS = 8_192

# Key pairs of all operators in an answer, 18 bytes each when packed.
MOST_PAIRS = 4_096


def observed_batches(batches: Sequence[BatchOutcome], since: int) -> dict[str, Any] | None:
    """The wire form of those after number `since`, the newest that fit into an answer; None if there are none.

    `batches`: all that are known, oldest first. The first of an epoch is not in the sums of loads, as it moved state or
    compiled; batches that moved state in portions are left out.
    """
    asked = _newest([batch for batch in batches if batch.number > since and not batch.moving])
    if not asked:
        return None
    figures = [_committed(batch).observed(with_loads=False) for batch in asked]
    usual = _usual(batches)
    for span in _spans([batch.epoch if batch.number in usual else None for batch in asked]):
        loads = _sums([asked[index] for index in span])
        figures[span[-1]] = replace(figures[span[-1]], loads=loads, batches=len(span))
    return observed.to_wire(figures)


def _newest(batches: Sequence[BatchOutcome]) -> list[BatchOutcome]:
    """As many as a window holds and an answer may have, but at least as many as a judgement needs."""
    chosen: list[BatchOutcome] = []
    timings = 0
    for batch in reversed(batches[-MAX_BATCHES:]):
        timings += len(batch.reports) + len(batch.source_reports)
        if timings > MOST_TIMINGS and len(chosen) >= MIN_BATCHES:
            break
        chosen.insert(0, batch)
    return chosen


def _usual(batches: Sequence[BatchOutcome]) -> set[int]:
    """The numbers of those that have reports and come after another one under their epoch."""
    return {batch.number for before, batch in pairwise(batches) if before.epoch == batch.epoch and batch.reports}


def _spans(epochs: Sequence[int | None]) -> list[list[int]]:
    """The indices of equal epochs without another one between them; None is in no span, and ends none."""
    spans: list[list[int]] = []
    for index, epoch in enumerate(epochs):
        if epoch is None:
            continue
        if spans and epochs[spans[-1][0]] == epoch:
            spans[-1].append(index)
        else:
            spans.append([index])
    return spans


def _sums(batches: Sequence[BatchOutcome]) -> dict[str, Any]:
    reports = [report for batch in batches for report in batch.reports]
    operators = len({report.operator for report in reports})
    return dict(sums_of(reports, min(HEAVY_KEYS, MOST_KEYS // operators), MOST_PAIRS // operators))


def _committed(batch: BatchOutcome) -> CommittedBatch:
    return CommittedBatch(
        number=batch.number,
        epoch=batch.epoch,
        seconds=batch.seconds,
        reports=batch.reports,
        source_reports=batch.source_reports,
        committed_at=batch.committed_at,
        moving=batch.moving,
        remote_seconds=batch.remote_seconds,
    )
