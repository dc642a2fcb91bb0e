"""The comparison of policies on one operator: against hand-computed figures, and what it promises for any policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamtopology.lab.simulate.comparison import Batch, Comparison, Result, Site
from streamtopology.lab.simulate.merging import Merging
from streamtopology.lab.simulate.streams import draw, zipf_probabilities
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology import Rebalance, groupings

pytestmark = pytest.mark.long  # research: minutes of simulated streams

COST = 1e-5
SITE = Site("counts", 4, (1.0, 1.0, 1.0, 0.3), "mixed", combinable=True)


def batches(count: int, rows: int = 20_000, keys: int = 500, zipf: float = 0.8, seed: int = 1) -> list[Batch]:
    random = np.random.default_rng(seed)
    share = zipf_probabilities(keys, zipf)
    return [Batch.of(hash_int64(draw(share, rows, random)), COST) for _ in range(count)]


def compared(site: Site, stream: list[Batch]) -> dict[str, Result]:
    comparison = Comparison(site)
    for batch in stream:
        comparison.take(batch)
    return {result.policy: result for result in comparison.results()}


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    return compared(SITE, batches(30))


def test_plain_hashing_is_as_slow_as_a_plain_count_says(results: dict[str, Result]):
    stream = batches(30)
    table = RoutingTable.uniform(range(4))
    rates = []
    for batch in stream:
        rows = np.zeros(4)
        for key in batch.hashes.tolist():
            rows[table.lookup(np.array([key], np.uint64))[0]] += 1
        rates.append(len(batch.hashes) / max(rows * COST / SITE.cpu))
        if len(rates) == 2:
            break
    assert results["fields"].rows_per_second_of[:2] == pytest.approx(rates)
    assert results["fields"].imbalance_before is None
    assert results["fields"].rerouted_at == ()
    assert (results["fields"].keys_moved, results["fields"].entries, results["fields"].copies) == (0, 0, 1.0)


def test_the_bound_is_all_cores_over_the_cost_of_a_row(results: dict[str, Result]):
    comparison = Comparison(SITE)
    comparison.take(batches(1)[0])
    assert comparison.bound() == pytest.approx(3.3 / COST)
    for result in results.values():
        assert result.share_of_bound == pytest.approx(result.rows_per_second * COST / 3.3)
        assert result.share_of_bound <= 1 + 1e-9
    for policy in ("fields", "mixed"):  # steady ones, and without a merge: the median batch is as the mean
        assert results[policy].imbalance_after == pytest.approx(1 / results[policy].share_of_bound - 1, abs=0.02)


def test_a_planned_policy_is_re_planned_by_the_controller_and_wins(results: dict[str, Result]):
    mixed = results["mixed"]
    assert mixed.rerouted_at
    assert mixed.imbalance_before is not None
    assert mixed.imbalance_before > 0.9
    assert mixed.imbalance_after < SITE.rebalance.tolerance
    assert mixed.rows_per_second > 1.8 * results["fields"].rows_per_second
    assert 0 < mixed.keys_moved <= 500 * len(mixed.rerouted_at)
    assert mixed.bytes_moved == 64 * mixed.keys_moved
    first = mixed.rerouted_at[0]
    assert max(mixed.rows_per_second_of[:first]) < min(mixed.rows_per_second_of[first:])


def test_choosers_learn_capacities_and_split_keys(results: dict[str, Result]):
    for policy in ("shuffle", "partial-key"):
        assert results[policy].rerouted_at, policy
        assert results[policy].keys_moved == 0
        assert results[policy].copies > 1.1
    assert results["partial-key"].copies <= 2
    stateless = compared(replace(SITE, stateful=False), batches(30))
    assert stateless["shuffle"].share_of_bound > 0.95


def test_a_policy_that_splits_keys_pays_for_merging_them(results: dict[str, Result]):
    assert results["shuffle"].merging > results["partial-key"].merging > 0.01, "more copies, more parts"
    assert (results["mixed"].merging, results["fields"].merging) == (0.0, 0.0)
    stateless = compared(replace(SITE, stateful=False), batches(30))
    assert stateless["shuffle"].merging == 0.0
    assert stateless["shuffle"].rows_per_second > results["shuffle"].rows_per_second
    seldom = compared(replace(SITE, aggregate_every=5), batches(30))
    assert 0.0 < seldom["shuffle"].merging < results["shuffle"].merging / 2


def test_the_seconds_of_a_merge_are_those_of_a_plain_count():
    site = Site("counts", 2, (1.0, 0.5), "shuffle", combinable=True)
    batch = batches(1, rows=200, keys=20)[0]
    held = np.ones((len(batch.keys), 2), np.bool_)
    owner = RoutingTable.uniform(range(2)).lookup(batch.keys)
    slowest = max(2 * np.count_nonzero(owner == 0) / 1.0, 2 * np.count_nonzero(owner == 1) / 0.5)
    assert Merging(site).take(batch, held) == pytest.approx(slowest * COST)
    later = Merging(replace(site, aggregate_every=2))
    assert later.take(batch, held) == 0.0
    assert later.take(batch, held) == pytest.approx(slowest * COST), "a key that waits is one part"


def test_learning_policies_find_the_speeds_of_instances(results: dict[str, Result]):
    for policy in ("posg", "posg-merged", "earliest-finish"):
        rates = results[policy].rows_per_second_of
        assert rates[0] < 0.6 * results[policy].rows_per_second, "nothing is known of the slow instance yet"
        assert results[policy].rerouted_at == (), "it learns capacities itself"
        assert results[policy].copies > 1.1
    stateless = compared(replace(SITE, stateful=False), batches(30))
    assert stateless["earliest-finish"].share_of_bound > 0.95


def test_virtual_workers_leave_the_slow_instance_and_no_state_moves(results: dict[str, Result]):
    consistent = results["consistent"]
    assert consistent.rerouted_at
    assert consistent.imbalance_before is not None
    assert consistent.imbalance_before > 5 * consistent.imbalance_after
    assert (consistent.keys_moved, consistent.entries) == (0, 0)


def test_the_fastest_stands_first_and_the_same_batches_give_the_same():
    one, two = Comparison(SITE), Comparison(SITE)
    for batch in batches(8):
        one.take(batch)
        two.take(batch)
    assert one.results() == two.results()
    rates = [result.rows_per_second for result in one.results()]
    assert rates == sorted(rates, reverse=True)


def test_without_state_nothing_is_carried():
    results = compared(replace(SITE, stateful=False), batches(12))
    assert results["mixed"].keys_moved > 0
    assert results["mixed"].bytes_moved == 0


def test_instances_on_one_slot_share_it():
    results = compared(Site("counts", 4, (1.0, 1.0), "fields"), batches(3))
    pairs = compared(Site("counts", 2, (1.0, 1.0), "fields"), batches(3))
    assert results["fields"].share_of_bound == pytest.approx(pairs["fields"].share_of_bound, rel=0.02)
    few = compared(Site("counts", 2, (1.0, 1.0, 5.0), "fields"), batches(3))
    assert few["fields"] == pairs["fields"]


def test_keys_of_unequal_cost_are_weighed_by_what_they_cost():
    random = np.random.default_rng(1)
    stream = []
    for _ in range(30):
        keys = random.integers(0, 400, 20_000)
        stream.append(Batch.of(hash_int64(keys), np.where(keys < 8, 4e-4, 1e-5)))  # eight keys are half of the work
    results = compared(replace(SITE, cpu=(1.0,) * 4), stream)
    assert results["mixed"].imbalance_after < 0.1
    assert results["fields"].imbalance_after > results["mixed"].imbalance_after + 0.05


def test_policy_that_cannot_run_is_skipped_with_a_reason():
    alone = Comparison(replace(SITE, combinable=False))
    assert "cannot be combined" in alone.skipped["partial-key"]
    assert "mixed" not in alone.skipped
    keyless = Comparison(replace(SITE, has_key=False, stateful=False))
    assert "the operator has none" in keyless.skipped["fields"]
    keyless.take(batches(1)[0])
    assert keyless.results()[0].policy == "shuffle"


def test_a_policy_that_gives_up_is_skipped_and_the_others_continue():
    site = replace(SITE, policy="potc", options={"capacities": (1.0,)})
    comparison = Comparison(site, {policy: groupings.get(policy) for policy in ("potc", "fields")})
    for batch in batches(2):
        comparison.take(batch)
    assert "1 capacities" in comparison.skipped["potc"]
    assert [result.policy for result in comparison.results()] == ["fields"]


def test_the_manifests_own_settings_count():
    still = compared(replace(SITE, rebalance=Rebalance(tolerance=1.0)), batches(12, zipf=0.0))
    assert still["shuffle"].rerouted_at  # three times slower than the others: beyond even that tolerance
    wide = compared(replace(SITE, cpu=(1.0, 1.0, 1.0, 0.9), rebalance=Rebalance(tolerance=1.0)), batches(12, zipf=0.0))
    assert wide["mixed"].rerouted_at == ()


def test_fixed_seconds_are_of_every_instance_that_takes_part():
    site = Site("counts", 4, (1.0, 0.5), "fields", combinable=True, fixed_seconds=0.1)
    work = np.array([1.0, 1.0, 0.0, 0.0])
    assert site.stage_seconds(work) == pytest.approx(max((1.0 + 0.2) / 1.0, (1.0 + 0.2) / 0.5))
    assert site.stage_seconds(work, runs=work > 0) == pytest.approx(1.1 / 0.5)


def test_merge_at_home_has_no_part_of_the_home_itself():
    site = Site("counts", 2, (1.0, 0.5), "fields", combinable=True, fixed_seconds=0.1, most_part_seconds=1e-6)
    batch, homes = batches(1, rows=200, keys=20)[0], RoutingTable.uniform([1])
    everywhere = np.ones((len(batch.keys), 2), np.bool_)
    assert Merging(site).take(batch, everywhere, homes) == pytest.approx((len(batch.keys) * 1e-6 + 0.1) / 0.5)
    at_home = everywhere & np.array([False, True])
    assert Merging(site).take(batch, at_home, homes) == 0.0
