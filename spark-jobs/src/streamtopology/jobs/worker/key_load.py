"""The load of one instance's run: exact rows per heavy key and per bucket.

Planners place heavy keys one by one and all others by bucket, so this is all that they need. Candidates for heavy keys
come from a strided sample. Then every row is counted against them with one table lookup, so the counts are exact and cost
a few nanoseconds a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamtopology.contract.formatting import clipped
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.columnar.python_values import python_values
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.table.table import BUCKETS, RoutingTable, bucket_of

HEAVY_KEYS = 256
SAMPLE = 16_384
_SEEN_IN_SAMPLE = 3
# Of one column of a key in its label.
_MOST_CHARACTERS = 40


@dataclass(frozen=True)
class KeyLoad:
    """hashes uint64[h], rows int64[h], seconds float64[h], labels (h); bucket_rows of all other keys."""

    hashes: np.ndarray
    rows: np.ndarray
    seconds: np.ndarray
    labels: tuple[str, ...]
    bucket_rows: BucketRows


NOTHING = KeyLoad(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0), (), BucketRows.without_rows(BUCKETS))


def measure_keys(keys: KeyColumns | None, row_seconds: np.ndarray | None) -> KeyLoad:
    """The load of the rows with `keys`; `row_seconds` is float64[n], or None where tuples are not timed."""
    if keys is None or len(keys) == 0:
        return NOTHING
    hashes = keys.hashes
    candidates, first = _candidates(hashes)
    numbers = np.arange(1, len(candidates) + 1, dtype=np.int32)
    which = RoutingTable(candidates, numbers, np.zeros(BUCKETS, np.int32)).lookup(hashes)  # 0: none of them
    light = which == 0
    heavy = which[~light] - 1
    rows = np.bincount(heavy, minlength=len(candidates))
    weights = np.zeros(len(heavy)) if row_seconds is None else row_seconds[~light]
    seconds = np.bincount(heavy, weights=weights, minlength=len(candidates))
    buckets = np.bincount(bucket_of(hashes[light], BUCKETS), minlength=BUCKETS)
    return KeyLoad(candidates, rows.astype(np.int64), seconds, _labels(keys.take(first)), BucketRows.of(buckets))


def _candidates(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sorted hashes uint64[h], a row of each int64[h]) of at most HEAVY_KEYS keys that a sample shows often."""
    stride = max(1, len(hashes) // SAMPLE)
    found, first, counts = np.unique(hashes[::stride], return_index=True, return_counts=True)
    often = np.flatnonzero(counts >= _SEEN_IN_SAMPLE)
    if len(often) > HEAVY_KEYS:
        often = np.sort(often[np.argsort(counts[often], kind="stable")[::-1][:HEAVY_KEYS]])
    return found[often], first[often] * stride


def _labels(keys: KeyColumns) -> tuple[str, ...]:
    columns = [python_values(column) for column in keys.decode()]
    return tuple("/".join(map(_shown, row)) for row in zip(*columns, strict=True))


def _shown(part: object) -> str:
    """The part of a key as text, a long one clipped: NULL is `NULL`, and a text of these letters has quotes."""
    return "NULL" if part is None else "'NULL'" if part == "NULL" else clipped(str(part), _MOST_CHARACTERS)
