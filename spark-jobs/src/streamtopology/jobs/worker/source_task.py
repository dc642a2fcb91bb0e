"""The source side of a first-stage task: rows by descriptor or from Spark, counted, timed, event times noted.

Reading is load: an executor with a third of the CPU should read less. So our pinned tasks read files and Kafka by
descriptor, as the plan divides them, and the seconds measured here are the source's load in the next plan.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.event_times import event_micros
from streamtopology.jobs.columnar.python_values import python_rows
from streamtopology.jobs.connectors.sinks.dead_letters import tuple_as_json
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec, Tally
from streamtopology.jobs.connectors.sources.formats import LeftOut, read_all, read_with_places, rehearse
from streamtopology.jobs.connectors.sources.source_tag import TAG, untag
from streamtopology.jobs.errors import BatchTooLarge, RowFailed
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.dag import Dag
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.results import SourceResult
from streamtopology.jobs.plan.span import Span, clock_of_this_host
from streamtopology.routing.load.load_report import SourceReport
from streamtopology.topology import Watermark, format_memory

MOST_BAD_ROWS = 100


@dataclass
class _Sizes:
    """The rows of one source: bytes that its descriptors foresee, their rows, bytes sent so far."""

    bytes: int
    rows: int
    sent: int = 0
    is_complete: bool = False

    @staticmethod
    def foreseen(descriptors: Sequence[Descriptor]) -> _Sizes:
        return _Sizes(sum(part.bytes for part in descriptors), sum(part.rows for part in descriptors))

    def of(self, read: int) -> int:
        """The bytes that were foreseen for what was read, of which `read` rows are known."""
        return self.bytes if self.is_complete or read >= self.rows else self.bytes * read // self.rows


class SourceReader:
    """Reads for one task. `rows`: number read so far; `event_times`: of each source with a watermark.

    `set_aside`: rows on which select or where raised, as they go to the dead letters, where the topology asks for that.
    """

    def __init__(self, plan: ExecutionPlan, dag: Dag, attempt: Attempt) -> None:
        self._began_at = time.monotonic()
        self._dag = dag
        self._topology = plan.topology
        self._attempt = attempt
        self._specs = {s.name: SourceSpec.of(s, plan.topology.name) for s in plan.topology.sources if s.reads_descriptors}
        self.rows = 0
        marks = {source.name: source.watermark for source in plan.topology.sources if source.watermark is not None}
        self.event_times = {name: EventTimes(watermark, attempt.recorded_at) for name, watermark in marks.items()}
        self.set_aside: list[dict[str, str]] = []
        self._tallies = {name: Tally() for name in self._specs}
        self._passed: Counter[str] = Counter()
        self._sizes: dict[str, _Sizes] = {}

    def read(self, descriptors: Iterable[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """(source, rows) of descriptors in their JSON form, source by source. Raises BatchTooLarge."""
        wanted = [Descriptor.from_json(text) for text in descriptors]
        for name, spec in self._specs.items():
            mine = [descriptor for descriptor in wanted if descriptor.source == name]
            partitions = list(dict.fromkeys(descriptor.partition for descriptor in mine))
            sizes = self._sizes[name] = _Sizes.foreseen(mine)
            for batch, places in self._read(mine, spec, partitions):
                self._note(name, batch, partitions, places)
                sizes.sent += batch.nbytes * len(self._dag.edges_from(name))
                self._refuse_too_large(name)
                yield name, batch
            sizes.is_complete = True

    def rehearse(self) -> None:
        """Do what the first rows of the sources would wait for."""
        for spec in self._specs.values():
            rehearse(spec)

    def untag(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """(source, rows) of a batch that Spark read: tagged when there are several sources."""
        if TAG in batch.schema.names:
            pairs = untag(batch)
        else:
            pairs = iter([(next(s.name for s in self._topology.sources if not s.reads_descriptors), batch)])
        for source, rows in pairs:
            self._note(source, rows, [""], None)
            yield source, rows

    def result(self, slot: int) -> SourceResult:
        """The result of this task, on executor slot `slot`. Its seconds are reading, selecting and routing."""
        span = Span(clock_of_this_host(), self._began_at, time.monotonic())
        seconds = span.ended_at - span.began_at
        bad_rows = dict(Counter(row["input"] for row in self.set_aside))
        newest = {source: seen.newest for source, seen in self.event_times.items() if seen.newest}
        report = SourceReport(
            slot,
            self.rows,
            seconds,
            seconds,
            max_event_time={source: max(times.values()) for source, times in newest.items()},
            bad_rows=bad_rows,
            skipped_rows={name: tally.skipped for name, tally in self._tallies.items() if tally.skipped},
            filtered_rows=self._filtered(bad_rows),
            rows_ahead={source: seen.rows_ahead for source, seen in self.event_times.items() if seen.rows_ahead},
        )
        sizes = {name: (sizes.sent, sizes.of(self._tallies[name].read)) for name, sizes in self._sizes.items()}
        return SourceResult(report, span, self.set_aside, newest, sizes)

    def _filtered(self, bad_rows: Mapping[str, int]) -> dict[str, int]:
        """The rows by source that its where left out; unknown where its select makes several rows of one."""
        countable = [name for name, spec in self._specs.items() if spec.where and not _multiplies(spec)]
        left_out = {name: self._tallies[name].read - self._passed[name] - bad_rows.get(name, 0) for name in countable}
        return {name: rows for name, rows in left_out.items() if rows}

    def _read(
        self, descriptors: list[Descriptor], spec: SourceSpec, partitions: list[str]
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray | None]]:
        """The rows, and the place of each one's partition in `partitions` if there are several and a watermark."""
        bad_row, tally = partial(self._bad_row, spec.name), self._tallies[spec.name]
        columns = self._columns_read(spec.name)
        seen, left_out = self.event_times.get(spec.name), None
        if seen is not None:  # rows that nobody wants still show how far the source is
            left_out = LeftOut(seen.column, lambda times, places: seen.note(times, partitions, places, counts=False))
        if len(partitions) > 1 and seen is not None:
            place_of = {partition: place for place, partition in enumerate(partitions)}
            places = read_with_places(
                descriptors, spec, bad_row, lambda given: place_of[given.partition], tally, left_out, columns
            )
            yield from places
        else:
            yield from ((batch, None) for batch in read_all(descriptors, spec, bad_row, columns, tally, left_out))

    def _columns_read(self, source: str) -> list[str] | None:
        """The columns of a source that an operator or its watermark reads, in their order; None: all."""
        read, seen = self._dag.columns_read(source), self.event_times.get(source)
        if read is None:
            return None
        return [name for name in self._dag.sources[source].names if name in read or (seen is not None and name == seen.column)]

    def _refuse_too_large(self, source: str) -> None:
        sent, limit = sum(sizes.sent for sizes in self._sizes.values()), self._attempt.most_bytes
        if limit is not None and sent > limit:
            raise BatchTooLarge(f"rows of source {source!r} are larger than expected: {format_memory(limit)} is reached")

    def _bad_row(self, source: str, row: pa.RecordBatch, reason: str) -> None:
        values = python_rows(row)[0] if row.num_rows else {}
        if not self._attempt.dead_letter or len(self.set_aside) >= MOST_BAD_ROWS:
            raise RowFailed(source, self._attempt.number, values, reason)
        self.set_aside.append({"input": source, "reason": reason, "tuple": tuple_as_json(values)})

    def _note(self, source: str, batch: pa.RecordBatch, partitions: list[str], places: np.ndarray | None) -> None:
        self.rows += batch.num_rows
        self._passed[source] += batch.num_rows
        if source in self.event_times and batch.num_rows:
            seen = self.event_times[source]
            seen.note(batch.column(seen.column), partitions, places)


def _multiplies(spec: SourceSpec) -> bool:
    return any("unnest" in expression.lower() for expression in spec.select)


MICROS = 1_000_000


class EventTimes:
    """`newest`: by partition, epoch seconds. `rows_ahead`: rows whose time is more than the watermark's `maxAhead` later than
    `now` (epoch seconds); these times move no watermark. `column` has the times.
    """

    def __init__(self, watermark: Watermark, now: float) -> None:
        self.column = watermark.column
        self._latest = (now + watermark.max_ahead_seconds) * MICROS
        self.newest: dict[str, float] = {}
        self.rows_ahead = 0

    def note(self, column: pa.Array, partitions: Sequence[str], places: np.ndarray | None, counts: bool = True) -> None:
        """Take note of the times of rows. `places` (int32[n]): which of `partitions` each is from, neighbours mostly the same;
        None: all are from the only one. `counts`: False for rows that are left out, and so never rows ahead.
        """
        times, valid = event_micros(column)
        starts = np.zeros(1, np.int64) if places is None else np.flatnonzero(np.diff(places, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(times)], strict=True):
            partition = partitions[0 if places is None else places[start]]
            self._note(partition, times[start:end] if valid is None else times[start:end][valid[start:end]], counts)

    def _note(self, partition: str, times: np.ndarray, counts: bool) -> None:
        newest = times.max(initial=np.iinfo(np.int64).min)
        if newest > self._latest:
            ahead = times > self._latest
            self.rows_ahead += int(ahead.sum()) if counts else 0
            times = times[~ahead]
            newest = times.max(initial=np.iinfo(np.int64).min)
        if len(times):
            seconds = float(newest) / MICROS
            self.newest[partition] = max(seconds, self.newest.get(partition, seconds))
