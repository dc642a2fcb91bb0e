"""One attempt as one Spark action: read, then a pinned stage per level, reports back.

Every stage is `mapInArrow`; between two stages each task's envelopes are shuffled by place and pinned to the executor of
that place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streamtopology.jobs.batch import Attempt
from streamtopology.jobs.envelope import Kind, sections
from streamtopology.jobs.exchange import BLOB_DDL, blobs
from streamtopology.jobs.pinning import Slot, partition_count, pin, row_counts_explained
from streamtopology.jobs.tasks import FAILED, MOVED, SOURCE, TURN, node_stage, read_stage, rows_stage
from streamtopology.routing.report import LoadReport, SourceReport


@dataclass(frozen=True)
class Turned:
    """What one instance's turn left: its load, its delta file, its staged outputs per sink."""

    report: LoadReport
    delta: str | None
    outputs: Mapping[str, Sequence[str]]
    dead_letters: str | None


@dataclass
class Results:
    """All that the tasks of an attempt told the driver."""

    turns: list[Turned] = field(default_factory=list)
    sources: list[SourceReport] = field(default_factory=list)
    failures: list[Mapping[str, Any]] = field(default_factory=list)
    keys_moved: dict[str, int] = field(default_factory=dict)
    bytes_moved: dict[str, int] = field(default_factory=dict)


def run_attempt(
    spark: SparkSession, attempt: Attempt, depth: int, executors: Sequence[Slot], frame: DataFrame | None
) -> Results:
    """Run all stages; `frame` holds the rows of sources that Spark reads itself, None when there are none.

    Raises whatever Spark raises; nothing of a failed attempt counts.
    """
    places = attempt.places
    anchors = spark.range(0, places, 1, places)
    stage = pin(anchors, executors, 1).mapInArrow(read_stage(attempt), BLOB_DDL)
    arriving = places
    if frame is not None:
        stage = stage.union(frame.mapInArrow(rows_stage(attempt, places), BLOB_DDL))
        arriving = partition_count(stage)
    for level in range(1, depth + 1):
        stage = pin(stage.repartitionById(places, "place"), executors, arriving)
        stage = stage.mapInArrow(node_stage(attempt, level), BLOB_DDL)
        arriving = places
    with row_counts_explained():
        return collect(stage.toArrow())


def collect(rows: pa.Table) -> Results:
    """Read the envelopes that the last stage returned."""
    results = Results()
    for blob in blobs(iter(rows.to_batches())):
        for section in sections(blob):
            if section.kind is Kind.REPORT:
                _add(results, section.payload.to_pybytes())
    results.turns.sort(key=lambda turned: (turned.report.operator, turned.report.instance))
    results.sources.sort(key=lambda report: report.slot)
    return results


def _add(results: Results, report: bytes) -> None:
    kind, wire = report[:1], json.loads(report[1:])
    if kind == TURN:
        turned = Turned(LoadReport.from_wire(wire["report"]), wire["delta"], wire["outputs"], wire["dead"])
        results.turns.append(turned)
    elif kind == SOURCE:
        results.sources.append(SourceReport.from_wire(wire))
    elif kind == FAILED:
        results.failures.append(wire)
    elif kind == MOVED:
        for node, keys, size in wire:
            results.keys_moved[node] = results.keys_moved.get(node, 0) + keys
            results.bytes_moved[node] = results.bytes_moved.get(node, 0) + size
    else:
        raise ValueError(f"unknown report {kind!r}: driver and executors run different versions")
