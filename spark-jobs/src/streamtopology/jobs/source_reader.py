"""The source side of a first-stage task: rows by descriptor or from Spark, counted, timed, event times noted."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.batch import Attempt, Plan
from streamtopology.jobs.failures import RowFailed
from streamtopology.jobs.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.sources.reading import read_all
from streamtopology.jobs.sources.spark_source import TAG, untag

MOST_BAD_ROWS = 100


class SourceReader:
    """Reads for one task. `rows` so far; `max_event_time` per source with a watermark, epoch seconds.

    `set_aside`: rows on which select or where raised, as they go to the dead letters, where the topology wants that.
    """

    def __init__(self, plan: Plan, attempt: Attempt) -> None:
        self._started = time.perf_counter()
        self._topology = plan.topology
        self._attempt = attempt
        self._specs = {s.name: SourceSpec.of(s, plan.topology.name) for s in plan.topology.sources if s.reads_descriptors}
        self.rows = 0
        self.max_event_time: dict[str, float] = {}
        self.set_aside: list[dict[str, str]] = []

    def read(self, descriptors: Iterable[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """(source, rows) of descriptors in their JSON form, source by source."""
        wanted = [Descriptor.from_json(text) for text in descriptors]
        for name, spec in self._specs.items():
            mine = [descriptor for descriptor in wanted if descriptor.source == name]
            for batch in read_all(mine, spec, partial(self._bad_row, name)):
                self._note(name, batch)
                yield name, batch

    def untag(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """(source, rows) of a batch that Spark read: tagged when there are several sources."""
        if TAG in batch.schema.names:
            pairs = untag(batch)
        else:
            pairs = iter([(next(s.name for s in self._topology.sources if not s.reads_descriptors), batch)])
        for source, rows in pairs:
            self._note(source, rows)
            yield source, rows

    def seconds(self) -> float:
        """Time since this task began to read: reading, selecting and routing."""
        return time.perf_counter() - self._started

    @property
    def bad_rows(self) -> dict[str, int]:
        """How many rows of each source were set aside."""
        return dict(Counter(row["input"] for row in self.set_aside))

    def _bad_row(self, source: str, row: pa.RecordBatch, reason: str) -> None:
        values = row.to_pylist()[0] if row.num_rows else {}
        if not self._attempt.dead_letter or len(self.set_aside) >= MOST_BAD_ROWS:
            raise RowFailed(source, self._attempt.number, values, reason)
        self.set_aside.append({"input": source, "reason": reason, "tuple": json.dumps(values, default=str)})

    def _note(self, source: str, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        watermark = self._topology.source(source).watermark
        if watermark is None or batch.num_rows == 0:
            return
        newest = pc.call_function("max", [batch.column(watermark.column)])
        if newest.is_valid:
            seconds = epoch_seconds(newest)
            self.max_event_time[source] = max(seconds, self.max_event_time.get(source, seconds))


def epoch_seconds(value: pa.Scalar) -> float:
    """A timestamp (any unit), a date or a number of seconds as epoch seconds."""
    if pa.types.is_date(value.type):
        value = value.cast(pa.timestamp("s"))
    if pa.types.is_timestamp(value.type):
        per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[value.type.unit]
        return value.value / per_second
    return float(value.as_py())
