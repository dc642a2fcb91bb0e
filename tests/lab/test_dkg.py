"""DKG's experiments: the streams and solutions they are made of, and small runs of each row."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from streamtopology.lab.reproduce.experiments import EXPERIMENTS
from streamtopology.lab.reproduce.experiments.dkg import DKG
from streamtopology.lab.reproduce.experiments.dkg.related import learn_in_parallel
from streamtopology.lab.reproduce.experiments.dkg.solutions import (
    Contest,
    TupleContest,
    choose_less_loaded,
    deviation,
    imbalance,
)
from streamtopology.lab.reproduce.experiments.dkg.streams import Stream, draw_stream
from streamtopology.lab.simulate.streams import zipf_probabilities
from streamtopology.routing.planners.dkg import DkgSettings
from streamtopology.routing.table.hashing import hash_int64

SMALL = {"items": 300, "universe": 100, "learning": 5_000, "validation": 2_000, "batch": 700}


def small_stream(alpha: float = 2.0, seed: int = 1) -> Stream:
    return draw_stream(zipf_probabilities(SMALL["items"], alpha), SMALL, np.random.default_rng(seed))


def by_hand(validation: list[int]) -> Stream:
    return Stream(np.arange(len(validation)), np.array([validation]), np.array(validation))


class SpaceSavingTupleByTuple:
    """Metwally et al.: the paper's sketch, with a linear search for the least counter."""

    def __init__(self, counters: int) -> None:
        self.counters, self.counts = counters, dict[int, int]()

    def update(self, item: int) -> None:
        if item in self.counts or len(self.counts) < self.counters:
            self.counts[item] = self.counts.get(item, 0) + 1
        else:
            victim = min(self.counts, key=lambda kept: (self.counts[kept], kept))
            self.counts[item] = self.counts.pop(victim) + 1


@pytest.mark.parametrize("alpha", [1.0, 2.0, 3.0])
def test_learning_by_batches_finds_the_heavy_hitters_that_learning_by_tuples_does(alpha):
    stream = small_stream(alpha)
    rng = np.random.default_rng(4)
    tuple_by_tuple = SpaceSavingTupleByTuple(20)
    for item in rng.permutation(np.repeat(stream.hashes, stream.learning.sum(axis=0))).tolist():
        tuple_by_tuple.update(item)
    theta, total = 0.1, stream.learning.sum()
    papers = {item: n for item, n in tuple_by_tuple.counts.items() if n >= theta * total}
    ours = dict(zip(*(part.tolist() for part in stream.learnt(stream.sketch(0.05), 4).heavy_hitters(theta)), strict=True))
    exact = dict(zip(stream.hashes.tolist(), stream.learning.sum(axis=0).tolist(), strict=True))
    assert {item for item, n in exact.items() if n >= theta * total} <= set(ours) <= set(papers)
    for item, estimate in ours.items():
        assert exact[item] <= estimate <= exact[item] + 0.05 * total


def test_a_stream_is_as_drawn():
    stream = small_stream()
    assert stream.learning.shape == (8, 300)
    assert stream.learning.sum(axis=1).tolist() == [700] * 7 + [100]
    assert stream.validation.sum() == 2_000
    assert len(set(stream.keys.tolist())) == 300
    assert 0 <= stream.keys.min() <= stream.keys.max() < 30_000
    in_order = stream.validation_in_order(np.random.default_rng(1)).tolist()
    assert Counter(in_order) == {h: n for h, n in zip(stream.hashes.tolist(), stream.validation.tolist(), strict=True) if n}


def test_the_metrics_are_the_papers():
    assert imbalance(np.array([3.0, 1.0, 1.0, 1.0])) == pytest.approx(100)
    assert imbalance(np.array([20.0, 0.0])) == pytest.approx(100)
    assert deviation(np.array([3.0, 1.0])) == 1


def test_solutions_on_a_stream_by_hand():
    contest = Contest(by_hand([60, 20, 10, 10]), 2)
    assert sorted(contest.optimum().tolist()) == [40, 60]
    assert contest.single().tolist() == [100, 0]
    assert contest.modulo().tolist() == [70, 30]
    squared = Contest(by_hand([60, 20, 10, 10]), 2, power=2)
    assert sorted(squared.optimum().tolist()) == [600, 3600]


def test_every_solution_loads_the_instances_with_all_of_the_validation_set():
    stream, settings = small_stream(), DkgSettings()
    sketch = stream.sketch(settings.precision)
    for k in (1, 2, 5):
        contest = Contest(stream, k)
        tuples = TupleContest(stream.validation_in_order(np.random.default_rng(2)), k)
        given = stream.learnt(sketch, 2 * k).plan_input(k, settings)
        for loads in (
            contest.optimum(),
            contest.modulo(),
            contest.universal(),
            contest.dkg(sketch, settings),
            contest.without_sparse_items(sketch, settings),
            tuples.partial_key(),
            tuples.partial_key_of_its_authors(),
            tuples.dkg_partial_key(given),
        ):
            assert loads.sum() == 2_000
            assert len(loads) == k
        assert contest.optimum().max() <= contest.dkg(sketch, settings).max()


def test_the_less_loaded_of_two_is_chosen_tuple_by_tuple():
    rng = np.random.default_rng(3)
    first, second = rng.integers(0, 5, (2, 500)).astype(np.int32)
    loads = [0.0] * 5
    for one, other in zip(first.tolist(), second.tolist(), strict=True):
        loads[other if loads[other] < loads[one] else one] += 1
    assert choose_less_loaded(first, second, 5).tolist() == loads


def test_pkg_of_its_authors_gives_a_key_two_instances_that_may_be_one():
    hashes = hash_int64(np.arange(1_000))
    alone = [int((TupleContest(np.repeat(hash_, 10), 2).partial_key_of_its_authors() > 0).sum()) for hash_ in hashes]
    assert 400 < alone.count(1) < 600


@pytest.mark.parametrize("deal", ["at random", "by key"])
def test_parallel_learners_share_out_all_tuples(deal):
    stream = small_stream()
    together = learn_in_parallel(stream, 5, deal, 0.05, 6, np.random.default_rng(1))
    alone = stream.learnt(stream.sketch(0.05), 6)
    assert together.buckets.tolist() == alone.buckets.tolist()
    assert together.sketch.total == alone.sketch.total
    assert set(together.heavy_hitters(0.1)[0].tolist()) >= set(alone.heavy_hitters(0.11)[0].tolist())


def test_experiments_are_deterministic_and_differ_by_the_seed():
    small = {"instances": [2, 3], "items": 500, "learning": 4_000, "validation": 2_000}

    def result(seed: int) -> dict:
        return EXPERIMENTS["dkg-k"].carry_out(small, lambda _: None, quick=True, runs=3, seed=seed)

    assert result(1) == result(1)
    assert result(1)["series"] != result(2)["series"]


@pytest.mark.parametrize("experiment", DKG, ids=lambda experiment: experiment.id)
def test_a_small_run_of_each_row_gives_finite_figures_for_every_claim_and_plot(experiment):
    shares: list[float] = []
    result = experiment.carry_out({}, shares.append, quick=True, runs=2)
    assert EXPERIMENTS[experiment.id] is experiment
    assert json.loads(json.dumps(result)) == result
    assert np.isfinite(list(result["summary"].values())).all()
    assert set(result["paper"]) <= set(result["summary"])
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    for plot in experiment.plots:
        drawn = [row for row in result["series"] if all(row[name] == value for name, value in plot.only.items())]
        assert drawn
        assert {plot.x, plot.y, plot.line} <= set(drawn[0])


def test_dkg_is_near_the_optimum_and_hashing_is_not():
    result = EXPERIMENTS["dkg-k"].carry_out({"instances": [2, 5, 10]}, lambda _: None, runs=40)
    summary = result["summary"]
    assert summary["DKG mean: slope"] == pytest.approx(60.7, rel=0.02)
    assert summary["DKG mean: offset"] == pytest.approx(-100, rel=0.02)
    assert summary["Universal mean over DKG mean, least points"] > 20


def test_dkg_with_pkg_is_best():
    summary = EXPERIMENTS["dkg-pkg"].carry_out({"instances": [2, 10]}, lambda _: None, runs=60)["summary"]
    assert summary["DKG mean over DKG PKG mean, least points"] > 15
    assert summary["PKG mean over DKG PKG mean, least points"] > 15
    assert summary["PKG worst over DKG PKG worst, least points"] > 15
