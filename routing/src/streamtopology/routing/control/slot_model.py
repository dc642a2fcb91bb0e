"""The real capacity of each slot, estimated from its stage timings; the CPU limit is only the first guess.

A declared CPU says little: machines differ, neighbours disturb, and part of a task's time does not depend on its rows. The
model separates the two: a slot's part in a stage (an operator, or the source) lasts fixed seconds + rows / rate. Without
the fixed part, small batches would make every slot look equally slow.

The rate is about the stage's base rate times the slot's speed, which all stages share. So a slot that a stage has hardly
used yet is judged by its speed at the others. Pure functions of a window of batches.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamtopology.contract.reasons import SOURCE
from streamtopology.routing.load.load_report import LoadReport, SourceReport

Floats = npt.NDArray[np.float64]

# Rows of a stage that a slot must have seen in the window for its own rate to be believed.
ENOUGH_ROWS = 200

# Weight of the declared CPU against all measurements: it decides only where these say nothing.
PRIOR_WEIGHT = 1e-3

# Weight of stages whose tuples differ in cost: their rows/s say as much of the tuples as of the slot.
TIMED_WEIGHT = 0.1

# Busy seconds below this do not show the speed of a slot: a CPU limit is a share of each tenth of a second, and so short a time
# may fall where its slot has all of that left, or nothing.
SHORT_SECONDS = 0.1

# Relative change of a rate from one batch to the next few that is taken for a change of capacity, not for noise.
SHIFT = 0.2


# Standard error of the median of normal values, times the root of their number, per third quartile of deviations from it.
ERROR_PER_DEVIATION = 1.0895


@dataclass(frozen=True)
class StageTiming:
    """One slot's part in one stage of one batch, all instances that share the slot together.

    `timed`: the operator measures single tuples because they differ in cost.
    """

    stage: str
    slot: int
    rows: int
    busy_seconds: float
    task_seconds: float
    timed: bool = False

    @property
    def rate(self) -> float:
        """Rows per busy second; 0 where there was nothing to measure."""
        return self.rows / self.busy_seconds if self.busy_seconds > 0 else 0.0


def stage_timings(reports: Iterable[LoadReport], source_reports: Iterable[SourceReport]) -> tuple[StageTiming, ...]:
    """The stage timings of one batch, from the reports of its instances and source tasks."""
    shares: defaultdict[tuple[str, int], list[LoadReport | SourceReport]] = defaultdict(list)
    for report in reports:
        shares[report.operator, report.slot].append(report)
    for source_report in source_reports:
        shares[SOURCE, source_report.slot].append(source_report)
    return tuple(
        StageTiming(
            stage,
            slot,
            sum(report.rows for report in of_slot),
            sum(report.busy_seconds for report in of_slot),
            sum(report.task_seconds for report in of_slot),
            any(isinstance(report, LoadReport) and report.times_keys for report in of_slot),
        )
        for (stage, slot), of_slot in shares.items()
    )


@dataclass(frozen=True, eq=False)
class SlotModel:
    """The slots as measured. Arrays are float64[slots].

    `speeds`: relative to the slot with the largest declared CPU, shared by all stages. `base_rates`: rows/s of a stage
    on a slot of speed 1. `rates`: rows/s of each stage on each slot. `fixed_seconds`: the time of a stage without its rows.
    `rate_errors`: relative standard error of a rate of the stage; `fixed_errors`: of its fixed seconds, in seconds. A stage
    in neither has none.
    """

    speeds: Floats
    base_rates: Mapping[str, float]
    rates: Mapping[str, Floats]
    fixed_seconds: Mapping[str, Floats]
    rate_errors: Mapping[str, float] = field(default_factory=dict[str, float])
    fixed_errors: Mapping[str, float] = field(default_factory=dict[str, float])

    def error_seconds(self, stage: str, seconds: float) -> float:
        """Standard error of the `seconds` that an instance of the stage takes by this model."""
        return math.hypot(self.rate_errors.get(stage, 0.0) * seconds, self.fixed_errors.get(stage, 0.0))

    def of_instances(self, stage: str, slots: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Capacities (rows/s) and fixed seconds of instances on these slots; those on one slot share its rate."""
        sharing = np.bincount(slots, minlength=len(self.speeds))[slots]
        return self.rates[stage][slots] / sharing, self.fixed_seconds[stage][slots]


def estimate(batches: Sequence[Sequence[StageTiming]], declared_cpu: Sequence[float]) -> SlotModel:
    """The slot model of a window of batches, each given by its stage timings; `declared_cpu` is cores > 0 per slot.

    Medians over the window, so a few bad batches do not matter. Stages without a measurable timing are not in the model,
    and timings of slots that are not declared (those of a batch before or after a resize) are left out.
    """
    n_slots = len(declared_cpu)
    if not n_slots or min(declared_cpu) <= 0:
        raise ValueError(f"declared_cpu: every slot needs a CPU limit > 0 cores; found {tuple(declared_cpu)}")
    cells = {(stage, slot): of_cell for (stage, slot), of_cell in _by_cell(batches).items() if slot < n_slots}
    stages = tuple(dict.fromkeys(stage for stage, _ in cells))
    measured = {
        cell: float(np.median(rates))
        for cell, of_cell in cells.items()
        if sum(timing.rows for timing in of_cell) >= ENOUGH_ROWS
        and (rates := [timing.rate for timing in of_cell if timing.rate > 0])
    }
    timed = {stage for (stage, _), of_cell in cells.items() if any(timing.timed for timing in of_cell)}
    weights = {
        cell: sum(timing.busy_seconds for timing in cells[cell]) * (TIMED_WEIGHT if cell[0] in timed else 1.0)
        for cell in measured
    }
    known = tuple(stage for stage in stages if any(cell[0] == stage for cell in measured))
    speeds, bases = _speeds_and_bases(measured, weights, known, np.asarray(declared_cpu, np.float64))
    rates = {stage: bases[stage] * speeds for stage in known}
    for (stage, slot), rate in measured.items():
        if stage not in timed and _typical_busy_seconds(cells[stage, slot]) >= SHORT_SECONDS:
            rates[stage][slot] = rate
    fixed = {stage: _fixed_seconds(cells, stage, speeds) for stage in known}
    errors = {
        stage: _pooled_error(
            np.log([timing.rate for timing in of_cell if timing.rate > 0])
            for (of_stage, _), of_cell in cells.items()
            if of_stage == stage
        )
        for stage in known
    }
    fixed_errors = {stage: _pooled_error(_overheads(cells, stage).values()) for stage in known}
    return SlotModel(speeds, bases, rates, fixed, errors, fixed_errors)


def _typical_busy_seconds(of_cell: Sequence[StageTiming]) -> float:
    return float(np.median([timing.busy_seconds for timing in of_cell]))


def settled_from(batches: Sequence[Sequence[StageTiming]], newest: int = 2) -> int:
    """Index of the first batch that still counts: 0, or where the `newest` begin if a rate has just changed.

    Rates of too few rows or seconds do not show it.
    """
    split = len(batches) - newest
    if split < 1:
        return 0
    before, after = _by_cell(batches[:split]), _by_cell(batches[split:])
    for cell, old in before.items():
        new = after.get(cell, [])
        if min(sum(timing.rows for timing in part) for part in (old, new)) < ENOUGH_ROWS:
            continue
        if min(sum(timing.busy_seconds for timing in part) for part in (old, new)) < SHORT_SECONDS:
            continue
        was, now = (float(np.median([timing.rate for timing in part])) for part in (old, new))
        if min(was, now) > 0 and max(was, now) / min(was, now) > 1 + SHIFT:
            return split
    return 0


def common_shift(before: Sequence[Sequence[StageTiming]], after: Sequence[Sequence[StageTiming]]) -> float:
    """The factor by which a row takes longer `after` than `before` at nearly all slots: rows are dearer, or all CPUs slower.

    1 where less than three quarters of the stages' parts on slots have changed by more than `SHIFT` in the same direction.
    """
    earlier, later = _by_cell(before), _by_cell(after)
    rates = [
        [float(np.median([timing.rate for timing in of_cell])) for of_cell in (earlier[cell], later[cell])]
        for cell in earlier.keys() & later.keys()
        if min(sum(timing.rows for timing in of_cell) for of_cell in (earlier[cell], later[cell])) >= ENOUGH_ROWS
    ]
    ratios = [was / now for was, now in rates if was > 0 and now > 0]
    if not ratios:
        return 1.0
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    return float(middle) if low > 1 + SHIFT or high < 1 / (1 + SHIFT) else 1.0


@dataclass(frozen=True)
class Bound:
    """The bound by measured capacities: `rows_per_second` of source rows when every stage uses all slots to the full.

    `seconds_per_row`: what one source row costs at each stage with all slots busy; fixed seconds are not counted. Capacities
    are estimates of the window, so it holds for them only: a batch may exceed it where slots were faster before, used CPU
    that they had saved while they waited, or prefetched the source while operators ran, which the sum takes as one after
    the other.
    """

    rows_per_second: float
    seconds_per_row: Mapping[str, float]


def bound(model: SlotModel, rows_per_source_row: Mapping[str, float], slots: Sequence[int] | None = None) -> Bound:
    """The bound of a chain; `rows_per_source_row` says how many rows each stage gets per source row (the source: 1).

    `slots`: the numbers of those that are there; all of the model's if left out.
    """
    there = range(len(model.speeds)) if slots is None else slots
    seconds = {
        stage: rows / float(model.rates[stage][list(there)].sum()) for stage, rows in rows_per_source_row.items() if rows > 0
    }
    total = sum(seconds.values())
    return Bound(1 / total if total > 0 else 0.0, seconds)


def _by_cell(batches: Sequence[Sequence[StageTiming]]) -> dict[tuple[str, int], list[StageTiming]]:
    cells: defaultdict[tuple[str, int], list[StageTiming]] = defaultdict(list)
    for batch in batches:
        for timing in batch:
            cells[timing.stage, timing.slot].append(timing)
    return dict(cells)


def _speeds_and_bases(
    measured: Mapping[tuple[str, int], float],
    weights: Mapping[tuple[str, int], float],
    stages: tuple[str, ...],
    declared_cpu: Floats,
) -> tuple[Floats, dict[str, float]]:
    """Fits log rate = log base(stage) + log speed(slot), weighted by busy seconds; declared CPU is a faint prior.

    Each speed is the weighted mean of what is left of the slot's rates by the bases: so the equations are those of the bases
    alone, as many as there are stages.
    """
    logs, weight = np.zeros((len(stages), len(declared_cpu))), np.zeros((len(stages), len(declared_cpu)))
    for (stage, slot), rate in measured.items():
        cell = stages.index(stage), slot
        logs[cell], weight[cell] = np.log(rate), weights[stage, slot]
    weight /= weight.sum() or 1.0
    of_slots = weight.sum(axis=0) + PRIOR_WEIGHT**2
    seen = (weight * logs).sum(axis=0) + PRIOR_WEIGHT**2 * np.log(declared_cpu / declared_cpu.max())
    equations = np.diag(weight.sum(axis=1)) - (weight / of_slots) @ weight.T
    bases = np.asarray(np.linalg.solve(equations, (weight * logs).sum(axis=1) - weight @ (seen / of_slots)), np.float64)
    return np.exp((seen - bases @ weight) / of_slots), dict(zip(stages, np.exp(bases).tolist(), strict=True))


def _pooled_error(of_slots: Iterable[Floats]) -> float:
    """Standard error of a slot's median, by the spread of the values of all slots about their own medians."""
    known = [values for values in of_slots if len(values)]
    if not known:
        return 0.0
    off = np.concatenate([values - np.median(values) for values in known])
    return median_error(off, float(np.median([len(values) for values in known])))


def median_error(off: Floats, count: float) -> float:
    """Standard error of the median of `count` values, by those that are `off` a median so far; a few bad ones do not matter."""
    return ERROR_PER_DEVIATION * float(np.quantile(np.abs(off), 0.75)) / float(np.sqrt(count))


def _fixed_seconds(cells: Mapping[tuple[str, int], list[StageTiming]], stage: str, speeds: Floats) -> Floats:
    """Median of task - busy seconds per slot; a slot without timings needs what the others do, at its own speed.

    The source's are taken from the operators, where there are any: Spark takes as long for its tasks, but these come after
    a pause, in which a slot saves up CPU, or during the previous batch.
    """
    fixed = np.full(len(speeds), np.nan)
    for slot, seconds in _overheads(cells, stage).items():
        fixed[slot] = max(float(np.median(seconds)), 0.0)
    return np.where(np.isnan(fixed), np.nanmedian(fixed * speeds) / speeds, fixed)


def _overheads(cells: Mapping[tuple[str, int], list[StageTiming]], stage: str) -> dict[int, Floats]:
    """Task - busy seconds of each slot at the stage; the source's are those of the operators."""
    operators = {of_stage for of_stage, _ in cells} - {SOURCE}
    like_it = operators if stage == SOURCE and operators else {stage}
    overheads: defaultdict[int, list[float]] = defaultdict(list)
    for (of_stage, slot), of_cell in cells.items():
        if of_stage in like_it:
            overheads[slot] += [timing.task_seconds - timing.busy_seconds for timing in of_cell]
    return {slot: np.array(seconds) for slot, seconds in overheads.items()}
