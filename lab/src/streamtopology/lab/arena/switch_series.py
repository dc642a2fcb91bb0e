"""What a switch does to the latency of rows: figures and the series over time, from when each row was produced and seen.

All times are seconds of one clock. Rows are in the order of their production; a row that was never seen has NaN.
"""

from __future__ import annotations

import math

import numpy as np

BEFORE_SECONDS = 30.0
# From the end of a switch on; also the length of the windows whose worst is taken.
AFTER_SECONDS = 10.0
SLICE_SECONDS = 0.1
CALM_SECONDS = 1.0


def switch_figures(produced: np.ndarray, seen: np.ndarray, asked: float, done: float) -> dict[str, float]:
    """The figures of a switch that was `asked` for and `done`.

    A p99 through the switch is that of the worst of all windows of `AFTER_SECONDS`, one beginning each second; so is
    `worst_p99_before`, which it is compared with. A silence is the time between two arrivals.
    """
    begin, end = asked - BEFORE_SECONDS, max(done, asked) + AFTER_SECONDS
    before = _latencies(produced, seen, begin, asked)
    through = _latencies(produced, seen, asked, end)
    p99 = _percentile(before, 99)
    return {
        "p50_before": _percentile(before, 50),
        "p99_before": p99,
        "worst_p99_before": worst_p99(produced, seen, begin, asked),
        "longest_before": _percentile(before, 100),
        "silence_before": longest_silence(seen, begin, asked),
        "p50_through": _percentile(through, 50),
        "p99_through": worst_p99(produced, seen, asked, end),
        "longest_through": _percentile(through, 100),
        "silence_through": longest_silence(seen, asked, end),
        "seconds": done - asked,
        "back": back_after(series(produced, seen, asked, end), p99),
    }


def series(produced: np.ndarray, seen: np.ndarray, begin: float, end: float) -> list[tuple[float, float, float]]:
    """The median and the longest latency of each slice in which rows were produced, after its begin relative to `begin`."""
    first, last = np.searchsorted(produced, [begin, end])
    latencies = (seen - produced)[first:last]
    slices = ((produced[first:last] - begin) // SLICE_SECONDS).astype(int)
    known = ~np.isnan(latencies)
    latencies, slices = latencies[known], slices[known]
    return [
        (round(number * SLICE_SECONDS, 3), float(np.median(of_slice)), float(of_slice.max()))
        for number in np.unique(slices).tolist()
        for of_slice in [latencies[slices == number]]
    ]


def worst_p99(produced: np.ndarray, seen: np.ndarray, begin: float, end: float) -> float:
    """The largest p99 of the windows of `AFTER_SECONDS` that begin at `begin`, a second later, and so on."""
    begins = np.arange(begin, max(end - AFTER_SECONDS, begin) + 1e-6, 1.0)
    worst = [_percentile(_latencies(produced, seen, at, at + AFTER_SECONDS), 99) for at in begins.tolist()]
    return max((p99 for p99 in worst if not math.isnan(p99)), default=math.nan)


def longest_silence(seen: np.ndarray, begin: float, end: float) -> float:
    """The longest time without an arrival from `begin` to `end`, counted from the arrival before it to the one after it."""
    arrivals = np.unique(seen[~np.isnan(seen)])
    first = max(int(np.searchsorted(arrivals, begin)) - 1, 0)
    last = int(np.searchsorted(arrivals, end)) + 1
    gaps = np.diff(arrivals[first:last])
    return float(gaps.max()) if len(gaps) else math.nan


def back_after(slices: list[tuple[float, float, float]], bar: float) -> float:
    """Seconds to the first second after the worst slice in which no slice has a median above `bar`.

    0 if no slice has one; NaN if it does not come back.
    """
    if not slices or all(median <= bar for _, median, _ in slices):
        return 0.0
    worst = max(slices, key=lambda part: part[1])[0]
    calm_since = None
    for at, median, _ in slices:
        if at < worst:
            continue
        if median > bar:
            calm_since = None
        elif calm_since is None:
            calm_since = at
        if calm_since is not None and at + SLICE_SECONDS - calm_since >= CALM_SECONDS - 1e-6:
            return calm_since
    return math.nan


def _latencies(produced: np.ndarray, seen: np.ndarray, begin: float, end: float) -> np.ndarray:
    first, last = np.searchsorted(produced, [begin, end])
    latencies = (seen - produced)[first:last]
    return latencies[~np.isnan(latencies)]


def _percentile(latencies: np.ndarray, percent: float) -> float:
    return float(np.percentile(latencies, percent)) if len(latencies) else math.nan
