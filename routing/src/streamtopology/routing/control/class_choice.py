"""The wanted number of executors of each of several classes: enough capacity, and the most for its price. Pure.

The load asks for as much capacity as with one class, by `autoscaler`. Where it is missing, executors are added one after the
other, each of the class of which one brings the most for its price; the last is the cheapest that is enough. Where there is
more than that, they go in the opposite order, as far as they can be missed. So the added ones cost less than the cheapest
that would do plus one executor, more load never costs less nor brings less capacity, and the same load changes nothing
again. Executors that run are not exchanged for others that would cost less: that would be two re-routings without need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streamtopology.contract.reasons import Choice, ChoiceReason, ScalingReason, Sizing
from streamtopology.routing.control.autoscaler import ROUNDING, Asked, ClassLoad, Demand, ScalingInput, remember
from streamtopology.topology.values import Autoscale, ExecutorClass

ClassHistory = tuple[Asked, ...]
Counts = Mapping[str, int]


@dataclass(frozen=True)
class ScalableClass:
    """A class that may be scaled, within its bounds. `wanted`: its executors that were last asked for.

    `capacity`: of one, in the same unit for all; `price`: of one, in any.
    """

    name: str
    wanted: int
    fewest: int
    most: int
    capacity: float
    price: float

    @property
    def for_its_price(self) -> float:
        return self.capacity / self.price


@dataclass(frozen=True)
class ClassDecision:
    """The executors of each class, the reason, and the history for the next decision."""

    replicas: Counts
    reason: Sizing
    history: ClassHistory


def options_of(
    settings: Autoscale, executors: Sequence[ExecutorClass], loads: Mapping[str, ClassLoad]
) -> tuple[tuple[ScalableClass, ...], bool]:
    """The scaled classes in the manifest's order, and True if they are priced: otherwise the price of one is its CPU.

    executors: with the replicas that were last asked for.
    """
    named = {one.name: one for one in executors}
    scaled = [(bounds, named[bounds.name]) for bounds in settings.scaled]
    prices = [one.cost_per_hour for _, one in scaled if one.cost_per_hour is not None]
    priced = len(prices) == len(scaled)
    options = [
        ScalableClass(
            name=bounds.name,
            wanted=bounds.within(one.replicas),
            fewest=bounds.min_replicas,
            most=bounds.max_replicas,
            capacity=loads[bounds.name].capacity,
            price=price,
        )
        for (bounds, one), price in zip(scaled, prices if priced else [one.cpu for _, one in scaled], strict=True)
    ]
    return tuple(options), priced


def choose(options: Sequence[ScalableClass], needed: float) -> Counts:
    """Return the executors of each class that have at least the `needed` capacity, as far as the bounds allow."""
    missing = needed - _capacity(options)
    if missing > ROUNDING * min(option.capacity for option in options):
        return _more(options, missing)
    return _fewer(options, max(-missing, 0.0))


def decide_classes(
    given: ScalingInput, options: Sequence[ScalableClass], settings: Autoscale, history: ClassHistory = (), priced: bool = True
) -> ClassDecision:
    """Return the executors that each class should have from now on, always within the bounds.

    One class at least has a lower bound above 0: what was asked for is remembered in its executors, as these are always
    measured, and the unit of capacities is another where other executors run.
    """
    demand = Demand.of(given, settings.target_utilisation)
    kept = {option.name: option.wanted for option in options}
    if demand is None or min(option.capacity for option in options) <= 0:
        return ClassDecision(kept, _sizing(Sizing(ScalingReason.NOT_MEASURED, 0), options, kept, priced), history)
    scaled = {option.name: given.classes[option.name] for option in options}
    others = demand.present - sum(load.executors * load.capacity for load in scaled.values())
    is_right = demand.is_met and all(scaled[option.name].executors == option.wanted for option in options)
    needed = _capacity(options) if is_right else demand.needed - others
    unit = next(option.capacity for option in options if option.fewest > 0)
    window = settings.stabilisation_seconds
    remembered = remember(history, Asked(given.at, needed / unit), window)
    counts, figures = choose(options, needed), demand.figures
    if not is_right:
        figures = replace(figures, reason=_bound(options, counts, needed))
    if any(counts[option.name] < option.wanted for option in options):
        if remembered[0].at > given.at - window:
            left = remembered[0].at + window - given.at
            counts, figures = kept, replace(figures, window_seconds=window, fewer_in_seconds=left)
        else:
            in_window = max(one.executors * unit for one in remembered if one.at > given.at - window)
            held = choose(options, min(max(in_window, needed), _capacity(options)))
            if held != counts:
                counts, figures = held, replace(figures, window_seconds=window, held=sum(held.values()))
    return ClassDecision(counts, _sizing(figures, options, counts, priced), remembered)


def _capacity(options: Sequence[ScalableClass]) -> float:
    return sum(option.wanted * option.capacity for option in options)


def _by_price(options: Sequence[ScalableClass]) -> list[ScalableClass]:
    """Those that bring the most for their price first; among equal ones, as the manifest has them."""
    return sorted(options, key=lambda option: -option.for_its_price)


def _more(options: Sequence[ScalableClass], missing: float) -> Counts:
    counts = {option.name: option.wanted for option in options}
    for best in _by_price(options):
        room = best.most - best.wanted
        not_yet_enough = min(room, max(math.ceil(missing / best.capacity - ROUNDING) - 1, 0))
        counts[best.name] += not_yet_enough
        missing -= not_yet_enough * best.capacity
        if room > not_yet_enough:
            last = _cheapest([option for option in options if counts[option.name] < option.most], missing)
            counts[last.name] += 1
            break
    return counts


def _cheapest(options: Sequence[ScalableClass], missing: float) -> ScalableClass:
    """The cheapest of which one is enough; among equal ones, the one that brings the most."""
    enough = [option for option in options if option.capacity * (1 + ROUNDING) >= missing]
    return min(enough, key=lambda option: (option.price, -option.capacity))


def _fewer(options: Sequence[ScalableClass], spare: float) -> Counts:
    counts = {option.name: option.wanted for option in options}
    for dearest in reversed(_by_price(options)):
        missed = min(dearest.wanted - dearest.fewest, math.floor(spare / dearest.capacity + ROUNDING))
        counts[dearest.name] -= missed
        spare = max(spare - missed * dearest.capacity, 0.0)
    return counts


def _bound(options: Sequence[ScalableClass], counts: Counts, needed: float) -> ScalingReason:
    """The reason for the number of executors: the load, or the bounds of all classes, which hold it."""
    capacity = sum(counts[option.name] * option.capacity for option in options)
    if needed - capacity > ROUNDING * capacity:
        return ScalingReason.AT_MAXIMUM
    spared = min(option.capacity for option in options)
    if all(counts[option.name] == option.fewest for option in options) and capacity - needed >= spared:
        return ScalingReason.AT_MINIMUM
    return ScalingReason.LOAD


def _sizing(figures: Sizing, options: Sequence[ScalableClass], counts: Counts, priced: bool) -> Sizing:
    replicas = tuple((option.name, counts[option.name]) for option in options)
    choice = replace(_choice(options, counts), replicas=replicas, priced=priced)
    return replace(figures, replicas=sum(counts.values()), choice=choice)


def _choice(options: Sequence[ScalableClass], counts: Counts) -> Choice:
    """The reason for this class and not another; none where nothing changes, or where there is no other."""
    ranked = _by_price(options)
    added = [option for option in ranked if counts[option.name] > option.wanted]
    missed = [option for option in reversed(ranked) if counts[option.name] < option.wanted]
    if len(ranked) < 2 or (not added and not missed):
        return Choice(())
    if added:
        return _choice_of_more(ranked, added[0], counts)
    dearest = missed[0]
    if dearest is ranked[-1] and ranked[0].for_its_price > dearest.for_its_price:
        return _compared(ranked[0], dearest)
    return Choice((), ChoiceReason.CAN_BE_MISSED, dearest.name)


def _choice_of_more(ranked: Sequence[ScalableClass], added: ScalableClass, counts: Counts) -> Choice:
    better = ranked[: ranked.index(added)]
    if not better:
        return _compared(added, ranked[1])
    full = all(counts[option.name] == option.most for option in better)
    return Choice((), ChoiceReason.OTHERS_AT_MAXIMUM if full else ChoiceReason.CHEAPEST_ENOUGH, added.name)


def _compared(best: ScalableClass, other: ScalableClass) -> Choice:
    return Choice((), ChoiceReason.MOST_FOR_PRICE, best.name, other.name, best.for_its_price / other.for_its_price)
