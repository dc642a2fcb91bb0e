"""The policy `auto` on one operator's stream: a table with split keys, planned by `auto` and poured by the routers.

The table is the one of the grouping `mixed`; the controller, the planner and the routers' kernels are those of the routing
package. On Spark parts ride with the next batch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamtopology.lab.simulate.contender import Contender, Dealt, KeysAt, holders
from streamtopology.lab.simulate.merging import Merging
from streamtopology.lab.simulate.site import Batch, Floats, Hashes, Instances, Site
from streamtopology.routing.control.decisions import PartCosts
from streamtopology.routing.planners.plan import Splitting
from streamtopology.routing.planners.split import scouts_beyond
from streamtopology.routing.table.pouring import Pace, pour
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology import groupings


class AutoContender(Contender):
    """Splits keys where the site's state can be combined; else it is planned as one owner for each.

    `apart`: parts are merged in a stage of their own after the rows'. If False, they ride with the rows of the next batch:
    merging takes its time, but no stage.
    """

    def __init__(self, site: Site, seed: int, apart: bool = True) -> None:
        super().__init__(site, groupings.get("mixed"), seed)
        self.policy = "auto" if apart else "auto, carried"
        self._splits = site.stateful and site.combinable
        seconds = site.most_part_seconds / site.aggregate_every
        self._costs = PartCosts(seconds, apart)
        self._merging = Merging(site if apart else replace(site, fixed_seconds=0.0))
        self._routed = 0
        self.facts = replace(
            self.facts,
            planners={site.operator: "auto"},
            splitting={site.operator: self._costs} if self._splits else {},
        )

    def deal(self, batch: Batch, seen: Hashes) -> Dealt:
        table = self.route.table
        if table is None or not self._splits:
            return super().deal(batch, seen)
        chosen = self._pour(batch, table)
        work, rows = self.sums(chosen, batch.seconds), self.sums(chosen)
        held = holders(batch, chosen, self.site.parallelism)
        merging = self._merging.take(batch, held, table)
        keys = [_keys_at(batch, chosen == instance) for instance in range(self.site.parallelism)]
        reports = self.reports(rows, work, table, keys, batch, seen)
        return Dealt(work, rows, merging, float(held.sum() / len(batch.keys)), reports)

    def _pour(self, batch: Batch, table: RoutingTable) -> Instances:
        """The instance of each row, by one router a slot; before anything is measured, that of its key."""
        routers, first = len(self.site.cpu), self._routed
        self._routed += routers
        model = self.controller.model(self.facts)
        if model is None or self.site.operator not in model.rates:
            return table.lookup(batch.hashes)
        capacities, fixed = model.of_instances(self.site.operator, self.site.slots)
        splitting = Splitting(self._costs.seconds * model.base_rates[self.site.operator], self._costs.apart)
        beyond = scouts_beyond(len(batch.hashes), capacities, fixed, splitting)
        pace = Pace(capacities, fixed, routers, beyond)
        parts = np.array_split(batch.hashes, routers)
        return np.concatenate([pour(table, part, pace, start(first + n)).owners for n, part in enumerate(parts)])


def start(turn: int) -> int:
    """The number of the first row of a router's `turn`, by which split keys are dealt: spread, and the same for a retry."""
    return turn * 1_000_003


def _keys_at(batch: Batch, here: np.ndarray) -> KeysAt:
    """The keys of the rows `here` (bool[n])."""
    of_rows = batch.key_of[here]
    rows = np.bincount(of_rows, minlength=len(batch.keys))
    work: Floats = np.bincount(of_rows, batch.seconds[here], len(batch.keys)).astype(np.float64)
    positions = np.flatnonzero(rows)
    return KeysAt(positions, rows[positions], work[positions])
