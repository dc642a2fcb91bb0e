"""The chooser: picks an instance per tuple and balances by what it has picked so far.

It is the other kind of grouping beside tables. It follows the load tuple by tuple and needs no plan, but one key may go to
several instances, so it is allowed only where that does no harm. Each router has a chooser of its own and balances its own
tuples: if every router is balanced, their sum is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from streamtopology.routing.table.hashing import kernel_input
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology.groupings import GroupingError

Hashes = npt.NDArray[np.uint64]
Instances = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class Chooser(ABC):
    """Chooses an instance per tuple. A router has one chooser for all tuples that it sends to an operator.

    instances: int32[k], the active ones. loads: float64[k], rows that each instance got so far from all routers together.
    seed: differs between routers; it never decides which instances a key may go to. options: as
    `GroupingSpec.check_options` returns them. An instance with capacity 0 gets nothing. Raises GroupingError if there
    are no instances, or loads or capacities of another number.
    """

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object]) -> None:
        active = np.asarray(instances, np.int32)
        capacities = capacities_in(options, len(active))
        if not len(active) or len(loads) != len(active):
            raise GroupingError(f"a chooser needs active instances, and a load for each: {len(active)}, {len(loads)}")
        usable = capacities > 0
        self.instances: Instances = active[usable]
        self.capacities: Floats = capacities[usable]
        self.loads: Floats = np.asarray(loads, np.float64)[usable]
        self.seed = seed

    @abstractmethod
    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        """Return the instances of the next n tuples, int32[n].

        hashes: uint64[n], the tuples' key hashes; None is allowed for groupings that need no key.
        """


class VirtualChooser(Chooser):
    """Chooses a virtual worker per tuple and looks up its instance in the operator's table.

    A virtual worker is a bucket of `table`; `virtual` chooses among their numbers. Its loads are those of virtual workers,
    so they hold when virtual workers move.
    """

    def __init__(self, virtual: Chooser, table: RoutingTable, instances: Instances, loads: Floats) -> None:
        super().__init__(instances, loads, virtual.seed, {})
        self._virtual = virtual
        self._table = table

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        return self._table.buckets[self._virtual.choose(hashes, n)]

    def follow(self, table: RoutingTable) -> None:
        """Use another table of the same virtual workers from now on. Raises GroupingError if it has another number."""
        if len(table.buckets) != len(self._table.buckets):
            raise GroupingError(f"{len(table.buckets)} virtual workers in place of {len(self._table.buckets)}")
        self._table = table


def capacities_in(options: Mapping[str, object], k: int) -> Floats:
    """Return the option `capacities`, float64[k]; ones if it is left out. Raises GroupingError for another number."""
    given = cast("Sequence[float] | None", options.get("capacities"))
    if given is None:
        return np.ones(k)
    if len(given) != k:
        raise GroupingError(f"{len(given)} capacities for {k} active instances; there is one for each")
    return np.asarray(given, np.float64)


def checked_hashes(hashes: Hashes | None, n: int, policy: str) -> Hashes:
    """Return the key hashes of n tuples, uint64[n], as kernels take them. Raises GroupingError if there is not one for each."""
    if hashes is None or len(hashes) != n:
        found = "none" if hashes is None else len(hashes)
        raise GroupingError(f"{policy} chooses by key: {n} tuples need {n} key hashes, found {found}")
    return kernel_input(hashes, np.uint64, "hashes")
