"""The code behind the catalogue of groupings: first tables, choosers, and what choosers learn.

`streamtopology.topology.groupings` declares the groupings; an entry's `chooser` names a class of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import cast

import numpy as np

from streamtopology.routing.groupings.chooser import Chooser, Floats, Instances, VirtualChooser, capacities_in
from streamtopology.routing.groupings.learning import Learning, LearningChooser
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology.groupings import GROUPINGS, GroupingError, get

__all__ = ["CHOOSERS", "Chooser", "VirtualChooser", "first_table", "learning_of", "make_chooser"]


def _chooser_class(reference: str) -> type[Chooser]:
    module, _, name = reference.partition(":")
    return getattr(import_module(f"{__name__}.{module}"), name)


CHOOSERS: Mapping[str, type[Chooser]] = {
    spec.name: _chooser_class(spec.chooser) for spec in GROUPINGS.values() if spec.chooser is not None
}
"""Chooser classes by grouping. All are loaded with this package, so that processes forked later share them."""


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
    if spec.kind == "table":
        raise GroupingError(f"the grouping {policy!r} looks instances up in a table; it has no chooser")
    checked = spec.check_options(options or {})
    chooser_class = CHOOSERS[policy]
    if spec.kind == "virtual":
        if table is None:
            raise GroupingError(f"the grouping {policy!r} finds virtual workers in the operator's table; there is none")
        n_virtual = len(table.buckets)
        virtual = chooser_class(np.arange(n_virtual, dtype=np.int32), np.zeros(n_virtual), seed, checked)
        return VirtualChooser(virtual, table, instances, loads)
    if spec.prefers_local:
        return _local_chooser(chooser_class, instances, loads, seed, checked, local)
    return chooser_class(instances, loads, seed, checked)


def _local_chooser(
    chooser_class: type[Chooser],
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
        return chooser_class(instances, loads, seed, checked)
    return chooser_class(active[near], loads[near], seed, {**checked, "capacities": tuple(capacities[near].tolist())})


def learning_of(policy: str) -> Learning | None:
    """Return how the choosers of a grouping learn from instances; None if they do not."""
    chooser_class = CHOOSERS.get(policy)
    return chooser_class.learning if chooser_class and issubclass(chooser_class, LearningChooser) else None
