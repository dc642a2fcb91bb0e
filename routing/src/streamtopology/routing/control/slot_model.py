"""The real capacity of each slot, estimated from its stage timings; the CPU limit is only the first guess.

A declared CPU says little: machines differ, neighbours disturb, and part of a task's time does not depend on its rows. The
model separates the two: a slot's part in a stage (an operator, or the source) lasts fixed seconds + rows / rate. Without
the fixed part, small batches would make every slot look equally slow.

The rate is about the stage's base rate times the slot's speed, which all stages share. So a slot that a stage has hardly
used yet is judged by its speed at the others. Pure functions of a window of batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.contract.reasons import SOURCE
from streamtopology.routing.control.timings import Timings

Floats = npt.NDArray[np.float64]

_ALL = slice(None)

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
# The same per median deviation.
USUAL_ERROR = 1.8582


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


def estimate(batches: Sequence[Timings], declared_cpu: Sequence[float]) -> SlotModel:
    """The slot model of a window of batches, each given by its stage timings; `declared_cpu` is cores > 0 per slot.

    Medians over the window, so a few bad batches do not matter. Stages without a measurable timing are not in the model,
    and timings of slots that are not declared (those of a batch before or after a resize) are left out. Sorts the timings
    a few times: 1,000 slots with four stages and 12 batches take 25 ms.
    """
    if not declared_cpu or min(declared_cpu) <= 0:
        raise ValueError(f"declared_cpu: every slot needs a CPU limit > 0 cores; found {tuple(declared_cpu)}")
    cells = _Cells.of(batches, len(declared_cpu))
    typical = cells.medians(cells.rates, where=cells.rates > 0)
    measured = ~np.isnan(typical) & (cells.sums(cells.table["rows"]) >= ENOUGH_ROWS)
    timed = cells.sums(cells.table["timed"]).max(axis=1, initial=0) > 0
    weights = cells.sums(cells.table["busy_seconds"]) * np.where(timed, TIMED_WEIGHT, 1.0)[:, None] * measured
    known, cpu = np.flatnonzero(measured.sum(axis=1)), np.asarray(declared_cpu, np.float64)
    names = [cells.stages[stage] for stage in known]
    log_rates = [cells.log_rates_of(name) for name in names]
    alike = [_alike(of_stage, cpu, where) for of_stage, where in zip(log_rates, measured[known], strict=True)]
    logs = np.array(alike).reshape(len(known), len(cpu))
    speeds, bases = _speeds_and_bases(np.nan_to_num(logs), weights[known], cpu)
    own = measured & ~timed[:, None] & (cells.medians(cells.table["busy_seconds"]) >= SHORT_SECONDS)
    rates = np.where(own[known], np.exp(logs), bases[:, None] * speeds)
    overheads = {name: cells.overheads_of(name) for name in names}
    fixed = {name: _alike(of_stage, cpu, of_stage.counts > 0) for name, of_stage in overheads.items()}
    return SlotModel(
        speeds,
        dict(zip(names, bases.tolist(), strict=True)),
        dict(zip(names, rates, strict=True)),
        {name: _fixed_seconds(of_stage, speeds) for name, of_stage in fixed.items()},
        {name: _pooled_error(of_stage) for name, of_stage in zip(names, log_rates, strict=True)},
        {name: _pooled_error(of_stage) for name, of_stage in overheads.items()},
    )


def settled_from(batches: Sequence[Timings], newest: int = 2) -> int:
    """Index of the first batch that still counts: 0, or where the `newest` begin if a rate has just changed.

    Rates of too few rows or seconds do not show it.
    """
    split = len(batches) - newest
    if split < 1:
        return 0
    before, after = _Cells.both(batches[:split], batches[split:])
    judged = np.ones(before.shape, np.bool_)
    for part in (before, after):
        judged &= part.sums(part.table["rows"]) >= ENOUGH_ROWS
        judged &= part.sums(part.table["busy_seconds"]) >= SHORT_SECONDS
    was, now = before.medians(before.rates)[judged], after.medians(after.rates)[judged]
    low, high = np.minimum(was, now), np.maximum(was, now)
    return split if np.any((low > 0) & (high > (1 + SHIFT) * low)) else 0


def common_shift(before: Sequence[Timings], after: Sequence[Timings]) -> float:
    """The factor by which a row takes longer `after` than `before` at nearly all slots: rows are dearer, or all CPUs slower.

    1 where less than three quarters of the stages' parts on slots have changed by more than `SHIFT` in the same direction.
    """
    earlier, later = _Cells.both(before, after)
    enough = np.minimum(*(part.sums(part.table["rows"]) for part in (earlier, later))) >= ENOUGH_ROWS
    was, now = earlier.medians(earlier.rates)[enough], later.medians(later.rates)[enough]
    ratios = was[(was > 0) & (now > 0)] / now[(was > 0) & (now > 0)]
    if not len(ratios):
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


@dataclass(frozen=True, eq=False)
class _Cells:
    """The timings of a window: rows of `Timings.table`, with their stages' places in `stages`. A cell is a stage on a slot.

    Arrays of cells are [stages, slots].
    """

    stages: tuple[str, ...]
    slots: int
    table: npt.NDArray[Any]

    @staticmethod
    def of(batches: Sequence[Timings], slots: int, stages: tuple[str, ...] = ()) -> _Cells:
        """Of these `slots` only. `stages`: others than those of the batches."""
        stages = stages or tuple(dict.fromkeys(stage for batch in batches for stage in batch.stages))
        tables = [batch.table.copy() for batch in batches]
        for table, batch in zip(tables, batches, strict=True):
            table["stage"] = np.array([stages.index(stage) for stage in batch.stages], np.int16)[table["stage"]]
        table = np.concatenate(tables or [Timings.of(()).table])
        return _Cells(stages, slots, table[table["slot"] < slots])

    @staticmethod
    def both(before: Sequence[Timings], after: Sequence[Timings]) -> tuple[_Cells, _Cells]:
        """Of two windows, with the same stages and slots."""
        every = [*before, *after]
        stages = tuple(dict.fromkeys(stage for batch in every for stage in batch.stages))
        slots = max((int(batch.table["slot"].max(initial=-1)) for batch in every), default=-1) + 1
        return _Cells.of(before, slots, stages), _Cells.of(after, slots, stages)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.stages), self.slots

    @cached_property
    def rates(self) -> Floats:
        """Rows per busy second of each timing; 0 where there was nothing to measure."""
        busy = self.table["busy_seconds"]
        return np.divide(self.table["rows"], busy, out=np.zeros(len(busy)), where=busy > 0)

    def sums(self, values: npt.NDArray[Any]) -> Floats:
        """The sum of each cell's values, one a timing."""
        return np.bincount(self._place, values, math.prod(self.shape)).astype(np.float64).reshape(self.shape)

    def medians(self, values: Floats, where: npt.NDArray[np.bool_] | slice = _ALL) -> Floats:
        """The median of each cell's values, one a timing; NaN where there is none."""
        return _Grouped(self._place[where], values[where], math.prod(self.shape)).medians.reshape(self.shape)

    def log_rates_of(self, stage: str) -> _Grouped:
        """By slot."""
        seen = (self.table["stage"] == self.stages.index(stage)) & (self.rates > 0)
        return _Grouped(self.table["slot"][seen], np.log(self.rates[seen]), self.slots)

    def overheads_of(self, stage: str) -> _Grouped:
        """Task - busy seconds at the stage by slot.

        The source's are those of the operators, where there are any: Spark takes as long for its tasks, but these come after
        a pause, in which a slot saves up CPU, or during the previous batch.
        """
        of_stage = self.table["stage"] == self.stages.index(stage)
        seen = ~of_stage if stage == SOURCE and not of_stage.all() else of_stage
        table = self.table[seen]
        return _Grouped(table["slot"], table["task_seconds"] - table["busy_seconds"], self.slots)

    @cached_property
    def _place(self) -> npt.NDArray[np.int64]:
        return self.table["stage"].astype(np.int64) * self.slots + self.table["slot"]


class _Grouped:
    """Values by group, sorted within it. `groups`: int[values], below `count`."""

    def __init__(self, groups: npt.NDArray[np.integer[Any]], values: Floats, count: int) -> None:
        order = np.lexsort((values, groups))
        self._groups, self._values = groups[order], values[order]
        self.counts = np.bincount(groups, minlength=count)

    @cached_property
    def medians(self) -> Floats:
        """float64[count]; NaN where there is no value."""
        found = np.full(len(self.counts), np.nan)
        there = self.counts > 0
        ends = np.cumsum(self.counts)[there]
        starts = ends - self.counts[there]
        found[there] = (self._values[(starts + ends - 1) // 2] + self._values[(starts + ends) // 2]) / 2
        return found

    @property
    def usual_error(self) -> float:
        """Standard error of a median, by the usual deviation from it: even many bad values do not matter."""
        counts = self.counts[self.counts > 0]
        return USUAL_ERROR * float(np.median(np.abs(self.off)) / np.sqrt(np.median(counts))) if len(counts) else 0.0

    @property
    def off(self) -> Floats:
        """How far each value is from its group's median."""
        return self._values - self.medians[self._groups]


def _speeds_and_bases(logs: Floats, weight: Floats, declared_cpu: Floats) -> tuple[Floats, Floats]:
    """Fits log rate = log base(stage) + log speed(slot), weighted by busy seconds; declared CPU is a faint prior.

    `logs`, `weight`: float64[stages, slots], of weight 0 where nothing is measured. Each speed is the weighted mean of what is
    left of the slot's rates by the bases: so the equations are those of the bases alone, as many as there are stages.
    """
    weight = weight / (weight.sum() or 1.0)
    of_slots = weight.sum(axis=0) + PRIOR_WEIGHT**2
    seen = (weight * logs).sum(axis=0) + PRIOR_WEIGHT**2 * np.log(declared_cpu / declared_cpu.max())
    equations = np.diag(weight.sum(axis=1)) - (weight / of_slots) @ weight.T
    bases = np.asarray(np.linalg.solve(equations, (weight * logs).sum(axis=1) - weight @ (seen / of_slots)), np.float64)
    return np.exp((seen - bases @ weight) / of_slots), np.exp(bases)


def _alike(of_slots: _Grouped, cpu: Floats, known: npt.NDArray[np.bool_]) -> Floats:
    """float64[slots]: the medians (NaN where they are not `known`), each drawn to that of the slots with as much CPU.

    What is within two standard errors of theirs is noise, and they are alike; a value far beyond stays what it is (after James
    and Stein). Where batches are shorter than a CPU limit's periods the noise is a factor of two.
    """
    found = np.where(known, of_slots.medians, np.nan)
    for cores in np.unique(cpu):
        here = known & (cpu == cores)
        if np.count_nonzero(here) > 1:
            middle = np.median(found[here])
            off = found[here] - middle
            noise = np.divide(2 * of_slots.usual_error, np.abs(off), out=np.ones(len(off)), where=off != 0)
            found[here] = middle + off * np.maximum(1 - noise**2, 0.0)
    return found


def _pooled_error(of_slots: _Grouped) -> float:
    """Standard error of a slot's median, by the spread of the values of all slots about their own medians."""
    counts = of_slots.counts[of_slots.counts > 0]
    return median_error(of_slots.off, float(np.median(counts))) if len(counts) else 0.0


def median_error(off: Floats, count: float) -> float:
    """Standard error of the median of `count` values, by those that are `off` a median so far; a few bad ones do not matter."""
    return ERROR_PER_DEVIATION * float(np.quantile(np.abs(off), 0.75)) / float(np.sqrt(count))


def _fixed_seconds(overheads: Floats, speeds: Floats) -> Floats:
    """Those per slot; a slot without timings needs what the others do, at its own speed."""
    fixed = np.maximum(overheads, 0.0)
    return np.where(np.isnan(fixed), np.nanmedian(fixed * speeds) / speeds, fixed)
