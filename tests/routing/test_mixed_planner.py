"""The planners against a slow transcription of the paper's pseudo-code, and the promises that hold for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamtopology.routing import planners
from streamtopology.routing.planners import PlanError, PlanInput, get
from streamtopology.routing.planners.balance import (
    balance_indicators,
    balanced_loads,
    balanced_seconds,
    fewest_loads,
    finish_seconds,
    imbalance,
)
from streamtopology.routing.table import RoutingTable, bucket_of, moved

PLANNERS = {name: planners.PLANNERS[name] for name in ("mixed", "mintable", "minmig", "simple")}
N_BUCKETS = 8
ANY_SIZE = 10**6


def keys_in(buckets: list[int]) -> np.ndarray:
    """Distinct key hashes, one in each of these buckets of N_BUCKETS."""
    return (np.array(buckets, np.uint64) << np.uint64(61)) + np.arange(len(buckets), dtype=np.uint64)


def plan_input(
    loads: list[float],
    owners: list[int],
    k: int,
    *,
    homes: list[int] | None = None,
    state: list[float] | None = None,
    **options: object,
) -> PlanInput:
    """Keys only: key i is at `owners[i]`, its hash destination is `homes[i]` (default: the owner), both < k <= 8."""
    homes = owners if homes is None else homes
    hashes = keys_in(homes)
    explicit = np.array([i for i, (at, home) in enumerate(zip(owners, homes, strict=True)) if at != home], np.int64)
    explicit = explicit[np.argsort(hashes[explicit])]
    table = RoutingTable(hashes[explicit], np.array(owners, np.int32)[explicit], (np.arange(N_BUCKETS) % k).astype(np.int32))
    defaults: dict[str, object] = {
        "capacities": np.ones(k),
        "fixed_seconds": np.zeros(k),
        "tolerance": 0.0,
        "max_entries": ANY_SIZE,
    }
    return PlanInput(
        current=table,
        instances=tuple(range(k)),
        key_hashes=hashes,
        key_loads=np.array(loads, np.float64),
        key_state=np.array(state if state is not None else [1.0] * len(loads)),
        **{**defaults, **options},
    )


def loads_after(given: PlanInput, table: RoutingTable) -> np.ndarray:
    """Load per active instance that keys and buckets have under a table, counted the slow way."""
    totals = dict.fromkeys(given.instances, 0.0)
    for owner, load in zip(table.lookup(given.key_hashes), given.key_loads, strict=True):
        totals[int(owner)] += load
    if len(given.bucket_loads):
        for owner, load in zip(table.buckets, given.bucket_loads, strict=True):
            totals[int(owner)] += load
    return np.array([totals[instance] for instance in given.instances])


# ---- the paper, word for word --------------------------------------------------------------------------------------


@dataclass
class Paper:
    """Algorithms 1 to 4 of mixed-routing over plain dicts; instances of equal capacity."""

    cost: list[float]
    memory: list[float]
    home: list[int]
    k: int
    theta: float
    beta: float

    def load(self, at: dict[int, int], d: int) -> float:
        return sum(self.cost[key] for key, owner in at.items() if owner == d)

    def limit(self) -> float:
        return (1 + self.theta) * sum(self.cost) / self.k * (1 + 1e-9)

    def by_cost(self, keys):
        return sorted(keys, key=lambda key: (-self.cost[key], key))

    def by_gamma(self, keys):
        return sorted(keys, key=lambda key: (-(self.cost[key] ** self.beta) / self.memory[key], key))

    def prepare(self, at: dict[int, int], criterion) -> list[int]:
        candidates = []
        for d in range(self.k):
            for key in criterion([key for key, owner in at.items() if owner == d]):
                if self.load(at, d) <= self.limit():
                    break
                del at[key]
                candidates.append(key)
        return candidates

    def llfd(self, at: dict[int, int], candidates: list[int], criterion) -> None:
        while candidates:
            key = self.by_cost(candidates)[0]
            candidates.remove(key)
            ascending = sorted(range(self.k), key=lambda d: (self.load(at, d), d))
            chosen = next((d for d in ascending if self.adjust(key, d, at, candidates, criterion)), ascending[0])
            at[key] = chosen

    def adjust(self, key: int, d: int, at: dict[int, int], candidates: list[int], criterion) -> bool:
        excess = self.load(at, d) + self.cost[key] - self.limit()
        if excess <= 0:
            return True
        exchangeable: list[int] = []
        for other in criterion([other for other, owner in at.items() if owner == d]):
            if self.cost[other] < self.cost[key] and excess > 0:
                exchangeable.append(other)
                excess -= self.cost[other]
        if excess > 0:
            return False
        for other in exchangeable:
            del at[other]
            candidates.append(other)
        return True

    def run(self, at: dict[int, int], criterion) -> dict[int, int]:
        self.llfd(at, self.prepare(at, criterion), criterion)
        return at

    def mintable(self, at: dict[int, int]) -> dict[int, int]:
        return self.run(dict(enumerate(self.home)), self.by_cost)

    def minmig(self, at: dict[int, int]) -> dict[int, int]:
        return self.run(dict(at), self.by_gamma)

    def mixed(self, at: dict[int, int], n_max: int) -> dict[int, int]:
        table = [key for key, owner in at.items() if owner != self.home[key]]
        smallest_first = sorted(table, key=lambda key: (self.memory[key], key))
        n = 0
        while True:
            cleaned = dict(at)
            for key in smallest_first[:n]:
                cleaned[key] = self.home[key]
            result = self.run(cleaned, self.by_gamma)
            size = sum(owner != self.home[key] for key, owner in result.items())
            if size <= n_max or n >= len(table):
                return result
            n += size - n_max


@st.composite
def papers_cases(draw):
    """Distinct whole costs and distinct priorities, so that the paper's order leaves nothing to taste."""
    k = draw(st.integers(2, 4))
    n = draw(st.integers(k, 14))
    cost = draw(st.lists(st.integers(1, 60), min_size=n, max_size=n, unique=True))
    memory = draw(st.lists(st.integers(1, 60), min_size=n, max_size=n, unique=True))
    assume(max(cost) <= sum(cost) / k)
    gammas = [c**1.5 / m for c, m in zip(cost, memory, strict=True)]
    assume(len(set(gammas)) == n)
    owner = draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    home = draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    return k, cost, memory, owner, home, draw(st.sampled_from([0.0, 0.08, 0.3]))


@settings(max_examples=150, deadline=None)
@given(case=papers_cases(), n_max=st.integers(0, 14))
def test_planners_do_what_the_papers_pseudo_code_does(case, n_max):
    k, cost, memory, owner, home, theta = case
    paper = Paper(cost, memory, home, k, theta, 1.5)
    at = dict(enumerate(owner))
    given_to_all = plan_input(cost, owner, k, homes=home, state=memory, tolerance=theta)
    results = {"mintable": paper.mintable(at), "minmig": paper.minmig(at)}
    for name, expected in results.items():
        table = PLANNERS[name](given_to_all).table
        assert dict(enumerate(table.lookup(given_to_all.key_hashes).tolist())) == expected
    mixed = paper.mixed(at, n_max)
    assume(sum(place != home[key] for key, place in mixed.items()) <= n_max)
    bounded = replace(given_to_all, max_entries=n_max)
    assert dict(enumerate(get("mixed")(bounded).table.lookup(bounded.key_hashes).tolist())) == mixed


def test_the_running_example_of_figure_4_reaches_absolute_balance():
    given_loads = plan_input([7, 4, 5, 2, 1, 1], [0, 0, 0, 1, 1, 1], 2)
    for name in ("mixed", "mintable", "minmig"):
        plan = PLANNERS[name](given_loads)
        assert loads_after(given_loads, plan.table).tolist() == [10, 10], name
        assert plan.theta_reached


@st.composite
def perfectly_divisible(draw):
    """Keys that can be divided perfectly: each of k instances' equal load is cut into at least two parts."""
    k, mean = draw(st.integers(2, 4)), draw(st.integers(4, 40))
    loads: list[int] = []
    for _ in range(k):
        cuts = sorted(draw(st.sets(st.integers(1, mean - 1), min_size=1, max_size=4)))
        loads += [b - a for a, b in zip([0, *cuts], [*cuts, mean], strict=True)]
    owners = draw(st.lists(st.integers(0, k - 1), min_size=len(loads), max_size=len(loads)))
    return loads, owners, k


@settings(max_examples=150, deadline=None)
@given(case=perfectly_divisible())
def test_theorem_1_where_perfect_balance_exists_a_third_is_never_exceeded(case):
    loads, owners, k = case
    theta = (1 - 1 / k) / 3
    for name in PLANNERS:
        plan = PLANNERS[name](plan_input(loads, owners, k, tolerance=theta))
        assert plan.theta_reached, name


# ---- what every planner promises -----------------------------------------------------------------------------------


@st.composite
def any_input(draw):
    """Keys and, half of the time, buckets; unequal instances, some of them new, some of the current ones gone."""
    known = draw(st.integers(1, 6))
    instances = tuple(draw(st.sets(st.integers(0, 7), min_size=1, max_size=4)))
    m = draw(st.integers(0, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    hashes = rng.integers(0, 2**64, m, dtype=np.uint64)
    explicit = np.sort(rng.choice(np.append(hashes, rng.integers(0, 2**64, 3, dtype=np.uint64)), m // 2, False))
    table = RoutingTable(
        explicit,
        rng.integers(0, known, len(explicit)).astype(np.int32),
        rng.integers(0, known, N_BUCKETS).astype(np.int32),
    )
    with_buckets = draw(st.booleans())
    skew = draw(st.sampled_from([0.0, 1.0, 3.0]))
    return PlanInput(
        current=table,
        instances=instances,
        capacities=rng.choice([0.3, 1.0, 2.0], len(instances)) * 100,
        fixed_seconds=rng.choice([0.0, 0.1, 0.5], len(instances)),
        key_hashes=hashes,
        key_loads=np.round(rng.random(m) * 10 ** rng.uniform(0, skew, m), 3) * rng.integers(0, 4, m).clip(0, 1),
        key_state=rng.integers(0, 50, m) * 1.0,
        bucket_loads=rng.integers(0, 30, N_BUCKETS) * 1.0 if with_buckets else np.empty(0),
        bucket_state=rng.integers(0, 90, N_BUCKETS) * 1.0 if with_buckets else np.empty(0),
        tolerance=draw(st.sampled_from([0.0, 0.08, 0.3])),
        max_entries=draw(st.sampled_from([0, 2, 5, 100])),
    )


@settings(max_examples=250, deadline=None)
@given(given_input=any_input(), name=st.sampled_from(sorted(PLANNERS)))
def test_a_plan_is_what_its_table_does(given_input, name):
    plan = PLANNERS[name](given_input)
    loads = loads_after(given_input, plan.table)
    machines = (given_input.capacities, given_input.fixed_seconds)
    total = given_input.key_loads.sum() + given_input.bucket_loads.sum()

    assert set(plan.table.instances()) <= set(given_input.instances)
    assert len(plan.table.entry_hashes) <= given_input.max_entries
    homes = plan.table.buckets[bucket_of(plan.table.entry_hashes, N_BUCKETS)]
    assert (plan.table.entry_instances != homes).all(), "an entry that says what the hash says is wasted"

    assert loads.sum() == pytest.approx(total)
    assert plan.predicted_seconds_after == pytest.approx(finish_seconds(loads, *machines).max())
    assert plan.imbalance_after == pytest.approx(imbalance(loads, *machines))
    assert plan.theta_reached == (plan.imbalance_after <= given_input.tolerance + 1e-9)

    changed, _, _ = moved(given_input.current, plan.table, given_input.key_hashes)
    expected = given_input.key_state[changed].sum()
    if len(given_input.bucket_loads):
        expected += given_input.bucket_state[plan.table.buckets != given_input.current.buckets].sum()
    assert plan.moved_bytes == pytest.approx(expected)
    if not len(given_input.bucket_loads) and set(given_input.current.instances()) <= set(given_input.instances):
        assert np.array_equal(plan.table.buckets, given_input.current.buckets), "keys alone do not change the hash"


@settings(max_examples=60, deadline=None)
@given(given_input=any_input(), name=st.sampled_from(sorted(PLANNERS)))
def test_planning_is_deterministic(given_input, name):
    assert PLANNERS[name](given_input).table == PLANNERS[name](given_input).table


@settings(max_examples=60, deadline=None)
@given(given_input=any_input(), name=st.sampled_from(["mixed", "minmig"]))
def test_a_table_within_the_tolerance_is_left_as_it_is(given_input, name):
    first = PLANNERS[name](replace(given_input, max_entries=100))
    assume(first.theta_reached)
    again = PLANNERS[name](replace(given_input, max_entries=100, current=first.table))
    assert again.moved_bytes == 0
    assert again.table == first.table


def zipf_input(seed: int, m: int = 4000, k: int = 5, **options: object) -> PlanInput:
    """An operator that was balanced before its keys changed their load, so its table is full of entries."""
    rng = np.random.default_rng(seed)
    loads = rng.permutation(1 / np.arange(1, m + 1) ** 0.9) * 1e5
    before = PlanInput(
        current=RoutingTable.uniform(range(k)),
        instances=tuple(range(k)),
        capacities=np.full(k, 1e4),
        fixed_seconds=np.zeros(k),
        key_hashes=rng.integers(0, 2**64, m, dtype=np.uint64),
        key_loads=loads,
        key_state=rng.integers(8, 400, m) * 1.0,
    )
    table = get("simple")(replace(before, max_entries=500)).table
    return replace(before, current=table, key_loads=rng.permutation(loads), **options)


def test_minmig_moves_least_mintable_has_least_entries_and_mixed_fits_its_table():
    moved_bytes, entries = dict.fromkeys(PLANNERS, 0.0), dict.fromkeys(PLANNERS, 0)
    for seed in range(8):
        for name in PLANNERS:
            plan = PLANNERS[name](zipf_input(seed, max_entries=300 if name == "mixed" else ANY_SIZE))
            assert plan.theta_reached, (name, seed)
            moved_bytes[name] += plan.moved_bytes
            entries[name] += len(plan.table.entry_hashes)
    assert moved_bytes["minmig"] < moved_bytes["mixed"] < moved_bytes["mintable"] < moved_bytes["simple"]
    assert entries["mintable"] < entries["mixed"] <= 8 * 300 < entries["minmig"] < entries["simple"]


def test_unequal_instances_finish_together():
    rng = np.random.default_rng(3)
    given_input = PlanInput(
        current=RoutingTable.uniform(range(4)),
        instances=(0, 1, 2, 3),
        capacities=np.array([1000.0, 1000.0, 1000.0, 300.0]),
        fixed_seconds=np.array([0.1, 0.1, 0.1, 0.3]),
        key_hashes=rng.integers(0, 2**64, 100, dtype=np.uint64),
        key_loads=2000 / np.arange(1, 101),
        key_state=np.ones(100),
        bucket_loads=rng.poisson(5, 4096) * 1.0,
        bucket_state=np.ones(4096),
        tolerance=0.01,
    )
    plan = get("mixed")(given_input)
    machines = (given_input.capacities, given_input.fixed_seconds)
    finish = finish_seconds(loads_after(given_input, plan.table), *machines)
    assert plan.imbalance_before > 1
    assert plan.theta_reached
    assert balance_indicators(loads_after(given_input, plan.table), *machines).max() < 0.05
    assert finish.max() == pytest.approx(plan.predicted_seconds_after)


def test_a_key_heavier_than_a_fair_share_gets_an_instance_to_itself():
    given_input = plan_input([100, *[1] * 40], [0] * 20 + [1] * 10 + [2] * 11, 3)
    loads = loads_after(given_input, get("mixed")(given_input).table)
    assert sorted(loads)[-1] == 100


def test_a_heavy_key_that_is_well_placed_does_not_excuse_a_slow_instance():
    given_input = plan_input([100, *[1] * 100], [0] + [1] * 100, 2, capacities=np.array([1.0, 0.1]), tolerance=0.08)
    plan = get("mixed")(given_input)
    assert plan.predicted_seconds_before == 1000
    assert plan.predicted_seconds_after < 200


@settings(max_examples=100, deadline=None)
@given(
    total=st.just(0.0) | st.floats(0.1, 1e6),
    machines=st.lists(st.tuples(st.floats(1, 1e4), st.floats(0, 10)), min_size=1, max_size=6),
)
def test_the_perfect_division_is_complete_and_level(total, machines):
    capacities, fixed = (np.array(column) for column in zip(*machines, strict=True))
    loads = balanced_loads(total, capacities, fixed)
    finish = finish_seconds(loads, capacities, fixed)
    assert loads.sum() == pytest.approx(total, abs=1e-6)
    assert finish.max() == pytest.approx(balanced_seconds(total, capacities, fixed))
    assert np.ptp(finish[loads > 0]) == pytest.approx(0, abs=1e-6) if (loads > 0).any() else total == 0
    assert (fixed[loads == 0] >= finish[loads > 0].max(initial=0) - 1e-6).all()


@settings(max_examples=100, deadline=None)
@given(
    total=st.floats(0.1, 1e6),
    machines=st.lists(st.tuples(st.floats(1, 1e4), st.floats(0, 10)), min_size=1, max_size=5),
    slack=st.floats(0, 0.5),
)
def test_the_division_over_few_is_complete_within_the_slack_and_no_subset_of_it_is(total, machines, slack):
    capacities, fixed = (np.array(column) for column in zip(*machines, strict=True))
    loads = fewest_loads(total, capacities, fixed, slack)
    used = np.flatnonzero(loads)
    perfect = balanced_loads(total, capacities, fixed)
    limit = (1 + slack) * finish_seconds(perfect, capacities, fixed)[perfect > 0].max()
    assert loads.sum() == pytest.approx(total)
    assert finish_seconds(loads, capacities, fixed)[used].max() <= limit * (1 + 1e-9)
    least = used[np.argmin(loads[used])]
    fewer = used[used != least]
    assert len(fewer) == 0 or balanced_seconds(total, capacities[fewer], fixed[fewer]) > limit * (1 - 1e-9)


def test_input_that_makes_no_sense_is_refused_with_the_field():
    good = plan_input([1, 2], [0, 1], 2)
    for change, message in (
        ({"instances": ()}, "no active instance"),
        ({"instances": (0, 0)}, "distinct"),
        ({"capacities": np.array([1.0, 0.0])}, "capacity > 0"),
        ({"key_loads": np.array([1.0, np.nan])}, "key_loads"),
        ({"bucket_loads": np.ones(3)}, "bucket_loads: 3 values where 8"),
        ({"tolerance": -1.0}, "tolerance"),
    ):
        with pytest.raises(PlanError, match=message):
            replace(good, **change)
    with pytest.raises(PlanError, match="'best'; there are mixed"):
        get("best")
