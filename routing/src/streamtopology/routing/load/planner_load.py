"""The load and state of an operator's keys and buckets, as planners take them, from the reports of a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from streamtopology.routing.load.load_report import HEAVY_KEYS, LoadReport, merge

Floats = npt.NDArray[np.float64]

# Times the rows of the lightest key that is listed: one that had as many and is not listed has not just had few by chance.
GONE = 10.0


class Rates(Protocol):
    """Measured speeds of operators and executor slots (`control.slot_model.SlotModel` has them)."""

    @property
    def base_rates(self) -> Mapping[str, float]:
        """Rows/s of each operator on a slot of speed 1."""
        ...

    @property
    def speeds(self) -> Floats:
        """float64[slots]: relative speeds."""
        ...


@dataclass(frozen=True, eq=False)
class PlannerLoad:
    """Mean load per batch and present state of one operator.

    Load is in rows or, where tuples differ in cost, in rows of average cost; state is in bytes.
    key_*: the heavy keys, distinct hashes uint64[m], loads and state float64[m].
    bucket_*: all other keys, float64[B]; bucket_keys is their number.
    """

    key_hashes: npt.NDArray[np.uint64]
    key_loads: Floats
    key_state: Floats
    bucket_loads: Floats
    bucket_state: Floats
    bucket_keys: Floats


def planner_load_of(reports: Sequence[LoadReport], batches: int, rates: Rates, max_heavy: int = HEAVY_KEYS) -> PlannerLoad:
    """Compute the planner load of one operator over a window of `batches` batches.

    reports: oldest first. max_heavy: how many keys are heavy at most. Reports give state per instance and per heavy key;
    the rest is spread evenly over the buckets, as hashing spreads keys. Raises ValueError as `merge` does.
    """
    merged = merge([as_work(report, rates) for report in reports], max_heavy)
    n_buckets = merged.bucket_rows.count
    heavy_bytes = merged.heavy_bytes.astype(np.float64)
    light_bytes = max(merged.state_bytes - float(heavy_bytes.sum()), 0.0)
    light_keys = max(merged.state_keys - len(heavy_bytes), 0)
    return PlannerLoad(
        merged.heavy_hashes,
        merged.heavy_rows / batches,
        heavy_bytes,
        merged.bucket_rows.dense() / batches,
        np.full(n_buckets, light_bytes / max(n_buckets, 1)),
        np.full(n_buckets, light_keys / max(n_buckets, 1)),
    )


def without_gone(load: PlannerLoad, newest: Sequence[LoadReport]) -> PlannerLoad:
    """Spread the load of heavy keys that are gone evenly over the buckets: other keys will have it, nobody knows which.

    newest: the reports of the window's newest batches, of every instance that has keys. A key is gone if none names it
    though it would be among the heavy ones with a tenth of its share of their rows.
    """
    listed = [report.heavy_rows for report in newest if len(report.heavy_rows)]
    total = float(load.key_loads.sum() + load.bucket_loads.sum())
    if not listed or not len(load.bucket_loads) or total <= 0:
        return load
    least = max(float(np.concatenate(listed).min()), 1.0)
    expected = load.key_loads * (sum(report.rows for report in newest) / total)
    seen = np.isin(load.key_hashes, np.concatenate([report.heavy_hashes for report in newest]))
    stays = seen | (expected <= GONE * least)
    n_buckets = len(load.bucket_loads)
    return replace(
        load,
        key_hashes=load.key_hashes[stays],
        key_loads=load.key_loads[stays],
        key_state=load.key_state[stays],
        bucket_loads=load.bucket_loads + float(load.key_loads[~stays].sum()) / n_buckets,
        bucket_state=load.bucket_state + float(load.key_state[~stays].sum()) / n_buckets,
        bucket_keys=load.bucket_keys + np.count_nonzero(~stays) / n_buckets,
    )


def over_virtual_workers(load: PlannerLoad, count: int) -> PlannerLoad:
    """Spread the same load evenly over `count` virtual workers (buckets). Their state is 0, as it never moves."""
    total = float(load.key_loads.sum() + load.bucket_loads.sum())
    nothing = np.zeros(count)
    return PlannerLoad(np.empty(0, np.uint64), np.empty(0), np.empty(0), np.full(count, total / count), nothing, nothing)


def as_work(report: LoadReport, rates: Rates) -> LoadReport:
    """Convert rows to work: measured seconds in rows of average cost. Returns the report as it is if it times no tuples.

    Seconds on a slow slot count for fewer rows, so a key weighs the same wherever it was measured.
    """
    if not report.times_keys or report.operator not in rates.base_rates:
        return report
    rows_per_second = rates.base_rates[report.operator] * float(rates.speeds[report.slot])
    heavy = np.round(report.heavy_seconds * rows_per_second).astype(np.int64)
    light = max(report.busy_seconds - float(report.heavy_seconds.sum()), 0.0) * rows_per_second
    buckets = report.bucket_rows
    of_bucket = np.round(buckets.rows * (light / max(int(buckets.rows.sum()), 1))).astype(np.int64)
    return replace(report, rows=work_rows(report, rates), heavy_rows=heavy, bucket_rows=replace(buckets, rows=of_bucket))


def work_rows(report: LoadReport, rates: Rates) -> int:
    """The rows of `as_work(report, rates)`."""
    if not report.times_keys or report.operator not in rates.base_rates:
        return report.rows
    return round(report.busy_seconds * rates.base_rates[report.operator] * float(rates.speeds[report.slot]))
