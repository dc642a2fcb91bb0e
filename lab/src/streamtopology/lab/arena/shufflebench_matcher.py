"""ShuffleBench's matcher, vectorised: which rules a record fits, by its hash. The rules lie in a file for all engines.

A rule fits the records whose hash is in its range (`RangeBasedMatchingRule`). As hashes have 63 bits and records are random,
the width of a range is the rule's selectivity, by Zipf's law with the exponent `skew` (`SimpleMatcherService.createFromZipf`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from streamtopology.lab.simulate.streams import zipf_probabilities

HASHED_BYTES = 16
_SEED = 0x81C1F2B68968424D
_MASK, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_POSITIVE = np.uint64(2**63 - 1)


def write_rules(file: Path, count: int, selectivity: float, skew: float) -> None:
    """A line a rule: the offset of its range, and its selectivity; `selectivity` is the sum of all."""
    offsets = np.random.default_rng(11).integers(0, 2**63, count)
    shares = zipf_probabilities(count, skew) * selectivity
    rules = pa.table({"offset": offsets, "selectivity": shares})
    csv.write_csv(rules, file, csv.WriteOptions(include_header=False))


def record_hashes(first_bytes: np.ndarray) -> np.ndarray:
    """uint64[n]: komihash 5.0 of the first bytes, uint8[n, 16], of each record, as hash4j has it."""
    words = np.ascontiguousarray(first_bytes).view("<u8")
    seed1, seed5 = _rounds_of(_SEED)
    low, high = _multiply(seed1 ^ words[:, 0], seed5 ^ words[:, 1])
    seed5 = seed5 + high
    low, high = _multiply(low ^ seed5 ^ np.uint64(1), seed5)
    seed5 = seed5 + high
    low, high = _multiply(low ^ seed5, seed5)
    return low ^ seed5 + high


def _rounds_of(seed: int) -> tuple[np.uint64, np.uint64]:
    product = (0x243F6A8885A308D3 ^ (seed & 0x5555555555555555)) * (0x452821E638D01377 ^ (seed & 0xAAAAAAAAAAAAAAAA))
    seed5 = ((0x452821E638D01377 ^ (seed & 0xAAAAAAAAAAAAAAAA)) + (product >> 64)) % 2**64
    return np.uint64(product % 2**64 ^ seed5), np.uint64(seed5)


def _multiply(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lower and the upper 64 bits of the products."""
    low1, high1, low2, high2 = one & _MASK, one >> _HALF, other & _MASK, other >> _HALF
    middle = high1 * low2 + (low1 * low2 >> _HALF)
    return one * other, high1 * high2 + (middle >> _HALF) + (low1 * high2 + (middle & _MASK) >> _HALF)


@dataclass(frozen=True)
class Matcher:
    """The borders of all ranges in order, uint64[b], and for the part that begins at each the rules that fit there.

    Those of part `p` are `rules[firsts[p]:firsts[p + 1]]`.
    """

    borders: np.ndarray
    firsts: np.ndarray
    rules: np.ndarray

    def match(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions of records and numbers of rules, int64[m] each, of all pairs that fit, in the order of the records."""
        values = hashes & _POSITIVE
        order = np.argsort(values)  # what is looked up in order is found faster
        parts = np.searchsorted(self.borders, values[order], "right") - 1
        counts = self.firsts[parts + 1] - self.firsts[parts]
        records, rules = np.repeat(order, counts), self.rules[_ranges(self.firsts[parts], counts)]
        by_record = np.argsort(records, kind="stable")
        return records[by_record], rules[by_record]


@lru_cache(maxsize=1)
def matcher_of(file: str) -> Matcher:
    """The matcher of a file of rules."""
    table = csv.read_csv(file, csv.ReadOptions(column_names=["offset", "selectivity"]))
    order = np.argsort(table["offset"].to_numpy())
    begins = table["offset"].to_numpy()[order].astype(np.uint64)
    ends = begins + np.ldexp(table["selectivity"].to_numpy()[order], 63).astype(np.uint64)
    wrapped = ends > _POSITIVE + np.uint64(1)
    ends[wrapped] -= _POSITIVE + np.uint64(1)  # that one begins again at 0
    borders = np.sort(np.concatenate([np.zeros(1, np.uint64), begins, ends]))
    first, last = np.searchsorted(borders, begins), np.searchsorted(borders, ends)
    numbers = np.concatenate([order, order[wrapped]])
    starts = np.concatenate([first, np.zeros(wrapped.sum(), np.int64)])
    counts = np.concatenate([np.where(wrapped, len(borders), last) - first, last[wrapped]])
    parts = _ranges(starts, counts)
    firsts = np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=len(borders)))])
    return Matcher(borders, firsts, np.repeat(numbers, counts)[np.argsort(parts, kind="stable")])


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """int64[sum]: `counts` numbers from each of `starts` on."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())
