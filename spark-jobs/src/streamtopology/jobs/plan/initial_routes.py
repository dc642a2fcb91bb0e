"""The routes an epoch starts with when no planner has made its tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from streamtopology.contract.reasons import PARTIAL
from streamtopology.jobs.plan.dag import Dag
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.routing.epochs.epoch import Route
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.epochs.rescaling import instances_of
from streamtopology.routing.groupings import first_table
from streamtopology.topology import Topology, groupings

# The option of choosers that the controller sets, and a manifest may.
CAPACITIES = "capacities"


def first_routes(
    dag: Dag, topology: Topology, before: Mapping[str, Route], placement: Placement, executors: int
) -> dict[str, Route]:
    """Routes of every node while `executors` take part: the table of `before` where it still fits, else hashing.

    Where the instances have changed, only the keys that must move do. Choosers keep the capacities of `before` where these
    still fit and the manifest names none.
    """
    routes: dict[str, Route] = {}
    for node in dag.nodes:
        operator = topology.operator(node.operator)
        instances = placement.instances(instances_of(operator, executors))
        options = _fitting(operator.grouping.options, instances)
        known = before.get(node.name)
        table = first_table(node.policy, instances, options)
        if known is not None and known.table is not None and table is not None and _keeps_table(known, node.policy, options):
            table = known.table if known.instances == instances else known.table.rescaled(instances)
        if known is not None and _keeps_capacities(known, node.policy, instances):
            options = {CAPACITIES: known.options[CAPACITIES], **options}
        routes[node.name] = Route(node.policy, table, instances, options)
    return routes


def measured_routes(plan: ExecutionPlan) -> dict[str, Route]:
    """The routes of `plan` without the capacities that its manifest names: those hold only as long as it names them."""
    named = {operator.name for operator in plan.topology.operators if CAPACITIES in operator.grouping.options}
    return {
        node: replace(route, options=_without_capacities(route.options)) if node.removesuffix(PARTIAL) in named else route
        for node, route in plan.epoch.routes.items()
    }


def with_instances(route: Route, others: Collection[int]) -> Route:
    """The route with `others` active as well."""
    both = tuple({*route.instances, *others})
    return replace(route, instances=both, options=_fitting(route.options, both))


def _fitting(options: Mapping[str, object], instances: Sequence[int]) -> Mapping[str, object]:
    """The options, without capacities for another number of instances: equal ones hold while executors start."""
    capacities = options.get(CAPACITIES)
    if isinstance(capacities, list | tuple) and len(capacities) != len(instances):
        return _without_capacities(options)
    return options


def _without_capacities(options: Mapping[str, object]) -> Mapping[str, object]:
    return {name: value for name, value in options.items() if name != CAPACITIES}


def _keeps_capacities(known: Route, policy: str, instances: tuple[int, ...]) -> bool:
    """True if the capacities of `known` serve choosers of `policy` over these instances."""
    of_choosers = groupings.get(policy).kind == groupings.get(known.policy).kind == "chooser"
    return of_choosers and CAPACITIES in known.options and known.instances == instances


def _keeps_table(known: Route, policy: str, options: Mapping[str, object]) -> bool:
    """True if the table of `known` serves under `policy`.

    Plain hashing starts over from any other policy, virtual workers from another number of them.
    """
    kind = groupings.get(policy).kind
    if groupings.get(known.policy).kind != kind or (policy == "fields" and known.policy != policy):
        return False
    return kind != "virtual" or known.options.get("virtualWorkers") == options.get("virtualWorkers")
