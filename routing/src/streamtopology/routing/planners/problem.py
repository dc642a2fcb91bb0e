"""A planner's working view: keys and buckets as one array of items, and the way back from owners to a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopology.routing.planners.balance import balanced_seconds, finish_seconds, imbalance
from streamtopology.routing.planners.llfd import CANDIDATE, Floats, Ints, Owners
from streamtopology.routing.planners.plan import Plan, PlanInput
from streamtopology.routing.table.kernel import njit
from streamtopology.routing.table.table import RoutingTable, bucket_of

# Relative slack on limits, so that sums in another order do not make a full instance an overloaded one.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class PlanningProblem:
    """Items 0..n_keys-1 are keys (those given, then entries of the table that were not), the others are buckets.

    `owner_before` int32[n]: position of the instance that owns the item now, CANDIDATE where that is not active;
    `owner` the same, but an item without load whose instance is not active is at its hash destination already.
    `fixed_home` int32[n_keys]: position that the key's bucket has before planning. `entries` int64[e]: the keys that
    can be moved back to it, those with an entry and those whose instance is not active.
    """

    given: PlanInput
    key_hashes: npt.NDArray[np.uint64]
    key_buckets: Ints
    loads: Floats
    state: Floats
    owner_before: Owners
    owner: Owners
    fixed_home: Owners
    buckets: Owners
    entries: Ints

    @staticmethod
    def of(given: PlanInput) -> PlanningProblem:
        """Lays the items out; buckets of instances that are not active are dealt out by capacity first."""
        current = given.current
        position = _positions(given, current)
        explicit = current.has_entry(given.key_hashes)
        hashes, loads, state = _with_silent(given)
        key_buckets = bucket_of(hashes, len(current.buckets))
        buckets = position[current.buckets]
        orphaned = np.flatnonzero(buckets == CANDIDATE)
        buckets[orphaned] = _deal(len(orphaned), given.capacities)
        home = buckets[key_buckets]
        before = position[current.lookup(hashes)]
        at_hand = home
        if len(given.bucket_loads):
            before = np.concatenate([before, position[current.buckets]])
            at_hand = np.concatenate([home, buckets])
            loads = np.concatenate([loads, given.bucket_loads])
            state = np.concatenate([state, given.bucket_state])
        owner = before.copy()
        idle = np.flatnonzero(before == CANDIDATE)
        idle = idle[loads[idle] <= 0]
        owner[idle] = at_hand[idle]
        can_move_back = owner[: len(hashes)] == CANDIDATE
        can_move_back[: len(explicit)] |= explicit
        can_move_back[len(explicit) :] = True
        entries = np.flatnonzero(can_move_back)
        return PlanningProblem(given, hashes, key_buckets, loads, state, before, owner, home, buckets, entries)

    @property
    def n_keys(self) -> int:
        return len(self.key_hashes)

    def totals(self, owner: Owners) -> Floats:
        """Load per instance position, float64[k]; candidates count nowhere."""
        return totals(self.loads, owner, len(self.given.instances))

    def owners_by(self, table: RoutingTable) -> Owners:
        """int32[n]: the position that each item has by another table with the same number of buckets."""
        position = _positions(self.given, table)
        of_keys = position[table.lookup(self.key_hashes)]
        return np.concatenate([of_keys, position[table.buckets]]) if len(self.given.bucket_loads) else of_keys

    def limits(self) -> Floats:
        """Largest load of each instance that the tolerance allows: L_max of the paper where all instances are equal."""
        return self.limits_at(self.limit_seconds())

    def limit_seconds(self) -> float:
        """Finish time that no instance should exceed: (1 + tolerance) times that of the perfect division.

        When a key alone takes longer, on whichever instance, no plan is done before it: then that key's own finish time
        on the best instance. A key that is done within the tolerance of that where it is now need not move for it.
        """
        given = self.given
        within = (1 + given.tolerance) * balanced_seconds(float(self.loads.sum()), given.capacities, given.fixed_seconds)
        heaviest = float(self.loads.max(initial=0.0))
        alone = float((given.fixed_seconds + heaviest / given.capacities).min())
        if alone <= within:
            return within
        about_as_heavy = np.flatnonzero((self.loads * (1 + given.tolerance) >= heaviest) & (self.owner_before != CANDIDATE))
        at = self.owner_before[about_as_heavy]
        here = given.fixed_seconds[at] + self.loads[about_as_heavy] / given.capacities[at]
        return max(alone, float(here[here <= alone * (1 + given.tolerance)].max(initial=0.0)))

    def limits_at(self, seconds: float) -> Floats:
        """Largest load with which each instance is done after `seconds`, float64[k]; a rounding error more is allowed."""
        given = self.given
        return np.maximum(given.capacities * (seconds * (1 + ROUNDING) - given.fixed_seconds), 0.0)

    def latest_finish(self, owner: Owners) -> float:
        """Seconds after which the last instance is done under this assignment."""
        return float(finish_seconds(self.totals(owner), self.given.capacities, self.given.fixed_seconds).max())

    def homes(self, owner: Owners) -> Owners:
        """Return the position of each key's bucket under this assignment: int32[n_keys]."""
        return self._buckets_under(owner)[self.key_buckets] if len(self.given.bucket_loads) else self.fixed_home

    def n_entries(self, owner: Owners) -> int:
        """Size of the routing table that this assignment needs."""
        return int(np.count_nonzero(owner[: self.n_keys] != self.homes(owner)))

    def moved_state(self, owner: Owners) -> float:
        """Bytes of state that this assignment migrates, M of the paper: keys' and buckets'."""
        return float(self.state[np.flatnonzero(owner != self.owner_before)].sum())

    def cut_to_bound(self, owner: Owners, reserved: int = 0) -> Owners:
        """The assignment with at most `max_entries` entries: the lightest of them go to their hash destination.

        `reserved`: how many of them others need.
        """
        room, homes = max(self.given.max_entries - reserved, 0), self.homes(owner)
        entries = np.flatnonzero(owner[: self.n_keys] != homes)
        if len(entries) <= room:
            return owner
        lightest_first = entries[np.argsort(self.loads[entries], kind="stable")]
        back = lightest_first[: len(entries) - room]
        bounded = owner.copy()
        bounded[back] = homes[back]
        return bounded

    def plan(self, owner: Owners, algorithm: str) -> Plan:
        """The plan that realises an assignment without candidates."""
        given, current = self.given, self.given.current
        instances = np.array(given.instances, np.int32)
        new_buckets = instances[self._buckets_under(owner)]
        entries = np.flatnonzero(owner[: self.n_keys] != self.homes(owner))
        entries = entries[np.argsort(self.key_hashes[entries])]
        table = RoutingTable(
            entry_hashes=self.key_hashes[entries],
            entry_instances=instances[owner[entries]],
            buckets=new_buckets,
        )
        moved_keys = np.flatnonzero(owner[: self.n_keys] != self.owner_before[: self.n_keys])
        moved_buckets = new_buckets != current.buckets
        per_bucket = given.bucket_keys if len(given.bucket_keys) else np.ones(len(new_buckets))
        bucket_mode = len(given.bucket_loads) > 0
        before, after = self.totals(self.owner_before), self.totals(owner)
        machines = (given.capacities, given.fixed_seconds)
        imbalance_after = imbalance(after, *machines)
        return Plan(
            table=table,
            moved_keys_estimate=float(len(moved_keys) + (per_bucket[moved_buckets].sum() if bucket_mode else 0)),
            moved_bytes=self.moved_state(owner),
            predicted_seconds_before=float(finish_seconds(before, *machines).max()),
            predicted_seconds_after=float(finish_seconds(after, *machines).max()),
            imbalance_before=imbalance(before, *machines),
            imbalance_after=imbalance_after,
            theta_reached=imbalance_after <= given.tolerance + ROUNDING,
            algorithm=algorithm,
        )

    def _buckets_under(self, owner: Owners) -> Owners:
        return owner[self.n_keys :] if len(self.given.bucket_loads) else self.buckets


def _positions(given: PlanInput, table: RoutingTable) -> Owners:
    """Instance number, of those active or in `table` -> position among the active ones, CANDIDATE for the others: int32."""
    known = max(*given.instances, *table.instances())
    position = np.full(known + 1, CANDIDATE, np.int32)
    position[list(given.instances)] = np.arange(len(given.instances))
    return position


def _with_silent(given: PlanInput) -> tuple[npt.NDArray[np.uint64], Floats, Floats]:
    """The keys given and, with neither load nor state, the entries of keys that nobody has seen of late."""
    loads, state = np.asarray(given.key_loads, np.float64), np.asarray(given.key_state, np.float64)
    silent = given.current.entry_hashes[given.current.silent_entries(given.key_hashes)]
    if not len(silent):
        return given.key_hashes, loads, state
    none = np.zeros(len(silent))
    return np.concatenate([given.key_hashes, silent]), np.concatenate([loads, none]), np.concatenate([state, none])


def _deal(count: int, capacities: Floats) -> Owners:
    """`count` items dealt to positions in proportion to capacity, evenly over their order: int32[count]."""
    share = np.cumsum(capacities) / capacities.sum()
    return np.searchsorted(share, (np.arange(count) + 0.5) / max(count, 1)).astype(np.int32)


@njit(cache=True, nogil=True)
def totals(loads: Floats, owner: Owners, k: int) -> Floats:
    """Load per instance position, float64[k]: item i has loads[i] and is at owner[i]; candidates count nowhere."""
    sums = np.zeros(k)
    for item in range(len(owner)):
        if owner[item] != CANDIDATE:
            sums[owner[item]] += loads[item]
    return sums
