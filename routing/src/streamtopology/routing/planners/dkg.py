"""DKG: heavy hitters one by one and all other keys in k * mu buckets, placed by a greedy schedule.

Rivetti et al., Efficient Key Grouping for Near-Optimal Load Balancing in Stream Processing Systems (DEBS 2015),
listing 3.2. `build` is the paper's build phase: on a table of k * mu buckets, with instances of equal capacity and no
fixed seconds, it is the paper's to the letter. On a table with more buckets, as Spark has it, one bucket of the paper is
a run of neighbouring ones: it holds the keys with the same hash range, so it is the same hash function.

`dkg` learns once and again when the stream has drifted, which the paper leaves to the future (section 7). As it is also
left open which of several equal instances gets which share, the one that has most of its state does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from streamtopology.routing.planners.balance import finish_seconds
from streamtopology.routing.planners.llfd import CANDIDATE, Floats, Ints, Owners, assign
from streamtopology.routing.planners.order import descending
from streamtopology.routing.planners.plan import Plan, PlanError, PlanInput
from streamtopology.routing.planners.problem import ROUNDING, PlanningProblem
from streamtopology.routing.table.kernel import njit
from streamtopology.routing.table.table import RoutingTable

# Share of the tolerance that may be given away so that state stays where it is.
HOME_SLACK = 0.5


@dataclass(frozen=True)
class DkgSettings:
    """The paper's parameters, with the values of its prototype (section 5.3). PlanError says what does not fit.

    theta: share of the load from which a key is a heavy hitter. eps: half of it if None, as in the paper's tests; the
    precision of theta, so a key that has an entry keeps it until its share is below theta - eps. mu: buckets per
    instance.
    """

    theta: float = 0.1
    eps: float | None = None
    mu: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.theta <= 1:
            raise PlanError(f"theta: found {self.theta}, expected a share of the load, 0 < theta <= 1")
        if not 0 < self.precision < self.theta:
            raise PlanError(f"eps: found {self.eps}, expected 0 < eps < theta = {self.theta}")
        if self.mu < 1:
            raise PlanError(f"mu: found {self.mu}, expected a whole number of buckets per instance, at least 1")

    @property
    def precision(self) -> float:
        """eps, in force."""
        return self.theta / 2 if self.eps is None else self.eps

    @staticmethod
    def of(options: Mapping[str, object]) -> DkgSettings:
        """The settings in a grouping's options; those left out have their default."""
        default = DkgSettings()
        return DkgSettings(
            cast(float, options.get("theta", default.theta)),
            cast("float | None", options.get("eps", default.eps)),
            cast(int, options.get("mu", default.mu)),
        )


def dkg(given: PlanInput) -> Plan:
    """Return the current table unless the stream has drifted (`drift`), else a table built for the present load.

    Heavy hitters are the keys with at least `theta` of the load, `max_entries` at most; the other keys given are part of
    their bucket. Without bucket loads the keys given are all there are, and buckets are placed all the same.
    """
    problem, built = _learnt(given)
    if _drift(problem, built):
        return built.plan(problem)
    return replace(problem.plan(problem.owner, "dkg"), table=given.current)


def drift(given: PlanInput) -> str:
    """Return the reason to learn the table again, for people; empty while the current one serves. Pure, as `dkg`.

    The stream has drifted when the current table's last instance would finish later than a new table's by more than the
    tolerance; whatever else has changed is no reason to move state. A table that DKG did not build (one of its buckets
    is spread over instances), or that names an inactive instance, is learnt again in any case.
    """
    return _drift(*_learnt(given))


def build(given: PlanInput) -> Plan:
    """The paper's BUILD, in which every key given is a heavy hitter and `bucket_loads` are the others'."""
    problem = PlanningProblem.of(given.with_buckets())
    return _built(problem, np.arange(len(given.key_hashes))).plan(problem)


def without_sparse_items(given: PlanInput) -> Plan:
    """DKG WOSIM (section 6): as `build`, but buckets stay where they are and the schedule takes no notice of them."""
    problem = PlanningProblem.of(given.with_buckets())
    heavy = np.arange(len(given.key_hashes))
    nothing = np.full(len(given.current.buckets), CANDIDATE, np.int32)
    entries = schedule(problem.loads[heavy], given.capacities, given.fixed_seconds)
    return _Built(heavy, _Grouping.of(problem, heavy).owners(problem, heavy, entries, nothing)).plan(problem, "dkg-wosim")


def two_choices(given: PlanInput) -> tuple[RoutingTable, RoutingTable]:
    """DKG PKG (section 6): as `build` with every heavy hitter as two items of half its load: its two instances.

    The tables differ in the entries alone. The halves may meet on one instance, where that is best.
    """
    problem = PlanningProblem.of(given.with_buckets())
    heavy = np.arange(len(given.key_hashes))
    grouping = _Grouping.of(problem, heavy)
    halves = problem.loads[heavy] / 2
    placed = schedule(np.concatenate([halves, halves, grouping.loads]), given.capacities, given.fixed_seconds)
    first, second, groups = np.split(placed, [len(heavy), 2 * len(heavy)])
    one, other = (_Built(heavy, grouping.owners(problem, heavy, entries, groups)) for entries in (first, second))
    return one.plan(problem).table, other.plan(problem).table


def schedule(loads: Floats, capacities: Floats, fixed_seconds: Floats) -> Owners:
    """The paper's `scheduling` (section 3.1, Graham's rule): position of an instance for each item, int32[n].

    The heaviest item goes to the instance that is done first with it, then the next one: with equal capacities, to the
    least loaded. An item without load is left out (CANDIDATE): nothing is known that speaks for an instance.
    """
    n, k = len(loads), len(capacities)
    owner, one = np.full(n, CANDIDATE, np.int32), np.ones(n, np.int64)
    by_load = descending(loads)
    no_limits = np.full(k, np.inf)
    items, positions, _ = assign(
        loads, one, owner, one.copy(), by_load, by_load, np.zeros(k), no_limits, capacities, fixed_seconds
    )
    owner[items] = positions
    return owner


@dataclass(frozen=True, eq=False)
class _Built:
    """A mapping: `heavy` int64[h], the keys with an entry; `owner` as in `PlanningProblem`, of all keys and buckets."""

    heavy: Ints
    owner: Owners

    def plan(self, problem: PlanningProblem, algorithm: str = "dkg") -> Plan:
        """Every heavy hitter has its entry, like the paper's HH, even if its bucket is at the same instance now."""
        plan = problem.plan(self.owner, algorithm)
        entries = np.array(problem.given.instances, np.int32)[self.owner[self.heavy]]
        return replace(plan, table=plan.table.with_entries(problem.key_hashes[self.heavy], entries))


@dataclass(frozen=True, eq=False)
class _Grouping:
    """The paper's buckets: runs of the table's. of_bucket int64[B]; loads float64[k * mu], heavy hitters left out."""

    of_bucket: Ints
    loads: Floats

    @staticmethod
    def of(problem: PlanningProblem, heavy: Ints) -> _Grouping:
        n_buckets = len(problem.given.current.buckets)
        groups = min(len(problem.given.instances) * DkgSettings.of(problem.given.options).mu, n_buckets)
        of_bucket = np.arange(n_buckets) * groups // n_buckets
        light = problem.loads.copy()
        light[heavy] = 0.0
        buckets = np.concatenate([problem.key_buckets, np.arange(n_buckets)])
        return _Grouping(of_bucket, np.bincount(of_bucket[buckets], light, groups).astype(np.float64))

    def owners(self, problem: PlanningProblem, heavy: Ints, entries: Owners, groups: Owners) -> Owners:
        """Owners of all keys and buckets. entries int32[h]: of the heavy hitters; groups int32[k * mu].

        What nothing is known of (CANDIDATE) stays where it is, or goes where its hash says; all of a bucket of the paper where
        its first piece is, so that the table is recognised as one of DKG's when load comes there.
        """
        first_piece = problem.buckets[np.searchsorted(self.of_bucket, np.arange(len(groups)))]
        buckets = np.where(groups == CANDIDATE, first_piece, groups)[self.of_bucket]
        keys = buckets[problem.key_buckets]
        keys[heavy] = np.where(entries == CANDIDATE, keys[heavy], entries)
        return np.concatenate([keys, buckets])


def _learnt(given: PlanInput) -> tuple[PlanningProblem, _Built]:
    problem = PlanningProblem.of(given.with_buckets())
    return problem, _built(problem, _heavy_hitters(problem))


def _heavy_hitters(problem: PlanningProblem) -> Ints:
    settings = DkgSettings.of(problem.given.options)
    total = float(problem.loads.sum())
    least = np.full(problem.n_keys, settings.theta)
    least[problem.entries] -= settings.precision
    loads = problem.loads[: problem.n_keys]
    heavy = np.flatnonzero((loads > 0) & (loads >= least * total))
    heaviest_first = heavy[np.argsort(-loads[heavy], kind="stable")]
    return np.sort(heaviest_first[: problem.given.max_entries])


def _built(problem: PlanningProblem, heavy: Ints) -> _Built:
    given = problem.given
    grouping = _Grouping.of(problem, heavy)
    loads = np.concatenate([problem.loads[heavy], grouping.loads])
    placed = schedule(loads, given.capacities, given.fixed_seconds)
    if problem.state.any():
        placed = _near_home(problem, heavy, grouping, loads, placed)
    entries, groups = np.split(placed, [len(heavy)])
    return _Built(heavy, grouping.owners(problem, heavy, entries, groups))


def _near_home(problem: PlanningProblem, heavy: Ints, grouping: _Grouping, loads: Floats, placed: Owners) -> Owners:
    """The schedule with instances swapped so that less state moves; none finishes notably later than the last did."""
    given, k = problem.given, len(problem.given.instances)
    item = len(heavy) + grouping.of_bucket[np.concatenate([problem.key_buckets, np.arange(len(grouping.of_bucket))])]
    item[heavy] = np.arange(len(heavy))
    share = placed[item]
    known = (share != CANDIDATE) & (problem.owner != CANDIDATE)
    pairs = share[known] * k + problem.owner[known]
    kept = np.bincount(pairs, problem.state[known], k * k).astype(np.float64).reshape(k, k)
    totals = np.bincount(placed[placed != CANDIDATE], loads[placed != CANDIDATE], k).astype(np.float64)
    latest = float(finish_seconds(totals, given.capacities, given.fixed_seconds).max())
    latest *= (1 + HOME_SLACK * given.tolerance) * (1 + ROUNDING)
    place = np.arange(k, dtype=np.int32)
    _swap(kept, totals, given.capacities, given.fixed_seconds, latest, ROUNDING * float(kept.sum()), place)
    return np.where(placed == CANDIDATE, np.int32(CANDIDATE), place[placed])


@njit(cache=True, nogil=True)
def _swap(
    kept: Floats, totals: Floats, capacities: Floats, fixed_seconds: Floats, latest: float, least_gain: float, place: Owners
) -> None:
    """Swaps instances of two shares while that keeps more state at home and neither finishes after `latest`. In place.

    kept float64[k, k]: state of share s that is at instance d now; place int32[k]: the instance of each share.
    """
    swapped = True
    while swapped:
        swapped = False
        for a in range(len(place)):
            for b in range(a):
                to_a, to_b = place[b], place[a]
                gain = kept[a, to_a] + kept[b, to_b] - kept[a, to_b] - kept[b, to_a]
                done_a = fixed_seconds[to_a] + totals[a] / capacities[to_a]
                done_b = fixed_seconds[to_b] + totals[b] / capacities[to_b]
                if gain > least_gain and done_a <= latest and done_b <= latest:
                    place[a], place[b] = to_a, to_b
                    swapped = True


def _drift(problem: PlanningProblem, built: _Built) -> str:
    given = problem.given
    strangers = sorted(set(given.current.instances()) - set(given.instances))
    if strangers:
        return f"instances {strangers} are no longer active"
    if not problem.loads.any():
        return ""
    grouping = _Grouping.of(problem, built.heavy)
    starts = np.searchsorted(grouping.of_bucket, np.arange(len(grouping.loads)))
    lowest = np.minimum.reduceat(given.current.buckets, starts)
    highest = np.maximum.reduceat(given.current.buckets, starts)
    if ((lowest != highest) & (grouping.loads > 0)).any():
        return "not learnt yet"
    machines = (given.capacities, given.fixed_seconds)
    now = float(finish_seconds(problem.totals(problem.owner), *machines).max())
    rebuilt = float(finish_seconds(problem.totals(built.owner), *machines).max())
    if now > rebuilt * (1 + given.tolerance) * (1 + ROUNDING):
        return f"the last instance is done after {now:.3g} s, under a new table after {rebuilt:.3g} s"
    return ""
