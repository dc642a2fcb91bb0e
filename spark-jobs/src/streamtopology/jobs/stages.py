"""One attempt as one Spark action: read, then a pinned stage per level, reports back.

Between two stages each task's envelopes are exchanged by place, and pinned to the executor of that place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streamtopology.jobs.batch import Attempt
from streamtopology.jobs.envelope import Kind, sections
from streamtopology.jobs.learning import Told
from streamtopology.jobs.pinning import Sending, Slot, blob_counts_explained, blobs_of, exchanged, placed, stage
from streamtopology.jobs.tasks import FAILED, MOVED, SENT_DDL, SOURCE, TURN, node_stage, read_stage, rows_stage, state_stage
from streamtopology.routing.report import LoadReport, SourceReport


@dataclass(frozen=True)
class Turned:
    """What one instance's turn left: its load, its delta file, its staged outputs per sink; when it was over (epoch s).

    `adopted`: files copied ahead that its state now begins with. `learnt`: what the
    instance reports to the choosers of its operator, where these learn.
    """

    report: LoadReport
    delta: str | None
    outputs: Mapping[str, Sequence[str]]
    dead_letters: str | None
    left_at: float
    adopted: Sequence[str] = ()
    learnt: Mapping[str, Any] | None = None


@dataclass
class Results:
    """All that the tasks of an attempt told the driver."""

    turns: list[Turned] = field(default_factory=list)
    sources: list[SourceReport] = field(default_factory=list)
    sources_left_at: list[float] = field(default_factory=list)
    set_aside: list[Mapping[str, str]] = field(default_factory=list)  # rows of sources, as they go to the dead letters
    failures: list[Mapping[str, Any]] = field(default_factory=list)
    keys_moved: dict[str, int] = field(default_factory=dict)
    bytes_moved: dict[str, int] = field(default_factory=dict)

    @property
    def told(self) -> list[Told]:
        """What instances reported to choosers that learn."""
        return [(turned.report.operator, turned.learnt) for turned in self.turns if turned.learnt is not None]


def run_attempt(
    spark: SparkSession, attempt: Attempt, depth: int, executors: Sequence[Slot], frame: DataFrame | None,
    ahead: Sending | None = None,
) -> Results:  # fmt: skip
    """Run all stages; `frame` holds the rows of sources that Spark reads itself, None when there are none.

    `ahead` is what the first stage sends, where that was begun before. Raises whatever Spark raises; nothing of a failed
    attempt counts.
    """
    sending = _first_stage(spark, attempt, executors, frame) if ahead is None else _with_state(spark, attempt, executors, ahead)
    for level in range(1, depth):
        sending = Sending(stage(exchanged(sending, executors), node_stage(attempt, level)), attempt.places)
    last = stage(exchanged(sending, executors), node_stage(attempt, depth, is_last=True))
    with blob_counts_explained():
        return collect(last.collect())


def read_ahead(spark: SparkSession, attempt: Attempt, executors: Sequence[Slot]) -> Sending:
    """Begin the first stage of an attempt to come; it runs where executors have nothing else to do."""
    sending = _first_stage(spark, attempt, executors, None)
    sending.begin()
    return sending


def _first_stage(spark: SparkSession, attempt: Attempt, executors: Sequence[Slot], frame: DataFrame | None) -> Sending:
    sent = stage(placed(spark, [executors[place] for place in attempt.readers]), read_stage(attempt))
    if frame is not None:
        sent = sent.union(blobs_of(frame.mapInArrow(rows_stage(attempt), SENT_DDL)))
    return Sending(sent, attempt.places)


def _with_state(spark: SparkSession, attempt: Attempt, executors: Sequence[Slot], ahead: Sending) -> Sending:
    """What was read ahead, and the state that this attempt hands over."""
    if not attempt.hands_over:
        return ahead
    return ahead.beside(Sending(stage(placed(spark, executors), state_stage(attempt)), attempt.places))


def collect(blobs: Iterable[bytes]) -> Results:
    """Read the envelopes that the last stage returned."""
    results = Results()
    for blob in blobs:
        for section in sections(pa.py_buffer(blob)):
            if section.kind is Kind.REPORT:
                _add(results, section.payload.to_pybytes())
    results.turns.sort(key=lambda turned: (turned.report.operator, turned.report.instance))
    return results


def between_barriers(results: Results, started_at: float, level_of: Callable[[str], int], read_ahead: bool) -> Results:
    """`results` with each task's seconds counted from the barrier before its stage to its own end.

    A task does not see what Spark does before and after it on its executor, which on a slow one is most of a turn's fixed
    seconds. The stage before ends for all when its slowest task does. `started_at`: epoch seconds, by the same clocks.
    Sources that were `read_ahead` may have been left before that.
    """
    sources = [
        replace(report, task_seconds=max(left - started_at, report.busy_seconds), ahead=read_ahead)
        for report, left in zip(results.sources, results.sources_left_at, strict=True)
    ]
    barrier = max(started_at, *results.sources_left_at)
    turns: list[Turned] = []
    for level in sorted({level_of(turned.report.operator) for turned in results.turns}):
        here = [turned for turned in results.turns if level_of(turned.report.operator) == level]
        for slot in {turned.report.slot for turned in here}:
            turns.extend(_share_stage([turned for turned in here if turned.report.slot == slot], barrier))
        barrier = max(turned.left_at for turned in here)
    turns.sort(key=lambda turned: (turned.report.operator, turned.report.instance))
    return replace(results, turns=turns, sources=sources)


def _share_stage(of_slot: list[Turned], barrier: float) -> list[Turned]:
    """The turns of one slot in one stage, with an equal part each of what the stage took beside their work."""
    busy = sum(turned.report.busy_seconds for turned in of_slot)
    beside = max(max(turned.left_at for turned in of_slot) - barrier - busy, 0.0) / len(of_slot)
    return [
        replace(turned, report=replace(turned.report, task_seconds=turned.report.busy_seconds + beside)) for turned in of_slot
    ]


def _add(results: Results, report: bytes) -> None:
    kind, wire = report[:1], json.loads(report[1:])
    if kind == TURN:
        load = LoadReport.from_wire(wire["report"])
        results.turns.append(
            Turned(
                load, wire["delta"], wire["outputs"], wire["dead"], wire["left_at"], wire["adopted"], wire["learnt"]
            )
        )  # fmt: skip
    elif kind == SOURCE:
        results.sources.append(SourceReport.from_wire(wire["report"]))
        results.sources_left_at.append(wire["left_at"])
        results.set_aside.extend(wire["set_aside"])
    elif kind == FAILED:
        results.failures.append(wire)
    elif kind == MOVED:
        for node, keys, size in wire:
            results.keys_moved[node] = results.keys_moved.get(node, 0) + keys
            results.bytes_moved[node] = results.bytes_moved.get(node, 0) + size
    else:
        raise ValueError(f"unknown report {kind!r}: driver and executors run different versions")
