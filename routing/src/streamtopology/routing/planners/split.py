"""Keys with several owners, as planners see them: whom it pays to split, over which instances, and what that takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.planners.balance import balanced_seconds, finish_seconds
from streamtopology.routing.planners.llfd import CANDIDATE
from streamtopology.routing.planners.order import descending
from streamtopology.routing.planners.plan import PlanInput, Splitting
from streamtopology.routing.planners.problem import PlanningProblem
from streamtopology.routing.table.kernel import njit
from streamtopology.routing.table.pouring import MOST_SCOUTED, SAMPLE, SEEN
from streamtopology.routing.table.splits import Splits
from streamtopology.routing.table.table import RoutingTable
from streamtopology.routing.table.water import poured

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Owners = npt.NDArray[np.int32]

# Times the perfect division after which a router splits keys by itself, where merging them costs less than that.
SCOUT_BEYOND = 1.15

# Times the least fixed seconds from which a home would hold up the merging of its keys.
SLOW_HOME = 1.5


@dataclass(frozen=True, eq=False)
class ItemPlacement:
    """The owner of each item, int32[n] positions of instances: of a split key its home.

    Split key i is item items[i] (int64[s]), and its owners and their rows are owners[first[i]:first[i + 1]] (int32[o]) and
    parts (float64[o]).
    """

    owner: Owners
    items: Ints
    first: Ints
    owners: Owners
    parts: Floats

    @staticmethod
    def whole(owner: Owners) -> ItemPlacement:
        """No key is split."""
        return ItemPlacement(owner, np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0))

    @property
    def homes(self) -> Owners:
        """int32[o]: the home of the key that each owner is of."""
        return np.repeat(self.owner[self.items], np.diff(self.first))

    def work(self, problem: PlanningProblem) -> Floats:
        """float64[k]: rows of each instance."""
        totals = problem.totals(self.owner)
        at_home = np.bincount(self.owner[self.items], problem.loads[self.items], len(totals))
        dealt = np.bincount(self.owners, self.parts, len(totals))
        return np.maximum(totals - at_home + dealt, 0.0).astype(np.float64)

    def work_seconds(self, problem: PlanningProblem) -> float:
        """Seconds until the last instance is done with its rows."""
        given = problem.given
        return float(finish_seconds(self.work(problem), given.capacities, given.fixed_seconds).max())

    def merge_seconds(self, problem: PlanningProblem, splitting: Splitting) -> float:
        """Seconds until the last home has merged the parts of its keys; 0 without any."""
        given = problem.given
        away = (self.owners != self.homes) & (self.parts > 0)
        parts = np.bincount(self.homes[away], minlength=len(given.capacities)).astype(np.float64)
        fixed = given.fixed_seconds * splitting.apart
        merged = finish_seconds(parts * splitting.part_rows, given.capacities, fixed)
        return float(merged[parts > 0].max(initial=0.0))

    def splits(self, problem: PlanningProblem) -> Splits:
        """As they stand in a table: a home that gets no rows is an owner without turns."""
        instances = np.array(problem.given.instances, np.int32)
        homes, first, owners, parts = self.owner[self.items], [0], list[Owners](), list[Floats]()
        for key, home in enumerate(homes):
            mine = slice(self.first[key], self.first[key + 1])
            absent = np.array([home] if home not in self.owners[mine] else [], np.int32)
            owners += [self.owners[mine], absent]
            parts += [self.parts[mine], np.zeros(len(absent))]
            first.append(first[-1] + len(self.owners[mine]) + len(absent))
        return Splits.of(
            problem.key_hashes[self.items],
            np.array(first),
            instances[np.concatenate([*owners, np.empty(0, np.int32)])],
            np.concatenate([*parts, np.empty(0)]),
        )


def line_of(given: PlanInput, loads: Floats) -> float:
    """Seconds of the perfect division of these items (rows), which no placement beats."""
    return balanced_seconds(float(loads.sum()), given.capacities, given.fixed_seconds)


def keys_to_split(problem: PlanningProblem, splitting: Splitting) -> Ints:
    """The keys that pay for being split, heaviest first: int64[s].

    Keys are placed longest first, each on the instance b that is done first with it. One of w rows that would be done later
    than the perfect division L is split if that is more than what merging takes at the fastest home h (break-even):

        done_b + w / capacity_b - L > fixed_h + (d - 1) part_rows / capacity_h

    with d the fewest instances that hold it below L. The fixed seconds of the merge stage are those of the first key.
    """
    given, loads = problem.given, problem.loads[: problem.n_keys]
    order = descending(loads)
    line = line_of(given, problem.loads)
    room = np.sort(np.maximum(line - given.fixed_seconds, 0.0) * given.capacities)[::-1]
    home = int(np.argmin(given.fixed_seconds - 1e-9 * given.capacities))
    once, each = float(given.fixed_seconds[home]) * splitting.apart, splitting.part_rows / float(given.capacities[home])
    return _set_aside(order, loads, given.capacities, given.fixed_seconds.copy(), line, np.cumsum(room), once, each)


def split_over_fewest(problem: PlanningProblem, rest: Owners, items: Ints) -> ItemPlacement:
    """Pour the split keys `items` over the instances as `rest` (int32[n] positions) has left them, the lightest first.

    Each goes to as few instances as hold it below the perfect division; the heaviest to all that have room, as it levels what
    the others have left. State stays where it is, unless a home would hold up merging.
    """
    given, owner = problem.given, rest.copy()
    fixed, capacities = given.fixed_seconds, given.capacities
    whole = problem.loads.copy()
    whole[items] = 0.0
    filled = fixed * capacities + np.bincount(owner, whole, len(capacities))
    full = line_of(given, problem.loads) * capacities
    of_key: list[tuple[Owners, Floats]] = []
    lightest_first = items[::-1]
    for item in lightest_first:
        room = np.maximum(full - filled, 0.0)
        by_room = np.argsort(-room, kind="stable").astype(np.int32)
        held = np.cumsum(room[by_room])
        fewest = int(np.searchsorted(held, problem.loads[item])) + 1
        mine = by_room if fewest > len(by_room) or item == lightest_first[-1] else by_room[:fewest]
        parts = poured(filled, capacities, problem.loads[item : item + 1], np.array([0, len(mine)]), mine)
        got = parts > 0
        of_key.append((mine[got], parts[got]))
        if fixed[owner[item]] > SLOW_HOME * fixed.min() and got.any():
            owner[item] = mine[got][np.argmin(fixed[mine[got]])]
    first = np.concatenate([[0], np.cumsum([len(mine) for mine, _ in of_key])]).astype(np.int64)
    owners = np.concatenate([*(mine for mine, _ in of_key), np.empty(0, np.int32)])
    return ItemPlacement(owner, lightest_first, first, owners, np.concatenate([*(parts for _, parts in of_key), np.empty(0)]))


def as_dealt(problem: PlanningProblem) -> ItemPlacement:
    """The placement of the present table, its split keys poured as routers do; the instances of all items are active."""
    return dealt_by(problem, problem.given.current, problem.owner_before)


def dealt_by(problem: PlanningProblem, table: RoutingTable, owner: Owners) -> ItemPlacement:
    """The placement of `table`, by which the items have these owners (int32[n] positions), its split keys poured."""
    given, splits = problem.given, table.splits
    position = {instance: place for place, instance in enumerate(given.instances)}
    active = splits.among(np.array(given.instances, np.int32))
    item_of = {int(problem.key_hashes[item]): item for item in range(problem.n_keys)} if len(active) else {}
    items = np.array([item_of[int(key)] for key in active.hashes], np.int64)
    owners = np.array([position[int(instance)] for instance in active.owners], np.int32)
    return repoured(problem, owner, items, active.first, owners)


def scouted(problem: PlanningProblem, placement: ItemPlacement, beyond: float) -> ItemPlacement:
    """The placement as routers make it that split the heaviest keys of instances beyond this many perfect divisions.

    As many as they split in one batch at most, and only those that they see in their samples.
    """
    given = problem.given
    least = SEEN / SAMPLE * float(problem.loads.sum())
    limit = beyond * line_of(given, problem.loads)
    k = len(given.capacities)
    done = finish_seconds(placement.work(problem), given.capacities, given.fixed_seconds)
    found: list[int] = []
    for key in descending(problem.loads[: problem.n_keys]):
        if problem.loads[key] <= least or len(found) == MOST_SCOUTED or (done <= limit).all():
            break
        at = placement.owner[key]
        if key not in placement.items and done[at] > limit:
            done[at] -= problem.loads[key] / given.capacities[at]
            found.append(int(key))
    first = np.concatenate([placement.first, placement.first[-1] + k * np.arange(1, len(found) + 1)])
    owners = np.concatenate([placement.owners, np.tile(np.arange(k, dtype=np.int32), len(found))])
    items = np.concatenate([placement.items, np.array(found, np.int64)])
    return repoured(problem, placement.owner, items, first, owners)


def scouts_beyond(rows: float, capacities: Floats, fixed_seconds: Floats, splitting: Splitting) -> float:
    """Times the perfect division of `rows` after which a router should split a key by itself, as that pays for merging.

    Break-even as in `keys_to_split`, with all instances as owners.
    """
    line = balanced_seconds(rows, capacities, fixed_seconds)
    parts = (len(capacities) - 1) * splitting.part_rows / float(capacities.max())
    return max(SCOUT_BEYOND, 1 + (float(fixed_seconds.min()) * splitting.apart + parts) / max(line, 1e-9))


def without(problem: PlanningProblem, items: Ints) -> PlanningProblem:
    """The problem of all items but these, whose entries the table keeps; up to the perfect division of all of them.

    Items whose instance is not active are at their hash destination.
    """
    loads, owner = problem.loads.copy(), problem.owner.copy()
    loads[items] = 0.0
    homeless = items[owner[items] == CANDIDATE]
    owner[homeless] = problem.fixed_home[homeless]
    given = problem.given
    slack = line_of(given, problem.loads) / max(line_of(given, loads), 1e-12)
    bound = max(given.max_entries - len(items), 0)
    tolerance = (1 + given.tolerance) * slack - 1
    return replace(problem, loads=loads, owner=owner, given=replace(given, tolerance=tolerance, max_entries=bound))


def repoured(problem: PlanningProblem, owner: Owners, items: Ints, first: Ints, owners: Owners) -> ItemPlacement:
    """The placement whose split keys level what all others give to the instances."""
    given = problem.given
    whole = problem.loads.copy()
    whole[items] = 0.0
    filled = given.fixed_seconds * given.capacities + np.bincount(owner, whole, len(given.capacities))
    parts = poured(filled, given.capacities, problem.loads[items], first, owners)
    return ItemPlacement(owner, items, first, owners, parts)


@njit(cache=True, nogil=True)
def _set_aside(order: Any, loads: Any, capacities: Any, done: Any, line: float, held_by: Any, once: float, each: float) -> Any:
    """int64[s]: the items of `order` that are set aside by break-even, as the others are placed longest first.

    done float64[k]: seconds of each instance, changed in place; held_by float64[k]: rows that the d + 1 with most room hold.
    """
    aside, count = np.empty(len(order), np.int64), 0
    for item in order:
        load = loads[item]
        if load <= 0:
            break
        ends = done + load / capacities
        best = np.argmin(ends)
        owners = 2
        while owners < len(held_by) and held_by[owners - 1] < load:
            owners += 1
        price = (once if count == 0 else 0.0) + each * (owners - 1)
        if ends[best] - line > price:
            aside[count] = item
            count += 1
        else:
            done[best] = ends[best]
    return aside[:count].copy()
