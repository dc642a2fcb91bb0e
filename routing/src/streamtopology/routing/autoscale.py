"""How many executors a class should have: the built-in autoscaler. Pure: time comes in, the history goes in and out.

Load is work: the share of its time that each executor was busy, times its *measured* capacity. Enough executors are
wanted that this work keeps the target share of their capacity busy. More are asked for at once; fewer only when nothing
within the stabilisation window would have asked for more, since a dip is not worth two re-routings.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamtopology.routing.capacity import Turn, estimate
from streamtopology.routing.topology.values import Autoscale

TOLERANCE = 0.1
"""Relative distance from the target utilisation that is left alone, as Kubernetes' own autoscaler does."""

LAG_SECONDS = 10.0
"""Rows that wait less than this at the present speed are the ordinary way of batches, not lag."""

CATCH_UP_SECONDS = 120.0
"""In how long a lag beyond that should be worked off."""

_ROUNDING = 1e-6  # executors: what floating point adds to a whole number must not ask for one more


@dataclass(frozen=True)
class ClassLoad:
    """The executors of one class that are at work. Capacities are in the same unit for all classes.

    `busy`: executors that were busy all the time would do the same work, so 0 <= busy <= executors. `capacity`: of one.
    """

    executors: int
    busy: float
    capacity: float


@dataclass(frozen=True)
class Observation:
    """What is known at time `at` (seconds). `wanted`: executors of the scaled class that were last asked for.

    `lag_rows`: rows that wait in the sources, None where no source tells. `rows_per_second`: what is being done.
    """

    at: float
    wanted: int
    classes: Mapping[str, ClassLoad]
    rows_per_second: float = 0.0
    lag_rows: float | None = None


@dataclass(frozen=True)
class Recommendation:
    """How many executors an observation by itself would have asked for."""

    at: float
    replicas: int


History = tuple[Recommendation, ...]


@dataclass(frozen=True)
class Decision:
    """So many executors, why in a sentence with the figures, and the history for the next decision."""

    replicas: int
    reason: str
    history: History


@dataclass(frozen=True)
class BatchLoad:
    """The turns of one batch; it took `seconds` and was committed at `committed_at` (seconds)."""

    committed_at: float
    seconds: float
    turns: tuple[Turn, ...]


def loads(
    batches: Sequence[BatchLoad], slot_classes: Sequence[str], declared_cpu: Sequence[float], until: float
) -> dict[str, ClassLoad]:
    """The load of each class over the time from the first batch's start to `until`; nothing without batches.

    slot_classes, declared_cpu: the class and the cores of each slot. Capacity is relative to the fastest declared slot.
    """
    if not batches:
        return {}
    speeds = estimate([batch.turns for batch in batches], declared_cpu).speeds
    began = min(batch.committed_at - batch.seconds for batch in batches)
    elapsed = max(until - began, sum(batch.seconds for batch in batches), 1e-9)
    busy_seconds: defaultdict[int, float] = defaultdict(float)
    for batch in batches:
        for turn in batch.turns:
            busy_seconds[turn.slot] += turn.busy_seconds
    slots_of: defaultdict[str, list[int]] = defaultdict(list)
    for slot, name in enumerate(slot_classes):
        slots_of[name].append(slot)
    return {
        name: ClassLoad(
            executors=len(slots),
            busy=_busy([min(busy_seconds[slot] / elapsed, 1.0) for slot in slots], [float(speeds[slot]) for slot in slots]),
            capacity=sum(float(speeds[slot]) for slot in slots) / len(slots),
        )
        for name, slots in slots_of.items()
    }


def decide(observation: Observation, settings: Autoscale, history: History = ()) -> Decision:
    """How many executors the class of `settings` should have from now on.

    Always within the bounds. Under the same load it stays what it is; under more load it is never less.
    """
    recommended, why = _recommend(observation, settings)
    remembered = _remember(history, Recommendation(observation.at, recommended), settings.stabilisation_seconds)
    wanted = settings.within(observation.wanted)
    if recommended >= wanted:
        return Decision(recommended, why, remembered)
    window = settings.stabilisation_seconds
    if remembered[0].at > observation.at - window:
        left = remembered[0].at + window - observation.at
        return Decision(wanted, f"{why}; fewer not before {left:.0f} s more of it", remembered)
    held = min(wanted, max([recommended, *(one.replicas for one in remembered if one.at > observation.at - window)]))
    if held > recommended:
        why = f"{why}; {held} were needed within the last {window:.0f} s"
    return Decision(held, why, remembered)


def _recommend(observation: Observation, settings: Autoscale) -> tuple[int, str]:
    """What this observation by itself asks for, within the bounds, and why."""
    wanted = settings.within(observation.wanted)
    classes = observation.classes
    scaled = classes.get(settings.executor_class)
    present = sum(load.executors * load.capacity for load in classes.values())
    if scaled is None or scaled.capacity <= 0 or present <= 0:
        return wanted, f"{wanted} executors: nothing has been measured yet"
    work = sum(load.busy * load.capacity for load in classes.values())
    waiting, lag = _lag(observation)
    utilisation, target = work / present, settings.target_utilisation
    figures = f"busy {utilisation:.0%} of the measured capacity of {sum(one.executors for one in classes.values())} executors"
    figures = f"{figures}{lag}, target {target:.0%}"
    if waiting == 0 and abs(utilisation / target - 1) <= TOLERANCE and scaled.executors == wanted:
        return wanted, f"{wanted} executors are right: {figures}"
    others = present - scaled.executors * scaled.capacity
    needed = math.ceil((work * (1 + waiting) / target - others) / scaled.capacity - _ROUNDING)
    bounded = settings.within(needed)
    bound = ""
    if bounded != needed:
        bound = f", {needed} would be: held at {'minReplicas' if needed < bounded else 'maxReplicas'}"
    return bounded, f"{bounded} executors: {figures}{bound}"


def _lag(observation: Observation) -> tuple[float, str]:
    """What must be done beside the present work to catch up, as a share of it, and the words for it."""
    if not observation.lag_rows or observation.rows_per_second <= 0:
        return 0.0, ""
    behind = observation.lag_rows / observation.rows_per_second
    beyond = max(behind - LAG_SECONDS, 0.0)
    return beyond / CATCH_UP_SECONDS, f", {observation.lag_rows:.0f} rows behind ({behind:.0f} s)"


def _remember(history: History, newest: Recommendation, window: float) -> History:
    """The history with the newest: of what is older than the window, only the last, which tells that it is covered."""
    start = newest.at - window
    older = [one for one in history if one.at <= start]
    return (*older[-1:], *(one for one in history if one.at > start), newest)


def _busy(shares: Sequence[float], speeds: Sequence[float]) -> float:
    """Executors busy all the time that would do the same work, each slot counting by its capacity."""
    capacity = sum(speeds)
    return len(shares) * sum(share * speed for share, speed in zip(shares, speeds, strict=True)) / capacity if capacity else 0.0
