"""The speed of the instances whose rows routers pour, by what the last batches have shown."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.routing.control.decisions import PartCosts
from streamtopology.routing.control.slot_model import SlotModel
from streamtopology.routing.planners.plan import Splitting
from streamtopology.routing.planners.split import scouts_beyond
from streamtopology.routing.table.pouring import Pace


def paces(
    plan: ExecutionPlan, splitting: Mapping[str, PartCosts], model: SlotModel, rows: Mapping[str, float]
) -> dict[str, Pace]:
    """Return the paces of the nodes of `splitting` that `model` knows on all their slots; `rows`: of a batch, by node."""
    known: dict[str, Pace] = {}
    for node, costs in splitting.items():
        instances = plan.epoch.routes[node].instances
        slots = np.array([plan.placement.slot_of(instance) for instance in instances])
        if node not in model.rates or slots.min() < 0 or slots.max() >= len(model.speeds):
            continue
        capacities, fixed = model.of_instances(node, slots)
        if not (np.isfinite(capacities).all() and np.isfinite(fixed).all() and capacities.min() > 0):
            continue
        price = Splitting(costs.seconds * model.base_rates[node], costs.apart)
        beyond = scouts_beyond(rows.get(node, 0.0), capacities, fixed, price)
        at = list(instances)
        of_instance, fixed_of = np.zeros(instances[-1] + 1), np.zeros(instances[-1] + 1)
        of_instance[at], fixed_of[at] = capacities, np.maximum(fixed, 0.0)
        known[node] = Pace(of_instance, fixed_of, scouts_beyond=beyond)
    return known
