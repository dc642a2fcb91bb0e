"""The groupings that the paper compares (section 5.1 and 6): the load of each instance on a stream's validation set.

DKG runs on the routing table and the planner that Spark uses, with the paper's k * mu buckets; O-apx is its schedule
with full knowledge. Loads are float64[k]; `cost` is tuples per item, or their square.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from streamtopology.lab.groupings.dkg_learning import DkgLearning
from streamtopology.lab.reproduce.experiments.dkg.streams import Stream
from streamtopology.routing.groupings import make_chooser
from streamtopology.routing.load.sketches.space_saving import SpaceSaving
from streamtopology.routing.planners.dkg import DkgSettings, build, schedule, two_choices, without_sparse_items
from streamtopology.routing.planners.plan import Plan, PlanInput
from streamtopology.routing.table.hashing import mix64
from streamtopology.routing.table.table import RoutingTable, bucket_of

Floats = npt.NDArray[np.float64]

# The number that PKG's second hash function mixes with a key.
SECOND_HASH = np.uint64(0x5BF0_3635_DEE6_4D2B)


def imbalance(loads: Floats) -> float:
    """lambda of the paper (equation 1), in percent."""
    return float(loads.max() / loads.mean() - 1) * 100


def deviation(loads: Floats) -> float:
    """sigma of the paper: standard deviation of the loads."""
    return float(loads.std())


@dataclass(frozen=True)
class Contest:
    """One stream at k instances. `power` 2 is the quadratic cost of figure 5: an item with f tuples loads f^2."""

    stream: Stream
    k: int
    power: int = 1

    @property
    def cost(self) -> Floats:
        return self.stream.validation[self.stream.seen].astype(np.float64) ** self.power

    def optimum(self) -> Floats:
        """O-apx: the schedule of all items one by one, knowing the validation set."""
        cost = self.cost
        return self._loads(schedule(cost, np.ones(self.k), np.zeros(self.k)), cost)

    def single(self) -> Floats:
        """SIA: everything at one instance."""
        return self._loads(np.zeros(len(self.stream.seen), np.int32), self.cost)

    def modulo(self) -> Floats:
        return self._loads(self.stream.keys[self.stream.seen] % self.k, self.cost)

    def universal(self) -> Floats:
        """A hash function drawn for each stream, as its values are."""
        return self.by_table(RoutingTable.uniform(range(self.k), self.k))

    def dkg(self, sketch: SpaceSaving, settings: DkgSettings) -> Floats:
        return self.by_table(self._plan(sketch, settings, settings.mu * self.k, build).table)

    def without_sparse_items(self, sketch: SpaceSaving, settings: DkgSettings) -> Floats:
        """DKG WOSIM: k buckets, one an instance."""
        return self.by_table(self._plan(sketch, settings, self.k, without_sparse_items).table)

    def learnt(self, learning: DkgLearning, settings: DkgSettings) -> Floats:
        """DKG as built from what was learnt."""
        return self.by_table(build(learning.plan_input(self.k, settings)).table)

    def by_table(self, table: RoutingTable) -> Floats:
        return self._loads(table.lookup(self.stream.hashes[self.stream.seen]), self.cost)

    def _plan(self, sketch: SpaceSaving, settings: DkgSettings, n_buckets: int, planner: Callable[[PlanInput], Plan]) -> Plan:
        given = self.stream.learnt(sketch, n_buckets).plan_input(self.k, settings)
        return planner(replace(given, key_loads=given.key_loads**self.power, bucket_loads=given.bucket_loads**self.power))

    def _loads(self, instances: npt.NDArray[Any], cost: Floats) -> Floats:
        return np.bincount(instances, cost, self.k).astype(np.float64)


@dataclass(frozen=True)
class TupleContest:
    """The validation set tuple by tuple, for groupings that split keys. hashes uint64[tuples], in their order."""

    hashes: npt.NDArray[np.uint64]
    k: int

    def partial_key(self) -> Floats:
        """The project's PKG: a key's two instances always differ."""
        chooser = make_chooser("partial-key", np.arange(self.k, dtype=np.int32), np.zeros(self.k), 0)
        return self._counted(chooser.choose(self.hashes, len(self.hashes)))

    def partial_key_of_its_authors(self) -> Floats:
        """PKG as its authors published it, with which the paper compares: two hash functions that may meet."""
        first = bucket_of(self.hashes, self.k)
        second = bucket_of(mix_all(self.hashes ^ SECOND_HASH), self.k)
        return choose_less_loaded(first.astype(np.int32), second.astype(np.int32), self.k)

    def dkg_partial_key(self, given: PlanInput) -> Floats:
        """DKG PKG: of a heavy hitter's two instances the less loaded one; all other keys have one."""
        first, second = two_choices(given)
        return choose_less_loaded(first.lookup(self.hashes), second.lookup(self.hashes), self.k)

    def by_table(self, table: RoutingTable) -> Floats:
        return self._counted(table.lookup(self.hashes))

    def _counted(self, instances: npt.NDArray[np.int32]) -> Floats:
        return np.bincount(instances, minlength=self.k).astype(np.float64)


def choose_less_loaded(first: npt.NDArray[np.int32], second: npt.NDArray[np.int32], k: int) -> Floats:
    """Tuples per instance when each tuple in turn goes to the less loaded of its two; the first where they are equal."""
    loads = np.zeros(k)
    _choose_less_loaded(first, second, loads)
    return loads


@njit(cache=True, nogil=True)
def _choose_less_loaded(first: Any, second: Any, loads: Any) -> None:
    for i in range(len(first)):
        chosen = second[i] if loads[second[i]] < loads[first[i]] else first[i]
        loads[chosen] += 1.0


@njit(cache=True, nogil=True)
def mix_all(hashes: Any) -> Any:
    """Another hash function of the same keys: uint64[n]."""
    mixed = np.empty_like(hashes)
    for i in range(len(hashes)):
        mixed[i] = mix64(hashes[i])
    return mixed
