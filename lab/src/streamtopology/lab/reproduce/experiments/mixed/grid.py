"""Cases of an experiment, each run over the stream several times and averaged as the paper does (section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamtopology.lab.groupings import planners
from streamtopology.lab.reproduce.experiment import Progress, Row
from streamtopology.lab.reproduce.experiments.mixed.adaptation import Interval, Setting, adaptations, compile_kernels
from streamtopology.routing.planners import Planner

# Table 2's defaults as far as the paper's text still has them; |K| and N_D are those that appendix B's 9,350 entries imply.
DEFAULTS: Mapping[str, float | int] = {name: field.default for name, field in Setting.__dataclass_fields__.items()}

# |K| of the rows of section 5. The text has lost it; appendix B's 10,000 is another one, "to verify the results quickly".
#
# Section 5 says that at 40 instances the smallest table exceeds N_max, and that at 15 Mixed and MinTable differ: so it is here
# from about 300,000 keys to a million, and not with 100,000. With 10,000 no table comes near N_max, and Mixed is MinMig.
KEYS = 300_000

# N_max of a table without a bound.
UNBOUNDED = 10**9


@dataclass(frozen=True)
class Case:
    """One point of an experiment: the columns that name it, the planner and the setting."""

    columns: Mapping[str, float | int | str]
    planner: Planner
    setting: Setting


def measured(cases: Sequence[Case], runs: int, seed: int, progress: Progress) -> list[Row]:
    """A row per case, averaged over its intervals and runs; run i of every case has the same seed."""
    for planner in dict.fromkeys(case.planner for case in cases):
        compile_kernels(planner)
    rows: list[Row] = []
    for number, case in enumerate(cases):
        intervals: list[Interval] = []
        for run in range(runs):
            intervals += adaptations(case.planner, case.setting, seed + run)
            progress((number + (run + 1) / runs) / len(cases))
        rows.append({**case.columns, **averages(intervals), "as_minmig": _as_minmig(case.planner, intervals)})
    return rows


def _as_minmig(planner: Planner, intervals: Iterable[Interval]) -> float:
    """The share of Mixed's plans that are MinMig's, since that table keeps N_max: one trial; 0 of another planner."""
    if planner is not planners.get("mixed"):
        return 0.0
    minmig = planners.get("minmig")
    given = [interval.given for interval in intervals if interval.plan]
    sizes = [len(minmig(replace(one, max_entries=UNBOUNDED)).table.entry_hashes) for one in given]
    return _mean([float(size <= one.max_entries) for size, one in zip(sizes, given, strict=True)])


def averages(intervals: Iterable[Interval]) -> dict[str, float]:
    """Over the intervals that were planned: plan time in CPU ms, migration in percent of all state, and what it led to.

    `entries` is the mean size of the table, `imbalance` the mean of max load / mean load - 1 in percent after planning,
    `reached` the share of plans within the tolerance.
    """
    planned = [(interval, interval.plan) for interval in intervals if interval.plan]
    milliseconds = [1e3 * interval.plan_seconds for interval, _ in planned]
    return {
        "plan_ms": _mean(milliseconds),
        "plan_ms_max": max(milliseconds, default=0.0),
        "migration": 100 * _mean([interval.migration for interval, _ in planned]),
        "entries": _mean([len(plan.table.entry_hashes) for _, plan in planned]),
        "imbalance": 100 * _mean([plan.imbalance_after for _, plan in planned]),
        "reached": _mean([float(plan.theta_reached) for _, plan in planned]),
    }


def column(rows: Iterable[Row], name: str, **where: float | int | str) -> list[float]:
    """The column's values of the rows that have these values, in their order."""
    return [float(row[name]) for row in rows if all(row[key] == value for key, value in where.items())]


def only(rows: Iterable[Row], name: str, **where: float | int | str) -> float:
    """The column's value in the one row that has these values."""
    (value,) = column(rows, name, **where)
    return value


def ratio(dividend: float, divisor: float) -> float:
    """A ratio for a summary; 0 where there was nothing to compare with."""
    return dividend / divisor if divisor > 0 else 0.0


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
