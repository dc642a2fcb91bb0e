"""Sums of load reports over consecutive batches, packed: what a window keeps of them, and what a driver answers with.

Whole reports of one small batch take a hundred kilobytes in memory, and a window has many batches. A sum has what planning
reads, at most `HEAVY_KEYS` heavy keys and the buckets that had rows, in some ten kilobytes however many batches it is of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.load.array_codec import Block, pack_columns, unpack_columns
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import HEAVY_KEYS, KEY_PAIRS, KeyPairs, LoadReport, ReportFormatError, merge

Columns = dict[str, npt.NDArray[Any]]

_WHOLE = ("instance", "slot", "rows", "state_keys", "state_bytes")
_SECONDS = ("busy_seconds", "task_seconds")
_HEAVY = ("heavy_hashes", "heavy_rows", "heavy_bytes")
_PAIRS = ("upstream", "downstream", "rows")


@dataclass(frozen=True, eq=False)
class LoadSum:
    """The load of one operator, summed over batches for each instance on each slot.

    `consumers`: downstream operators that it is planned together with. `block`: the sums, as `reports` unpacks them.
    """

    operator: str
    consumers: tuple[str, ...]
    block: Block

    @staticmethod
    def of(reports: Sequence[LoadReport], max_heavy: int = HEAVY_KEYS, max_pairs: int = KEY_PAIRS) -> LoadSum:
        """The sum of one operator's reports, oldest first.

        The `max_heavy` keys that weigh most stay heavy, and of the pairs towards each consumer the `max_pairs` with most rows.
        """
        parts = [merge(part, None, max_pairs) if len(part) > 1 else part[0] for part in _by_place(reports)]
        parts = _with_fewer_pairs(_lightened(parts, max_heavy), max_pairs)
        consumers = tuple(dict.fromkeys(name for part in parts for name in part.key_pairs))
        columns: Columns = {name: np.array([getattr(part, name) for part in parts], np.int64) for name in _WHOLE}
        columns |= {name: np.array([getattr(part, name) for part in parts], np.float64) for name in _SECONDS}
        columns |= _keys(parts) | _buckets(parts)
        for number, consumer in enumerate(consumers):
            columns |= _pairs(number, [part.key_pairs.get(consumer, KeyPairs()) for part in parts])
        return LoadSum(reports[0].operator, consumers, pack_columns(columns))

    def reports(self) -> list[LoadReport]:
        """The sums as reports, one for each instance on each slot, keys without labels. ReportFormatError: they are damaged."""
        try:
            return self._reports(unpack_columns(self.block))
        except (ValueError, KeyError, IndexError, OverflowError) as damage:
            raise ReportFormatError(f"load of {self.operator!r}: {damage}") from damage

    def _reports(self, columns: Columns) -> list[LoadReport]:
        count = len(columns["instance"])
        n_buckets = int(columns["n_buckets"][0])
        heavy = _divided(columns, (*_HEAVY, "heavy_seconds"), columns["heavy"])
        buckets = _divided(columns, ("bucket", "bucket_rows"), columns["buckets"])
        pairs = [self._key_pairs(columns, number) for number in range(len(self.consumers))]
        return [
            LoadReport(
                operator=self.operator,
                instance=int(columns["instance"][part]),
                slot=int(columns["slot"][part]),
                rows=int(columns["rows"][part]),
                busy_seconds=float(columns["busy_seconds"][part]),
                task_seconds=float(columns["task_seconds"][part]),
                state_keys=int(columns["state_keys"][part]),
                state_bytes=int(columns["state_bytes"][part]),
                heavy_hashes=heavy[part]["heavy_hashes"],
                heavy_rows=heavy[part]["heavy_rows"],
                heavy_seconds=heavy[part]["heavy_seconds"],
                heavy_bytes=heavy[part]["heavy_bytes"],
                heavy_labels=("",) * len(heavy[part]["heavy_hashes"]),
                bucket_rows=BucketRows(buckets[part]["bucket"], buckets[part]["bucket_rows"], n_buckets),
                key_pairs={consumer: of_parts[part] for consumer, of_parts in zip(self.consumers, pairs, strict=True)},
            )
            for part in range(count)
        ]

    @staticmethod
    def _key_pairs(columns: Columns, number: int) -> list[KeyPairs]:
        """The pairs of each part towards consumer `number`."""
        upstream, downstream, rows = (f"{number}.{name}" for name in _PAIRS)
        parts = _divided(columns, (upstream, downstream, rows), columns[f"{number}.pairs"])
        seen = columns[f"{number}.seen"].tolist()
        return [KeyPairs(part[upstream], part[downstream], part[rows], of) for part, of in zip(parts, seen, strict=True)]


def sums_of(reports: Iterable[LoadReport], max_heavy: int = HEAVY_KEYS, max_pairs: int = KEY_PAIRS) -> dict[str, LoadSum]:
    """The sums of these reports, oldest first, by operator; at most `max_heavy` keys and `max_pairs` pairs of each."""
    by_operator: dict[str, list[LoadReport]] = {}
    for report in reports:
        by_operator.setdefault(report.operator, []).append(report)
    return {name: LoadSum.of(of_operator, max_heavy, max_pairs) for name, of_operator in by_operator.items()}


def _by_place(reports: Sequence[LoadReport]) -> list[list[LoadReport]]:
    """Those of each instance on each slot together, in the order of their last ones: state is what the last one says."""
    places: dict[tuple[int, int], list[LoadReport]] = {}
    for report in reports:
        place = (report.instance, report.slot)
        places[place] = [*places.pop(place, []), report]
    return list(places.values())


def _lightened(parts: list[LoadReport], max_heavy: int) -> list[LoadReport]:
    """With the `max_heavy` keys that weigh most in all `parts` together; the rows of the others go to their buckets."""
    weights = [part.heavy_seconds if part.times_keys else part.heavy_rows.astype(np.float64) for part in parts]
    if sum(len(weight) for weight in weights) <= max_heavy:
        return parts
    return [_without_light_keys(part, kept) for part, kept in zip(parts, _largest(weights, max_heavy), strict=True)]


def _largest(weights: Sequence[npt.NDArray[Any]], count: int) -> list[npt.NDArray[np.bool_]]:
    """True for the values of each part that are among the `count` largest of all parts; of equals the first."""
    chosen = np.zeros(sum(len(weight) for weight in weights), np.bool_)
    chosen[np.argsort(-np.concatenate(weights), kind="stable")[:count]] = True
    return np.split(chosen, np.cumsum([len(weight) for weight in weights])[:-1])


def _without_light_keys(report: LoadReport, heavy: npt.NDArray[np.bool_]) -> LoadReport:
    return replace(
        report,
        heavy_hashes=report.heavy_hashes[heavy],
        heavy_rows=report.heavy_rows[heavy],
        heavy_seconds=report.heavy_seconds[heavy],
        heavy_bytes=report.heavy_bytes[heavy],
        heavy_labels=("",) * int(heavy.sum()),
        bucket_rows=report.bucket_rows.plus(report.heavy_hashes[~heavy], report.heavy_rows[~heavy]),
    )


def _with_fewer_pairs(parts: list[LoadReport], max_pairs: int) -> list[LoadReport]:
    """With the `max_pairs` pairs towards each consumer that have most rows in all `parts` together."""
    for consumer in {name for part in parts for name in part.key_pairs}:
        pairs = [part.key_pairs.get(consumer, KeyPairs()) for part in parts]
        if sum(len(each.rows) for each in pairs) > max_pairs:
            kept = _largest([each.rows for each in pairs], max_pairs)
            fewer = [
                KeyPairs(each.upstream[one], each.downstream[one], each.rows[one], each.seen)
                for each, one in zip(pairs, kept, strict=True)
            ]
            parts = [
                replace(part, key_pairs={**part.key_pairs, consumer: each}) for part, each in zip(parts, fewer, strict=True)
            ]
    return parts


def _keys(parts: Sequence[LoadReport]) -> Columns:
    columns: Columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _HEAVY}
    seconds = np.concatenate([part.heavy_seconds for part in parts]).astype(np.float32)
    return {**columns, "heavy_seconds": seconds, "heavy": np.array([len(part.heavy_hashes) for part in parts], np.int64)}


def _buckets(parts: Sequence[LoadReport]) -> Columns:
    return {
        "n_buckets": np.array([max(part.bucket_rows.count for part in parts)]),
        "buckets": np.array([len(part.bucket_rows.numbers) for part in parts], np.int64),
        "bucket": np.concatenate([part.bucket_rows.numbers for part in parts]),
        "bucket_rows": np.concatenate([part.bucket_rows.rows for part in parts]),
    }


def _pairs(number: int, parts: Sequence[KeyPairs]) -> Columns:
    return {
        **{f"{number}.{name}": np.concatenate([getattr(part, name) for part in parts]) for name in _PAIRS},
        f"{number}.pairs": np.array([len(part.rows) for part in parts], np.int64),
        f"{number}.seen": np.array([part.seen for part in parts], np.int64),
    }


def _divided(columns: Columns, names: Sequence[str], counts: npt.NDArray[Any]) -> list[Columns]:
    """These columns, cut into parts of `counts`. ValueError: they are of other lengths."""
    ends = np.cumsum(counts).tolist()
    for name in names:
        if counts.min(initial=0) < 0 or len(columns[name]) != int(counts.sum()):
            raise ValueError(f"column {name!r} has {len(columns[name])} values, not {int(counts.sum())}")
    # np.split takes ten times as long for parts as small as these.
    return [{name: columns[name][start:end] for name in names} for start, end in zip([0, *ends], ends, strict=False)]
