"""Rows by bucket, for those buckets that have any: an instance owns a few of them, so that all others would be counted as 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from streamtopology.contract.wire_values import Form
from streamtopology.routing.load.array_codec import Counts, narrow, pack, unpack
from streamtopology.routing.table.table import bucket_of

# Buckets of an operator: dense counters of one instance take 8 MiB. What claims more is damaged.
MOST_BUCKETS = 1 << 20

Integers = npt.NDArray[np.signedinteger[Any]]

# An instance's buckets are often at equal distances, which zlib makes little of.
Numbers = Annotated[
    Integers,
    Form(
        lambda numbers: pack(np.diff(numbers, prepend=0).astype(np.int32)),
        lambda text: np.cumsum(unpack(text, np.int32), dtype=np.int32),
        str,
    ),
]
Rows = Annotated[Integers, Form(lambda rows: pack(rows.astype(np.int64)), lambda text: narrow(unpack(text, np.int64)), str)]
_NOTHING = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class BucketRows:
    """The rows of `count` buckets: those of bucket `numbers[i]` are `rows[i]`, and a bucket that is not named has none.

    numbers, rows: signed integers[n] of any width; those that were read are narrow, as many are kept. ValueError says what
    does not fit.
    """

    numbers: Numbers
    rows: Rows
    count: int

    def __post_init__(self) -> None:
        if len(self.numbers) != len(self.rows):
            raise ValueError(f"{len(self.numbers)} buckets with {len(self.rows)} numbers of rows differ in length")
        if not 0 <= self.count <= MOST_BUCKETS:
            raise ValueError(f"{self.count} buckets are more than anybody has")
        if len(self.numbers) and not 0 <= self.numbers.min() <= self.numbers.max() < self.count:
            raise ValueError(f"a bucket's number is not among {self.count}")

    @staticmethod
    def without_rows(count: int) -> BucketRows:
        return BucketRows(_NOTHING, _NOTHING, count)

    @staticmethod
    def of(dense: Integers) -> BucketRows:
        """The rows of all buckets, int[count]."""
        used = np.flatnonzero(dense)
        return BucketRows(used, dense[used], len(dense))

    @staticmethod
    def of_keys(hashes: npt.NDArray[np.uint64], rows: Counts, count: int) -> BucketRows:
        """The rows of keys, int64[len(hashes)], in their buckets."""
        return BucketRows.without_rows(count).plus(hashes, rows)

    @staticmethod
    def summed(parts: Sequence[BucketRows]) -> BucketRows:
        """The sum; parts without any buckets add nothing. ValueError: the others have different numbers of buckets."""
        counted = [part for part in parts if part.count]
        if len({part.count for part in counted}) > 1:
            raise ValueError("different numbers of buckets do not add up")
        if not counted:
            return NO_BUCKETS
        numbers, rows = (np.concatenate([getattr(part, name) for part in counted]) for name in ("numbers", "rows"))
        return BucketRows.of(BucketRows(numbers, rows, counted[0].count).dense())

    def plus(self, hashes: npt.NDArray[np.uint64], rows: Counts) -> BucketRows:
        """With the rows of these keys in their buckets, if there are any buckets."""
        if not self.count:
            return self
        dense = self.dense()
        np.add.at(dense, bucket_of(hashes, self.count), rows)
        return BucketRows.of(dense)

    def dense(self) -> Counts:
        """The rows of all buckets, int64[count]."""
        dense = np.zeros(self.count, np.int64)
        np.add.at(dense, self.numbers.astype(np.int64), self.rows.astype(np.int64))
        return dense


NO_BUCKETS = BucketRows.without_rows(0)
