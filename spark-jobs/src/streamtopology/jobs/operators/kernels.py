"""Loops over tuples, compiled: fold a column of values into state arrays at each tuple's slot."""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np


@nb.njit(cache=True, nogil=True)
def count_at(target: np.ndarray, slots: np.ndarray) -> None:
    """target[slots[i]] += 1."""
    for i in range(slots.shape[0]):
        target[slots[i]] += 1


@nb.njit(cache=True, nogil=True)
def count_bins(target: np.ndarray, slots: np.ndarray, bins: np.ndarray) -> None:
    """target[slots[i], bins[i]] += 1; a negative bin is left out."""
    for i in range(slots.shape[0]):
        if bins[i] >= 0:
            target[slots[i], bins[i]] += 1


@nb.njit(cache=True, nogil=True)
def _sum_at(target: np.ndarray, slots: np.ndarray, values: np.ndarray) -> None:
    for i in range(slots.shape[0]):
        target[slots[i]] += values[i]


@nb.njit(cache=True, nogil=True)
def _sum_int_at(target: np.ndarray, slots: np.ndarray, values: np.ndarray) -> int:
    """Like _sum_at for int64; returns the first row whose sum does not fit into 64 bits, or -1."""
    for i in range(slots.shape[0]):
        before = target[slots[i]]
        after = before + values[i]
        if ((before ^ after) & (values[i] ^ after)) < 0:
            return i
        target[slots[i]] = after
    return -1


@nb.njit(cache=True, nogil=True)
def _sum_signed_rows(target: np.ndarray, slots: np.ndarray, values: np.ndarray) -> int:
    """Add rows of integers of up to 64 bits; returns the first row of which a sum does not fit into the target, or -1."""
    for i in range(slots.shape[0]):
        signs = lost = np.int64(0)  # gathered over the row, so that its additions are made several at once
        for j in range(values.shape[1]):
            before, value = np.int64(target[slots[i], j]), np.int64(values[i, j])
            after = before + value
            target[slots[i], j] = after
            signs |= (before ^ after) & (value ^ after)
            lost |= after ^ np.int64(target[slots[i], j])
        if signs < 0 or lost != 0:
            return i
    return -1


@nb.njit(cache=True, nogil=True)
def _sum_unsigned_rows(target: np.ndarray, slots: np.ndarray, values: np.ndarray) -> int:
    """Like _sum_signed_rows for uint64."""
    for i in range(slots.shape[0]):
        for j in range(values.shape[1]):
            before = target[slots[i], j]
            after = before + values[i, j]
            if after < before:
                return i
            target[slots[i], j] = after
    return -1


@nb.njit(cache=True, nogil=True)
def sum_wide_at(low: np.ndarray, high: np.ndarray, slots: np.ndarray, values: np.ndarray) -> None:
    """Add values[i] to the sum high * 2**64 + low at slots[i]; all are int64, so `low` may be negative."""
    for i in range(slots.shape[0]):
        before = low[slots[i]]
        after = before + values[i]
        if ((before ^ after) & (values[i] ^ after)) < 0:
            high[slots[i]] += 1 if values[i] > 0 else -1
        low[slots[i]] = after


@nb.njit(cache=True, nogil=True)
def _min_at(target: np.ndarray, slots: np.ndarray, values: np.ndarray) -> None:
    for i in range(slots.shape[0]):
        if values[i] < target[slots[i]]:
            target[slots[i]] = values[i]


@nb.njit(cache=True, nogil=True)
def _max_at(target: np.ndarray, slots: np.ndarray, values: np.ndarray) -> None:
    for i in range(slots.shape[0]):
        if values[i] > target[slots[i]]:
            target[slots[i]] = values[i]


@nb.njit(cache=True, nogil=True)
def _sum_rows(target: np.ndarray, slots: np.ndarray, values: np.ndarray) -> None:
    for i in range(slots.shape[0]):
        for j in range(values.shape[1]):
            target[slots[i], j] += values[i, j]


@nb.njit(cache=True, nogil=True)
def _min_rows(target: np.ndarray, slots: np.ndarray, values: np.ndarray) -> None:
    for i in range(slots.shape[0]):
        for j in range(values.shape[1]):
            target[slots[i], j] = min(target[slots[i], j], values[i, j])


@nb.njit(cache=True, nogil=True)
def _max_rows(target: np.ndarray, slots: np.ndarray, values: np.ndarray) -> None:
    for i in range(slots.shape[0]):
        for j in range(values.shape[1]):
            target[slots[i], j] = max(target[slots[i], j], values[i, j])


_FOLDS = {"sum": (_sum_at, _sum_rows), "min": (_min_at, _min_rows), "max": (_max_at, _max_rows)}


def combine_into(target: np.ndarray, slots: np.ndarray, values: np.ndarray, merge: str) -> None:
    """Fold `values` (n, *shape) into `target` (capacity, *shape) at `slots` (int64[n], may repeat) by `merge`.

    Raises OverflowError when a sum of integers leaves the bits of `target`.
    """
    flat, rows = _FOLDS[merge]
    if target.dtype == np.float16:
        _fold_halves(target, slots, values, merge)
    elif merge == "sum" and values.ndim == 1 and values.dtype == np.int64:
        if _sum_int_at(target, slots, values) >= 0:
            raise OverflowError("a sum of integers does not fit into 64 bits; cast the column to DOUBLE in a map")
    elif merge == "sum" and values.dtype.kind in "iu":
        _sum_integers(target, slots, values)
    elif values.ndim == 1:
        flat(target, slots, values)
    elif len(values):
        rows(_as_rows(target), slots, np.ascontiguousarray(_as_rows(values)))


def _fold_halves(target: np.ndarray, slots: np.ndarray, values: np.ndarray, merge: str) -> None:
    """Fold half floats, which numba has not, as doubles that are rounded once."""
    places, folded = np.unique(slots, return_inverse=True)
    wide = np.asarray(target)[places].astype(np.float64)
    combine_into(wide, folded, values.astype(np.float64), merge)
    target[places] = wide


def _sum_integers(target: np.ndarray, slots: np.ndarray, values: np.ndarray) -> None:
    if not len(values):
        return
    fold = _sum_unsigned_rows if values.dtype == np.uint64 else _sum_signed_rows
    if fold(_as_rows(target), slots, np.ascontiguousarray(_as_rows(values))) >= 0:
        raise OverflowError(f"a sum of integers does not fit into {target.dtype}; declare the field with another dtype")


def _as_rows(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1)


@nb.njit(cache=True, nogil=True)
def log_steps(values: np.ndarray, low: float, high: float, bounds: np.ndarray) -> np.ndarray:
    """int64[n]: in which step of `bounds` (growing by one factor) each clipped magnitude lies; negative for values < 0.

    The logarithm only guesses; comparing with the bounds decides, so that a value has one step on every machine.
    """
    per_step = 1.0 / math.log(bounds[1] / bounds[0])
    offset = math.log(bounds[0])
    steps = np.zeros(values.shape[0], np.int64)
    for i in range(values.shape[0]):
        value = min(max(values[i], low), high)
        magnitude = abs(value)
        if magnitude < bounds[0]:
            continue
        step = max(int((math.log(magnitude) - offset) * per_step), 1)
        while step > 1 and magnitude <= bounds[step - 1]:
            step -= 1
        while magnitude > bounds[step]:
            step += 1
        steps[i] = -step if value < 0 else step
    return steps


@nb.njit(cache=True, nogil=True)
def quantile_bins(
    histograms: np.ndarray, slots: np.ndarray, numerators: np.ndarray, denominators: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Per slot (int64[n] counts, int64[n, q] bins): the bin of the element of rank ceil(count * q), at least 1.

    histograms: int64[capacity, bins]; quantile j is numerators[j] / denominators[j]. The bins of an empty slot are -1.
    """
    counts = np.zeros(slots.shape[0], np.int64)
    found = np.full((slots.shape[0], numerators.shape[0]), -1, np.int64)
    for i in range(slots.shape[0]):
        histogram = histograms[slots[i]]
        counts[i] = histogram.sum()
        if counts[i] == 0:
            continue
        for j in range(numerators.shape[0]):
            left = max((counts[i] * numerators[j] + denominators[j] - 1) // denominators[j], 1)
            b = 0
            while left > histogram[b]:
                left -= histogram[b]
                b += 1
            found[i, j] = b
    return counts, found


@nb.njit(cache=True, nogil=True)
def keep_largest(
    values: np.ndarray,
    ids: np.ndarray,
    used: np.ndarray,
    slots: np.ndarray,
    new_values: np.ndarray,
    new_ids: np.ndarray,
) -> None:
    """Per slot the k ids with the largest values, best first; among equal values the smaller id wins.

    values: (capacity, k); ids: uint8 or int64 (capacity, k, width); used: int64[capacity], how many of k are filled.
    An id that is there already keeps the larger of its values.
    """
    k, width = values.shape[1], ids.shape[2]
    for i in range(slots.shape[0]):
        slot, value = slots[i], new_values[i]
        filled = used[slot]
        place = filled
        for j in range(filled):
            same = True
            for w in range(width):
                if ids[slot, j, w] != new_ids[i, w]:
                    same = False
                    break
            if same:
                place = j
                break
        if place < filled and value <= values[slot, place]:
            continue
        if place == filled and filled == k:
            place = k - 1
            if not _before(value, new_ids[i], values[slot, place], ids[slot, place]):
                continue
        elif place == filled:
            used[slot] = filled + 1
        while place > 0 and _before(value, new_ids[i], values[slot, place - 1], ids[slot, place - 1]):
            values[slot, place] = values[slot, place - 1]
            ids[slot, place] = ids[slot, place - 1]
            place -= 1
        values[slot, place] = value
        ids[slot, place] = new_ids[i]


@nb.njit(cache=True, nogil=True)
def _before(value: Any, name: np.ndarray, other_value: Any, other_name: np.ndarray) -> bool:
    """True if (value, name) ranks before the other: by the larger value, then by the smaller name."""
    if value != other_value:
        return value > other_value
    for w in range(name.shape[0]):
        if name[w] != other_name[w]:
            return name[w] < other_name[w]
    return False


@nb.njit(cache=True, nogil=True)
def sessions(
    groups: np.ndarray, starts: np.ndarray, ends: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join spans of time of one group that overlap or touch, in `order`, which is by group, then by start; all are int64.

    Returns, for each span, the number of its session; for each session, the span that begins it, and its end.
    """
    session = np.empty(order.shape[0], np.int64)
    firsts, closes = np.empty(order.shape[0], np.int64), np.empty(order.shape[0], np.int64)
    found = 0
    for i in range(order.shape[0]):
        span = order[i]
        if i == 0 or groups[span] != groups[order[i - 1]] or starts[span] > closes[found - 1]:
            firsts[found], closes[found] = span, ends[span]
            found += 1
        elif ends[span] > closes[found - 1]:
            closes[found - 1] = ends[span]
        session[span] = found - 1
    return session, firsts[:found], closes[:found]
