"""The code behind the groupings: first tables, choosers, and what choosers learn.

`streamtopology.topology.groupings` declares the groupings; a declaration's `chooser` names a class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

import numpy as np

from streamtopology.routing.groupings.chooser import Chooser, Floats, Instances, VirtualChooser, capacities_in
from streamtopology.routing.groupings.learning import Learning, LearningChooser
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology.groupings import BUILT_IN, GroupingError, code_of, get

__all__ = ["Chooser", "VirtualChooser", "chooser_class", "first_table", "learning_of", "make_chooser"]


@cache
def chooser_class(policy: str) -> type[Chooser] | None:
    """Return the class of a grouping's choosers; None for a table grouping. GroupingError if it cannot be loaded."""
    reference = get(policy).chooser
    if reference is None:
        return None
    found: Any = code_of(reference)
    if not (isinstance(found, type) and issubclass(found, Chooser)):
        raise GroupingError(f"the grouping {policy!r}: {reference} is no class that derives from Chooser")
    return found


for _policy in BUILT_IN:  # with this package, so that processes forked later share them
    chooser_class(_policy)


def first_table(policy: str, instances: Sequence[int], options: Mapping[str, object]) -> RoutingTable | None:
    """Return the table that an operator starts with, uniform over its instances; None for a grouping without a table."""
    spec = get(policy)
    if spec.kind == "chooser":
        return None
    if spec.kind == "table":
        return RoutingTable.uniform(instances)
    each = cast(int, spec.check_options(options)["virtualWorkers"])
    return RoutingTable.uniform(instances, each * len(instances))


def make_chooser(
    policy: str,
    instances: Instances,
    loads: Floats,
    seed: int,
    options: Mapping[str, object] | None = None,
    table: RoutingTable | None = None,
    local: Sequence[int] = (),
) -> Chooser:
    """Return a new chooser of a grouping; `instances`, `loads` and `seed` as for `Chooser`.

    table: the operator's, for a grouping of virtual workers. local: instances on the router's own executor, active or
    not; used by groupings that prefer them. Raises GroupingError for a table grouping, for virtual workers without a
    table and for invalid options.
    """
    spec = get(policy)
    found = chooser_class(policy)
    if found is None:
        raise GroupingError(f"the grouping {policy!r} looks instances up in a table; it has no chooser")
    checked = spec.check_options(options or {})
    if spec.kind == "virtual":
        if table is None:
            raise GroupingError(f"the grouping {policy!r} finds virtual workers in the operator's table; there is none")
        n_virtual = len(table.buckets)
        virtual = found(np.arange(n_virtual, dtype=np.int32), np.zeros(n_virtual), seed, checked)
        return VirtualChooser(virtual, table, instances, loads)
    if spec.prefers_local:
        return _local_chooser(found, instances, loads, seed, checked, local)
    return found(instances, loads, seed, checked)


def _local_chooser(
    found: type[Chooser],
    instances: Instances,
    loads: Floats,
    seed: int,
    checked: Mapping[str, object],
    local: Sequence[int],
) -> Chooser:
    """A chooser among the active local instances with a capacity, or among all if there are none."""
    active = np.asarray(instances, np.int32)
    capacities = capacities_in(checked, len(active))
    near = np.isin(active, np.asarray(local, np.int32)) & (capacities > 0)
    if not near.any() or len(loads) != len(active):
        return found(instances, loads, seed, checked)
    return found(active[near], loads[near], seed, {**checked, "capacities": tuple(capacities[near].tolist())})


def learning_of(policy: str) -> Learning | None:
    """Return how the choosers of a grouping learn from instances; None if they do not."""
    found = chooser_class(policy)
    return found.learning if found and issubclass(found, LearningChooser) else None
