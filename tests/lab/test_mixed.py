"""mixed-routing's stream and experiments, small: what is measured is what the planners did."""

from __future__ import annotations

import numpy as np
import pytest

from streamtopology.lab.groupings import planners
from streamtopology.lab.groupings.readj import readj_at
from streamtopology.lab.reproduce.experiments import get
from streamtopology.lab.reproduce.experiments.mixed import MIXED
from streamtopology.lab.reproduce.experiments.mixed.adaptation import Setting, adaptations
from streamtopology.lab.reproduce.experiments.mixed.grid import KEYS
from streamtopology.lab.simulate.streams import swapped, swapped_at_random, zipf_counts
from streamtopology.routing.table.table import moved

SMALL = {
    "mixed-hash": {"over_instances": [5, 15, 40], "over_keys": [1_000, KEYS], "intervals": 3},
    "mixed-instances": {"over_instances": [5, 15, 20], "keys": 1_000, "over_keys": [500], "intervals": 3},
    "mixed-theta": {"over_theta": [0.0, 0.08], "keys": 1_000, "intervals": 3},
    "mixed-keys": {"over_keys": [1_000, 2_000], "intervals": 3},
    "mixed-compact": {"keys": 3_000, "over_degrees": [1, 8], "intervals": 3},
    "mixed-dynamics": {"over_fluctuation": [0.5, 1.0], "keys": 1_000, "intervals": 2, "sigmas": [0.1, 0.02]},
    "mixed-table": {"adjustments": 30, "keys": 1_000, "over_theta": [0.08], "over_beta": [1.0], "intervals": 3},
    "mixed-beta": {"over_beta": [1.0, 1.5, 2.0], "keys": 1_000, "intervals": 3},
    "mixed-window": {"over_windows": [1, 3], "keys": 1_000, "intervals": 4},
    "mixed-scaleout": {"streams": {"few": 1_000}, "intervals": 3, "sigmas": [0.1, 0.02]},
}


@pytest.mark.parametrize("change", [0.1, 1.0, 2.0])
def test_swaps_grow_one_instance_by_what_was_asked_and_keep_the_distribution(change):
    rng = np.random.default_rng(1)
    counts = rng.permutation(zipf_counts(5_000, 0.5, 500_000))
    owners = rng.integers(0, 15, 5_000).astype(np.int32)
    mean = counts.sum() / 15
    after = swapped(counts, owners, 3, change * mean, rng)
    assert np.array_equal(np.sort(after), np.sort(counts))
    before_load, after_load = (np.bincount(owners, values, 15) for values in (counts, after))
    grown = after_load - before_load
    assert change * mean <= grown[3] <= change * mean + counts.max()
    assert (np.delete(grown, 3) <= 0).all()


@pytest.mark.parametrize("change", [0.05, 0.2, 100.0])
def test_random_swaps_end_with_the_first_instance_that_has_changed_enough(change):
    rng = np.random.default_rng(2)
    counts = rng.permutation(zipf_counts(5_000, 0.5, 500_000))
    owners = rng.integers(0, 15, 5_000).astype(np.int32)
    mean = counts.sum() / 15
    after = swapped_at_random(counts, owners, change * mean, rng)
    assert np.array_equal(np.sort(after), np.sort(counts))
    changes = np.sort(np.abs(np.bincount(owners, after, 15) - np.bincount(owners, counts, 15)))
    assert changes[-1] <= change * mean + counts.max()
    assert changes[-1] >= change * mean or change == 100.0, "after as many swaps as keys they end in any case"
    assert changes[-3] < change * mean, "two at most have changed as much: those of the last swap"


def test_swaps_end_where_nothing_more_can_be_gained():
    counts, owners = np.array([5, 4, 1, 1]), np.array([0, 0, 1, 1], np.int32)
    rng = np.random.default_rng(1)
    assert np.array_equal(swapped(counts, owners, 0, 100.0, rng), counts)
    assert sorted(swapped(counts, owners, 1, 100.0, rng)[2:]) == [4, 5]


def test_the_loop_measures_what_the_plans_do():
    setting = Setting(keys=2_000, instances=5, intervals=8, window=3)
    previous = None
    for interval in adaptations(planners.get("mixed"), setting, seed=4):
        given = interval.given
        if previous is not None:
            assert given.current == previous.table
            assert given.key_state.sum() <= 3 * given.key_loads.sum() + 1e-6
        changed, _, _ = moved(given.current, interval.table, given.key_hashes)
        assert interval.migration == pytest.approx(given.key_state[changed].sum() / given.key_state.sum())
        loads = np.bincount(interval.table.lookup(given.key_hashes), given.key_loads, 5)
        assert loads.max() <= 1.08 * loads.mean() * (1 + 1e-9)
        previous = interval


def test_the_stream_is_the_same_for_the_same_seed_and_another_for_another():
    setting = Setting(keys=500, instances=3, intervals=3)
    first, again, other = (list(adaptations(planners.get("mixed"), setting, seed)) for seed in (1, 1, 2))
    assert [i.table for i in first] == [i.table for i in again]
    assert [i.table for i in first] != [i.table for i in other]


def test_every_row_of_the_claims_on_the_simulator_is_there():
    assert {experiment.id for experiment in MIXED} == set(SMALL)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_an_experiment_runs_and_its_rows_are_alike(name):
    shares: list[float] = []
    result = get(name).carry_out(SMALL[name], shares.append, quick=True, runs=1)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    assert len({tuple(row) for row in result["series"]}) == 1
    assert result["claims"]
    assert all(np.isfinite(value) for value in result["summary"].values())
    for plot in get(name).plots:
        drawn = [row for row in result["series"] if all(row[key] == value for key, value in plot.only.items())]
        assert drawn, plot.title
        assert {plot.x, plot.y, plot.line} <= set(drawn[0])


def test_dynamics_reports_the_sigma_that_serves_readj_best():
    row = next(
        row
        for row in get("mixed-dynamics").carry_out(
            {
                "over_fluctuation": [1.0],
                "keys": 1_000,
                "intervals": 3,
                "sigmas": [0.5, 0.005],
                "planners": ["mixed", "mixed-bf"],
            },
            lambda _: None,
            runs=1,
        )["series"]
        if row["planner"] == "readj"
    )
    assert row["sigma"] == 0.005
    for interval in adaptations(lambda given: readj_at(given, 0.5), Setting(keys=1_000, intervals=1), seed=1):
        assert interval.plan is not None
        assert not interval.plan.theta_reached
