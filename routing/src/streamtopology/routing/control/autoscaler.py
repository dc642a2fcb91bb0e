"""The wanted number of executors of a class: the built-in autoscaler. Pure: time comes in, the history goes in and out.

Load is work: the share of its time that each executor was busy, times its *measured* capacity. Enough executors are
wanted that this work keeps the target share of their capacity busy. More are asked for at once; fewer only when nothing
within the stabilisation window would have asked for more, since a dip is not worth two re-routings.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from streamtopology.contract.reasons import ScalingReason, Sizing
from streamtopology.contract.stats import CROWDED
from streamtopology.routing.control.slot_model import estimate
from streamtopology.routing.control.timings import Timings
from streamtopology.topology.values import Autoscale

# Relative distance from the target utilisation that is left alone, as Kubernetes' own autoscaler does.
TOLERANCE = 0.1

# Rows that wait less than this at the present speed are the ordinary way of batches, not lag.
LAG_SECONDS = 10.0

# In how long a lag beyond that should be worked off.
CATCH_UP_SECONDS = 120.0

# Executors: what floating point adds to a whole number must not ask for one more.
ROUNDING = 1e-6


@dataclass(frozen=True)
class ClassLoad:
    """The working executors of one class. Capacities are in the same unit for all classes.

    `busy`: executors that were busy all the time would do the same work, at most as many as there are or were. `capacity`:
    of one.
    """

    executors: int
    busy: float
    capacity: float


@dataclass(frozen=True)
class ScalingInput:
    """The input of one decision, at time `at` (seconds). `wanted`: executors of the scaled class that were last asked for.

    `lag_rows`: rows that wait in the sources, None if no source reports them. `rows_per_second`: what is being done.
    `crowded`: the share of the room for state that it takes at all executors together; 0 where memory has no limit.
    """

    at: float
    wanted: int
    classes: Mapping[str, ClassLoad]
    rows_per_second: float = 0.0
    lag_rows: float | None = None
    crowded: float = 0.0


@dataclass(frozen=True)
class Recommendation:
    """The number of executors that an input by itself would have asked for."""

    at: float
    replicas: int


@dataclass(frozen=True)
class Asked:
    """The capacity that an input asked for, in executors of one class of several that are scaled."""

    at: float
    executors: float


History = tuple[Recommendation, ...]
Dated = TypeVar("Dated", Recommendation, Asked)


@dataclass(frozen=True)
class ScalingDecision:
    """A number of executors, its reason, and the history for the next decision."""

    replicas: int
    reason: Sizing
    history: History


@dataclass(frozen=True)
class BatchLoad:
    """The stage timings of one batch; it took `seconds` and was committed at `committed_at` (seconds)."""

    committed_at: float
    seconds: float
    timings: Timings


def loads(
    batches: Sequence[BatchLoad], slot_classes: Sequence[str], declared_cpu: Sequence[float], until: float
) -> dict[str, ClassLoad]:
    """The load of each class over the time from the first batch's start to `until`; nothing without batches.

    slot_classes, declared_cpu: the class and the cores of each slot; of one that is gone the class is empty. Capacity is
    relative to the fastest declared slot.
    """
    if not batches:
        return {}
    speeds = estimate([batch.timings for batch in batches], declared_cpu).speeds
    began = min(batch.committed_at - batch.seconds for batch in batches)
    elapsed = max(until - began, sum(batch.seconds for batch in batches), 1e-9)
    table = np.concatenate([batch.timings.table for batch in batches])
    busy: list[float] = (np.bincount(table["slot"], table["busy_seconds"], len(declared_cpu)) / elapsed).tolist()
    slots_of: defaultdict[str, list[int]] = defaultdict(list)
    for slot, name in enumerate(slot_classes):
        if name:
            slots_of[name].append(slot)
    return {
        name: ClassLoad(
            executors=len(slots),
            busy=_busy([min(busy[slot], 1.0) for slot in slots], [float(speeds[slot]) for slot in slots]),
            capacity=sum(float(speeds[slot]) for slot in slots) / len(slots),
        )
        for name, slots in slots_of.items()
    }


def idle_loads(executors: Mapping[str, int]) -> dict[str, ClassLoad]:
    """The load of each class while no batch runs for want of rows: none, whatever the capacity. executors: class -> number"""
    return {name: ClassLoad(number, 0.0, 1.0) for name, number in executors.items()}


def decide(given: ScalingInput, settings: Autoscale, history: History = ()) -> ScalingDecision:
    """Return the number of executors that the class of `settings` should have from now on.

    Always within the bounds. Under the same load it stays what it is; under more load it is never less.
    """
    asked = _recommend(given, settings)
    window = settings.stabilisation_seconds
    remembered = remember(history, Recommendation(given.at, asked.replicas), window)
    wanted = settings.within(given.wanted)
    if asked.replicas >= wanted:
        return ScalingDecision(asked.replicas, asked, remembered)
    if remembered[0].at > given.at - window:
        left = remembered[0].at + window - given.at
        return ScalingDecision(wanted, replace(asked, window_seconds=window, fewer_in_seconds=left), remembered)
    needed = [asked.replicas, *(one.replicas for one in remembered if one.at > given.at - window)]
    held = min(wanted, max(needed))
    if held > asked.replicas:
        asked = replace(asked, window_seconds=window, held=held)
    return ScalingDecision(held, asked, remembered)


@dataclass(frozen=True)
class Demand:
    """The capacity that an input asks for, of all classes together, and the figures of why; `is_met`: nearly what runs.

    `present`: the capacity of all executors that run.
    """

    needed: float
    present: float
    is_met: bool
    figures: Sizing

    @classmethod
    def of(cls, given: ScalingInput, target: float, may_sleep: bool = False) -> Demand | None:
        """None: nothing has been measured. `may_sleep`: without work no executor has to be there, nor its state in memory."""
        classes = given.classes.values()
        present = sum(load.executors * load.capacity for load in classes)
        if present <= 0:
            return None
        work = sum(load.busy * load.capacity for load in classes)
        behind = _behind(given)
        waiting = max(behind - LAG_SECONDS, 0.0) / CATCH_UP_SECONDS
        utilisation = work / present
        by_load = work * (1 + waiting) / target
        by_state = 0.0 if may_sleep and not work else present * given.crowded / CROWDED
        figures = Sizing(
            ScalingReason.ON_TARGET,
            given.wanted,
            executors=sum(one.executors for one in classes),
            utilisation=utilisation,
            target=target,
            lag_rows=given.lag_rows if behind else None,
            lag_seconds=behind,
            crowded=given.crowded if by_state > by_load else 0.0,
        )
        is_met = waiting == 0 and abs(utilisation / target - 1) <= TOLERANCE and by_state <= present
        return cls(max(by_load, by_state), present, is_met, figures)


def _recommend(given: ScalingInput, settings: Autoscale) -> Sizing:
    """The request of this input by itself, within the bounds, with its reason."""
    wanted = settings.within(given.wanted)
    scaled = given.classes.get(settings.executor_class)
    demand = Demand.of(given, settings.target_utilisation, settings.min_replicas == 0)
    if scaled is None or scaled.capacity <= 0 or demand is None:
        return Sizing(ScalingReason.NOT_MEASURED, wanted)
    figures = replace(demand.figures, replicas=wanted)
    if demand.is_met and scaled.executors == wanted:
        return figures
    others = demand.present - scaled.executors * scaled.capacity
    needed = math.ceil((demand.needed - others) / scaled.capacity - ROUNDING)
    bounded = settings.within(needed)
    return replace(figures, reason=_bound(needed, bounded), replicas=bounded, needed=needed)


def _bound(needed: int, bounded: int) -> ScalingReason:
    if needed == bounded:
        return ScalingReason.LOAD
    return ScalingReason.AT_MINIMUM if needed < bounded else ScalingReason.AT_MAXIMUM


def _behind(given: ScalingInput) -> float:
    """Seconds of work, at the present speed, that wait in the sources."""
    if not given.lag_rows or given.rows_per_second <= 0:
        return 0.0
    return given.lag_rows / given.rows_per_second


def remember(history: tuple[Dated, ...], newest: Dated, window: float) -> tuple[Dated, ...]:
    """The history with the newest: of what is older than the window, only the last, which shows that it is covered."""
    start = newest.at - window
    older = [one for one in history if one.at <= start]
    return (*older[-1:], *(one for one in history if one.at > start), newest)


def _busy(shares: Sequence[float], speeds: Sequence[float]) -> float:
    """Executors busy all the time that would do the same work, each slot counting by its capacity."""
    capacity = sum(speeds)
    return len(shares) * sum(share * speed for share, speed in zip(shares, speeds, strict=True)) / capacity if capacity else 0.0
