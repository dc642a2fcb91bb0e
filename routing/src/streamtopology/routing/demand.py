"""What an operator's keys ask for and hold, from the reports of a window: the planner's key and bucket loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamtopology.routing.capacity import SlotModel
from streamtopology.routing.report import HEAVY_KEYS, LoadReport, merge

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Demand:
    """Mean load per batch (rows, or rows' worth of work where tuples differ in cost) and present state in bytes.

    Keys: the heavy ones, distinct hashes uint64[m] with float64[m] loads and state. Buckets: float64[B], all others.
    """

    key_hashes: npt.NDArray[np.uint64]
    key_loads: Floats
    key_state: Floats
    bucket_loads: Floats
    bucket_state: Floats
    bucket_keys: Floats


def demand(reports: Sequence[LoadReport], batches: int, model: SlotModel, max_heavy: int = HEAVY_KEYS) -> Demand:
    """The demand on one operator over a window of `batches` batches; reports oldest first.

    State is reported per instance and for heavy keys; what is left is taken to lie evenly over the buckets, as hashed
    keys do.
    """
    merged = merge([as_work(report, model) for report in reports], max_heavy)
    n_buckets = len(merged.bucket_rows)
    heavy_bytes = merged.heavy_bytes.astype(np.float64)
    light_bytes = max(merged.state_bytes - float(heavy_bytes.sum()), 0.0)
    light_keys = max(merged.state_keys - len(heavy_bytes), 0)
    return Demand(
        merged.heavy_hashes,
        merged.heavy_rows / batches,
        heavy_bytes,
        merged.bucket_rows / batches,
        np.full(n_buckets, light_bytes / max(n_buckets, 1)),
        np.full(n_buckets, light_keys / max(n_buckets, 1)),
    )


def over_virtual_workers(demand: Demand, count: int) -> Demand:
    """The same load where a chooser spreads it evenly over `count` virtual workers; their keys' state never moves."""
    total = float(demand.key_loads.sum() + demand.bucket_loads.sum())
    nothing = np.zeros(count)
    return Demand(np.empty(0, np.uint64), np.empty(0), np.empty(0), np.full(count, total / count), nothing, nothing)


def as_work(report: LoadReport, model: SlotModel) -> LoadReport:
    """The report with rows replaced by work: seconds measured, in rows of average cost; the same if it times no tuples.

    A slow slot's seconds are worth fewer rows, so the same key weighs the same wherever it was measured.
    """
    if not report.times_keys or report.operator not in model.base_rates:
        return report
    rows_per_second = model.base_rates[report.operator] * float(model.speeds[report.slot])
    heavy = np.round(report.heavy_seconds * rows_per_second).astype(np.int64)
    light = max(report.busy_seconds - float(report.heavy_seconds.sum()), 0.0) * rows_per_second
    light_rows = int(report.bucket_rows.sum())
    buckets = np.round(report.bucket_rows * (light / max(light_rows, 1))).astype(np.int64)
    rows = round(report.busy_seconds * rows_per_second)
    return replace(report, rows=rows, heavy_rows=heavy, bucket_rows=buckets)
