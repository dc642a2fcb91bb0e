"""Load reports: the work of one instance or source task in one batch, all that the controller learns of the data plane.

A stream may have millions of keys, and reports travel with every batch. So a report is bounded whatever the stream does:
`heavy_*` for the keys that weigh, one total per bucket for all the rest. That is also how a table routes, so a planner needs
no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from streamtopology.contract.errors import UnreadableData
from streamtopology.contract.format_number import FORMAT, ONE_VERSION, check_format
from streamtopology.contract.wire_values import AnyFloat, WireError, from_wire, to_wire
from streamtopology.routing.load.array_codec import Counts, Floats, Hashes
from streamtopology.routing.load.bucket_rows import NO_BUCKETS, BucketRows
from streamtopology.routing.load.sketches.key_pairs import grouped

REPORT_FORMAT = 2

_Report = TypeVar("_Report")

# Heavy keys that a merged report keeps: more than `maxTableEntries` by default, so that every entry can be judged.
HEAVY_KEYS = 4096

# Key pairs towards one operator that a merged report keeps; the paper's 1 MB a POI (locality-aware routing, section 4).
KEY_PAIRS = 65_536

# Stands for `instance` or `slot` in a report merged from several of them.
MANY = -1


class ReportFormatError(UnreadableData):
    """A report's wire form is damaged, incomplete or of another version."""


_NO_HASHES: Hashes = np.empty(0, np.uint64)
# One for all reports without keys: a run keeps many of them.
_NO_COUNTS: Counts = np.empty(0, np.int64)
_NO_SECONDS: Floats = np.empty(0, np.float64)


def _no_hashes() -> Hashes:
    return _NO_HASHES


def _no_counts() -> Counts:
    return _NO_COUNTS


def _no_seconds() -> Floats:
    return _NO_SECONDS


@dataclass(frozen=True, eq=False)
class KeyPairs:
    """The most frequent pairs of input key and output key of an operator between two consecutive keyed edges.

    upstream, downstream: uint64[p] key hashes, each pair once, sorted by both; rows: int64[p]. `seen`: the rows counted,
    those of pairs that are not kept included. ValueError says what does not fit.
    """

    upstream: Hashes = field(default_factory=_no_hashes)
    downstream: Hashes = field(default_factory=_no_hashes)
    rows: Counts = field(default_factory=_no_counts)
    seen: int = 0

    def __post_init__(self) -> None:
        if not len(self.upstream) == len(self.downstream) == len(self.rows):
            lengths = (len(self.upstream), len(self.downstream), len(self.rows))
            raise ValueError(f"key pairs: upstream, downstream and rows differ in length: {lengths}")
        if len(self.rows) and self.rows.min() < 0:
            raise ValueError("key pairs: a pair has a negative number of rows")

    @staticmethod
    def summed(upstream: Hashes, downstream: Hashes, rows: Counts, seen: int, max_pairs: int | None = KEY_PAIRS) -> KeyPairs:
        """Pairs in any order, repeated ones summed; the `max_pairs` with most rows stay (None: all), of equals the smaller."""
        first, sums = grouped(upstream, downstream, rows)
        order = np.lexsort((downstream[first], upstream[first]))
        starts, sums = first[order], sums[order]
        if max_pairs is not None and len(starts) > max_pairs:
            kept = np.sort(np.argsort(-sums, kind="stable")[:max_pairs])
            starts, sums = starts[kept], sums[kept]
        return KeyPairs(upstream[starts], downstream[starts], sums, seen)


@dataclass(frozen=True)
class Onward:
    """Rows sent to one operator, and the number of them that `stayed` on the sending executor."""

    rows: int = 0
    stayed: int = 0

    def __add__(self, other: Onward) -> Onward:
        return Onward(self.rows + other.rows, self.stayed + other.stayed)

    def to_wire(self) -> list[int]:
        return [self.rows, self.stayed]

    @staticmethod
    def from_wire(wire: Sequence[int]) -> Onward:
        rows, stayed = wire
        return Onward(int(rows), int(stayed))


@dataclass(frozen=True, eq=False)
class LoadReport:
    """The work of one instance in one batch, or the sum over several of one operator (`merge`).

    `busy_seconds` is the time in the operator itself,
    `task_seconds` that of the instance's whole part of the task. `heavy_*` are parallel arrays
    of the heaviest keys, sorted by hash, each hash once; `heavy_seconds` is all zeros when the operator does not time
    its tuples. `bucket_rows` counts, per bucket, the rows of keys that are *not* heavy, so rows = sum of both.
    `onward`: downstream operator -> rows sent. `key_pairs`: downstream operator that is planned together with this one ->
    pairs of this operator's key and that one's. `parts_merged`: parts of keys that other instances had gathered and that were
    merged into the state here, in `merge_seconds`, which are among the busy ones. `rows_away`: rows of keys with another home,
    gathered for it.
    """

    operator: str
    instance: int
    slot: int
    rows: int
    busy_seconds: float
    task_seconds: float
    state_keys: int = 0
    state_bytes: int = 0
    late_rows: int = 0
    bad_rows: int = 0
    heavy_hashes: Hashes = field(default_factory=_no_hashes)
    heavy_rows: Counts = field(default_factory=_no_counts)
    heavy_seconds: Floats = field(default_factory=_no_seconds)
    heavy_bytes: Counts = field(default_factory=_no_counts)
    heavy_labels: tuple[str, ...] = ()
    bucket_rows: BucketRows = NO_BUCKETS
    onward: Mapping[str, Onward] = field(default_factory=dict[str, Onward])
    key_pairs: Mapping[str, KeyPairs] = field(default_factory=dict[str, KeyPairs])
    parts_merged: int = 0
    merge_seconds: float = 0.0
    rows_away: int = 0

    def __post_init__(self) -> None:
        lengths = {
            len(self.heavy_hashes),
            len(self.heavy_rows),
            len(self.heavy_seconds),
            len(self.heavy_bytes),
            len(self.heavy_labels),
        }
        if len(lengths) > 1:
            raise ValueError(f"load report of {self.operator!r}: heavy_* fields differ in length: {sorted(lengths)}")

    @property
    def times_keys(self) -> bool:
        """True if the operator measured the cost of single keys; otherwise a key's cost is its rows."""
        return bool(self.heavy_seconds.any())

    def without_keys(self) -> LoadReport:
        """Without the arrays per key and bucket; all totals stay."""
        return replace(
            self,
            heavy_hashes=_NO_HASHES,
            heavy_rows=_NO_COUNTS,
            heavy_seconds=_NO_SECONDS,
            heavy_bytes=_NO_COUNTS,
            heavy_labels=(),
            bucket_rows=NO_BUCKETS,
            key_pairs={},
        )

    def to_wire(self) -> dict[str, Any]:
        """JSON-able form, read back by `from_wire`."""
        return {FORMAT: REPORT_FORMAT, **to_wire(self)}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> LoadReport:
        """Raises `ReportFormatError` naming what is missing or damaged, or that another version wrote it."""
        return _read(cls, wire, "load report")


@dataclass(frozen=True)
class SourceReport:
    """The rows that one executor slot read in one batch. `max_event_time`: newest event time seen per source, epoch seconds.

    `bad_rows`: rows set aside per source, because its select or where raised on them. `skipped_rows`: rows per source that
    were deleted before they could be read.

    `rows_ahead`: rows per source whose event time was too far ahead of the clock to move the watermark. `filtered_rows`: rows
    per source that its where left out, as far as the tasks read it themselves.

    `ahead`: prefetched while the previous batch ran, so that no operator waited for it.
    """

    slot: int
    rows: int
    busy_seconds: float
    task_seconds: float
    max_event_time: Mapping[str, AnyFloat] = field(default_factory=dict[str, float])
    ahead: bool = False
    bad_rows: Mapping[str, int] = field(default_factory=dict[str, int])
    skipped_rows: Mapping[str, int] = field(default_factory=dict[str, int])
    rows_ahead: Mapping[str, int] = field(default_factory=dict[str, int])
    filtered_rows: Mapping[str, int] = field(default_factory=dict[str, int])

    def to_wire(self) -> dict[str, Any]:
        """JSON-able form, read back by `from_wire`."""
        return {FORMAT: REPORT_FORMAT, **to_wire(self)}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> SourceReport:
        """Raises `ReportFormatError` naming what is missing or damaged, or that another version wrote it."""
        return _read(cls, wire, "source report")


def merge(reports: Sequence[LoadReport], max_heavy: int | None = HEAVY_KEYS, max_pairs: int | None = KEY_PAIRS) -> LoadReport:
    """Merge reports of one operator: of instances of a batch, of batches of an instance, or both.

    Give them oldest first: work adds up, while state (keys, bytes, labels) is what the last report of each instance
    says. Over the instances of one batch the heavy keys are exact. Over batches a key that was light in one of them
    lacks the rows it had there: those are in its bucket. The `max_heavy` keys with most rows stay heavy (None: all),
    the rows of the others go to their buckets: no row is lost or counted twice. Of the key pairs towards each operator
    the `max_pairs` with most rows are kept; the rows of the others are in `seen` alone.
    """
    if not reports:
        raise ValueError("merge: there is no report to merge")
    first = reports[0]
    if strangers := sorted({report.operator for report in reports} - {first.operator}):
        raise ValueError(f"merge: reports of {first.operator!r} and of {', '.join(strangers)} do not add up")
    last_of = {report.instance: report for report in reports}
    heavy = _merge_heavy(reports)
    bucket_rows = BucketRows.summed([report.bucket_rows for report in reports])
    if max_heavy is not None and len(heavy.hashes) > max_heavy:
        heavy, dropped = heavy.split(max_heavy)
        bucket_rows = bucket_rows.plus(dropped.hashes, dropped.rows)
    return LoadReport(
        operator=first.operator,
        instance=first.instance if len(last_of) == 1 else MANY,
        slot=first.slot if len({report.slot for report in reports}) == 1 else MANY,
        rows=sum(report.rows for report in reports),
        busy_seconds=sum(report.busy_seconds for report in reports),
        task_seconds=sum(report.task_seconds for report in reports),
        state_keys=sum(report.state_keys for report in last_of.values()),
        state_bytes=sum(report.state_bytes for report in last_of.values()),
        late_rows=sum(report.late_rows for report in reports),
        bad_rows=sum(report.bad_rows for report in reports),
        heavy_hashes=heavy.hashes,
        heavy_rows=heavy.rows,
        heavy_seconds=heavy.seconds,
        heavy_bytes=heavy.state,
        heavy_labels=heavy.labels,
        bucket_rows=bucket_rows,
        onward=_merge_onward(reports),
        key_pairs=merge_pairs(reports, max_pairs),
        parts_merged=sum(report.parts_merged for report in reports),
        merge_seconds=sum(report.merge_seconds for report in reports),
        rows_away=sum(report.rows_away for report in reports),
    )


@dataclass(frozen=True, eq=False)
class _Heavy:
    """The heavy_* columns of a report, sorted by hash."""

    hashes: Hashes
    rows: Counts
    seconds: Floats
    state: Counts
    labels: tuple[str, ...]

    def take(self, index: npt.NDArray[np.int64]) -> _Heavy:
        labels = tuple(self.labels[int(i)] for i in index)
        return _Heavy(self.hashes[index], self.rows[index], self.seconds[index], self.state[index], labels)

    def split(self, size: int) -> tuple[_Heavy, _Heavy]:
        """The `size` keys with most rows, and the others; ties fall to the smaller hash."""
        heaviest_first = np.argsort(-self.rows, kind="stable")
        return self.take(np.sort(heaviest_first[:size])), self.take(np.sort(heaviest_first[size:]))


def _merge_heavy(reports: Sequence[LoadReport]) -> _Heavy:
    all_hashes = np.concatenate([report.heavy_hashes for report in reports])
    hashes, key = np.unique(all_hashes, return_inverse=True)
    rows = np.zeros(len(hashes), np.int64)
    seconds = np.zeros(len(hashes))
    np.add.at(rows, key, np.concatenate([report.heavy_rows for report in reports]))
    np.add.at(seconds, key, np.concatenate([report.heavy_seconds for report in reports]))
    latest = np.empty(len(hashes), np.int64)
    latest[key] = np.arange(len(key))
    labels = [label for report in reports for label in report.heavy_labels]
    state = np.concatenate([report.heavy_bytes for report in reports])
    return _Heavy(hashes, rows, seconds, state[latest], tuple(labels[int(i)] for i in latest))


def _merge_onward(reports: Sequence[LoadReport]) -> dict[str, Onward]:
    merged: dict[str, Onward] = {}
    for report in reports:
        for operator, sent in report.onward.items():
            merged[operator] = merged.get(operator, Onward()) + sent
    return merged


def merge_pairs(reports: Sequence[LoadReport], max_pairs: int | None = KEY_PAIRS) -> dict[str, KeyPairs]:
    """The pairs towards each operator that `merge` of these reports has."""
    merged: dict[str, KeyPairs] = {}
    for operator in dict.fromkeys(operator for report in reports for operator in report.key_pairs):
        parts = [report.key_pairs[operator] for report in reports if operator in report.key_pairs]
        merged[operator] = KeyPairs.summed(
            np.concatenate([part.upstream for part in parts]),
            np.concatenate([part.downstream for part in parts]),
            np.concatenate([part.rows for part in parts]),
            sum(part.seen for part in parts),
            max_pairs,
        )
    return merged


def _read(kind: type[_Report], wire: object, what: str) -> _Report:
    if not isinstance(wire, dict):
        raise ReportFormatError(f"{what}: this is {type(wire).__name__}, not a JSON object")
    given = cast("dict[str, Any]", wire)
    check_format(given, REPORT_FORMAT, f"a {what}", ONE_VERSION, ReportFormatError)
    try:
        return from_wire(kind, given)
    except WireError as wrong:
        raise ReportFormatError(f"{what}: {wrong}") from wrong
