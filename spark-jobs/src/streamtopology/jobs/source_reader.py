"""The source side of a first-stage task: rows by descriptor or from Spark, counted, timed, event times noted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.batch import Plan
from streamtopology.jobs.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.sources.reading import read_all
from streamtopology.jobs.sources.spark_source import TAG, untag


class SourceReader:
    """Reads for one task. `rows` so far; `max_event_time` per source with a watermark, epoch seconds."""

    def __init__(self, plan: Plan) -> None:
        self._started = time.perf_counter()
        self._topology = plan.topology
        self._specs = {s.name: SourceSpec.of(s) for s in plan.topology.sources if s.reads_descriptors}
        self.rows = 0
        self.max_event_time: dict[str, float] = {}

    def read(self, descriptors: Iterable[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """(source, rows) of descriptors in their JSON form, source by source."""
        wanted = [Descriptor.from_json(text) for text in descriptors]
        for name, spec in self._specs.items():
            for batch in read_all([descriptor for descriptor in wanted if descriptor.source == name], spec):
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
