"""The gradual switch from one epoch to the next, portion by portion, so that no batch waits until all state has moved.

Keys are dealt to portions by their bucket. A mixed epoch routes the keys of the portions done as the new epoch does, and all
others as the previous one does: "fluid" migration in Hoffmann et al., Megaphone, PVLDB 12(9), 2019. It is an epoch like any
other, under which each key has one owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.epochs.placement import NOWHERE
from streamtopology.routing.epochs.switch_progress import GradualSwitch
from streamtopology.routing.table.perfect_hash import Hashes
from streamtopology.routing.table.splits import Splits
from streamtopology.routing.table.table import RoutingTable, bucket_of, shuffled
from streamtopology.topology import groupings

# Seed by which buckets are dealt: planners treat neighbouring buckets alike, so they go to different portions.
_DEAL = 11


def portions_of_buckets(n_buckets: int, portions: int) -> npt.NDArray[np.int32]:
    """Return the portion, from 0, of each bucket: int32[n_buckets]. Portions differ by at most one bucket in size."""
    ranks = np.empty(n_buckets, np.int64)
    ranks[shuffled(n_buckets, _DEAL)] = np.arange(n_buckets)
    return (ranks * portions // n_buckets).astype(np.int32)


def portions_of(hashes: Hashes, n_buckets: int, portions: int) -> npt.NDArray[np.int32]:
    """Return the portion of each key hash (uint64[n]) in a table of `n_buckets`: int32[n]."""
    return portions_of_buckets(n_buckets, portions)[bucket_of(hashes, n_buckets)]


def mixed_table(before: RoutingTable, after: RoutingTable, done: int, portions: int) -> RoutingTable:
    """Return the table that routes keys of the first `done` portions as `after` does, and all others as `before` does.

    Entries that agree with their bucket are left out, unless they are split. Both tables have the same number of buckets.
    """
    n_buckets = len(after.buckets)
    buckets = np.where(portions_of_buckets(n_buckets, portions) < done, after.buckets, before.buckets)
    hashes = np.union1d(before.entry_hashes, after.entry_hashes)
    is_done = portions_of(hashes, n_buckets, portions) < done
    owners = np.where(is_done, after.lookup(hashes), before.lookup(hashes))
    splits = _splits_done(after, portions, done, True).joined(_splits_done(before, portions, done, False))
    needed = (owners != buckets[bucket_of(hashes, n_buckets)]) | np.isin(hashes, splits.hashes)
    return RoutingTable(hashes[needed], owners[needed], buckets, splits)


def _splits_done(table: RoutingTable, portions: int, done: int, wanted: bool) -> Splits:
    """The split keys of `table` whose portion is done (`wanted` True), or is not."""
    return table.splits.where((portions_of(table.splits.hashes, len(table.buckets), portions) < done) == wanted)


def mixed_epoch(before: Epoch, after: Epoch, switch: GradualSwitch) -> Epoch:
    """Return `after`, with the tables of `before` for the portions not yet moved."""
    routes = {name: _mixed_route(before.routes.get(name), route, switch) for name, route in after.routes.items()}
    return replace(after, routes=routes)


def can_switch_gradually(before: Epoch, after: Epoch) -> bool:
    """True if both epochs' tables can hold at once: every instance of `before` stays on its executor slot."""
    if before.placement is None or after.placement is None:
        return False
    slot_after = dict(enumerate(after.placement.slot_by_instance))
    stays = all(slot in (NOWHERE, slot_after.get(i)) for i, slot in enumerate(before.placement.slot_by_instance))
    return stays and all(_can_mix(before.routes.get(name), route) for name, route in _table_routes(after).items())


def _mixed_route(before: Route | None, after: Route, switch: GradualSwitch) -> Route:
    if before is None or before.table is None or after.table is None or groupings.get(after.policy).kind != "table":
        return after
    return replace(after, table=mixed_table(before.table, after.table, switch.done, switch.portions))


def _table_routes(epoch: Epoch) -> Mapping[str, Route]:
    return {name: route for name, route in epoch.routes.items() if groupings.get(route.policy).kind == "table"}


def _can_mix(before: Route | None, after: Route) -> bool:
    if before is None or before.table is None or after.table is None or groupings.get(before.policy).kind != "table":
        return False
    return set(before.instances) <= set(after.instances) and len(before.table.buckets) == len(after.table.buckets)
