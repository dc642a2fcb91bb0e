"""Epochs in which remedies have taken the place of what they are for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streamtopology.contract.reasons import SOURCE, EpochCause, EpochReason, Weighed
from streamtopology.routing.control.stages import Remedy
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.epochs.placement import Placement


def next_epoch(current: Epoch, remedies: Mapping[str, Remedy], weighed: Weighed) -> Epoch:
    """The epoch that follows `current` with these remedies, for their reasons and with what was weighed."""
    stages = tuple(remedy.reason for _, remedy in sorted(remedies.items()))
    reason = EpochReason(EpochCause.REBALANCED, stages, weighed=weighed)
    return replace(with_remedies(current, remedies), number=current.number + 1, reason=reason)


def with_remedies(epoch: Epoch, remedies: Mapping[str, Remedy]) -> Epoch:
    """`epoch` with the tables and shares of these remedies, by stage."""
    routes = dict(epoch.routes)
    source_shares = epoch.source_shares
    for name, remedy in remedies.items():
        if name == SOURCE:
            source_shares = _by_slot(remedy.shares, epoch.placement)
        elif remedy.plans:
            routes |= {operator: replace(routes[operator], table=plan.table) for operator, plan in remedy.plans.items()}
        else:
            routes[name] = _with_capacities(routes[name], remedy.shares)
    return replace(epoch, routes=routes, source_shares=source_shares)


def _with_capacities(route: Route, shares: tuple[float, ...]) -> Route:
    return replace(route, options={**route.options, "capacities": list(shares)})


def _by_slot(shares: tuple[float, ...], placement: Placement | None) -> tuple[float, ...]:
    """Shares of the present slots, by slot number; 0 for slots that are gone."""
    if placement is None:
        return shares
    of_slot = dict(zip(placement.present, shares, strict=True))
    return tuple(of_slot.get(slot, 0.0) for slot in range(len(placement.slots)))
