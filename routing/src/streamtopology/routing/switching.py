"""A switch from one epoch to the next in portions of the keys, so that no batch waits until all state has moved.

Keys are dealt to portions by their bucket; a batch is routed by the new epoch where its portions are done, and by the one
before elsewhere ("fluid" migration in Hoffmann et al., Megaphone, PVLDB 12(9), 2019). Every such mixture is a routing like
any other: a table, under which each key has one owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamtopology.routing import groupings
from streamtopology.routing.entry_index import Hashes
from streamtopology.routing.epoch import Epoch, Route
from streamtopology.routing.placement import NOWHERE
from streamtopology.routing.table import RoutingTable, bucket_of, shuffled

_DEAL = 11
"""Neighbouring buckets, which planners treat alike, go to different portions."""


@dataclass(frozen=True)
class Switch:
    """`done` of `portions` portions of the keys are routed by an epoch, the others still by epoch `follows`.

    An epoch that is switched to as a whole has none. ValueError says what does not fit.
    """

    follows: int
    done: int
    portions: int

    def __post_init__(self) -> None:
        if not 0 < self.done < self.portions:
            raise ValueError(f"a switch is under way with 1 to {self.portions - 1} of its portions done; found {self.done}")

    @staticmethod
    def begun(follows: int, done: int, portions: int) -> Switch | None:
        """The switch with that many portions done; None once all are."""
        return Switch(follows, done, portions) if done < portions else None

    def further(self, portions: int) -> Switch | None:
        """This switch with so many more portions done; None once all are."""
        return Switch.begun(self.follows, self.done + portions, self.portions)


def portions_of_buckets(n_buckets: int, portions: int) -> npt.NDArray[np.int32]:
    """int32[n_buckets]: the portion, from 0, of each bucket; equal numbers of buckets each, give or take one."""
    ranks = np.empty(n_buckets, np.int64)
    ranks[shuffled(n_buckets, _DEAL)] = np.arange(n_buckets)
    return (ranks * portions // n_buckets).astype(np.int32)


def portions_of(hashes: Hashes, n_buckets: int, portions: int) -> npt.NDArray[np.int32]:
    """int32[n]: the portion of each key (uint64[n]) in a table of `n_buckets`."""
    return portions_of_buckets(n_buckets, portions)[bucket_of(hashes, n_buckets)]


def table_amid(before: RoutingTable, after: RoutingTable, done: int, portions: int) -> RoutingTable:
    """The table under which the keys of the first `done` portions are where `after` has them, and others where `before` has.

    Entries that say what their bucket says are left out.
    """
    n_buckets = len(after.buckets)
    buckets = np.where(portions_of_buckets(n_buckets, portions) < done, after.buckets, before.buckets)
    hashes = np.union1d(before.entry_hashes, after.entry_hashes)
    is_done = portions_of(hashes, n_buckets, portions) < done
    owners = np.where(is_done, after.lookup(hashes), before.lookup(hashes))
    needed = owners != buckets[bucket_of(hashes, n_buckets)]
    return RoutingTable(hashes[needed], owners[needed], buckets)


def epoch_amid(before: Epoch, after: Epoch, switch: Switch) -> Epoch:
    """`after` as batches see it while they are switched to it: all but the tables of the remaining portions is its own."""
    routes = {name: _amid(before.routes.get(name), route, switch) for name, route in after.routes.items()}
    return replace(after, routes=routes)


def can_be_in_portions(before: Epoch, after: Epoch) -> bool:
    """Whether all instances of `before` stay where they are, so that both epochs' tables can hold at once."""
    if before.placement is None or after.placement is None:
        return False
    homes = dict(enumerate(after.placement.homes))
    stays = all(home in (NOWHERE, homes.get(instance)) for instance, home in enumerate(before.placement.homes))
    return stays and all(_can_mix(before.routes.get(name), route) for name, route in _keeping_keys(after).items())


def _amid(before: Route | None, after: Route, switch: Switch) -> Route:
    if before is None or before.table is None or after.table is None or groupings.get(after.policy).kind != "table":
        return after
    return replace(after, table=table_amid(before.table, after.table, switch.done, switch.portions))


def _keeping_keys(epoch: Epoch) -> Mapping[str, Route]:
    return {name: route for name, route in epoch.routes.items() if groupings.get(route.policy).kind == "table"}


def _can_mix(before: Route | None, after: Route) -> bool:
    if before is None or before.table is None or after.table is None or groupings.get(before.policy).kind != "table":
        return False
    return set(before.instances) <= set(after.instances) and len(before.table.buckets) == len(after.table.buckets)
