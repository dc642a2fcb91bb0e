"""The reasons why sentences of DKG's paper do not hold here, or not with every seed."""

from __future__ import annotations

import numpy as np
import pytest
from papers.reasons import shows

from streamtopology.lab.reproduce.experiments.dkg.instances import DKG_SIGMA
from streamtopology.lab.reproduce.experiments.dkg.parameters import DKG_MU, DKG_THETA
from streamtopology.lab.reproduce.experiments.dkg.related import DKG_PKG
from streamtopology.lab.reproduce.experiments.dkg.solutions import Contest, TupleContest, imbalance
from streamtopology.lab.reproduce.experiments.dkg.streams import Stream, draw_stream
from streamtopology.lab.simulate.streams import zipf_probabilities
from streamtopology.routing.planners.dkg import DkgSettings
from streamtopology.routing.table.table import bucket_of

pytestmark = pytest.mark.long

# The five most frequent items after the first.
NEXT = slice(1, 6)


def drawn(parameters: dict[str, object], alpha: float, run: int) -> tuple[Stream, np.random.Generator]:
    rng = np.random.default_rng([7, round(1000 * alpha), run])
    return draw_stream(zipf_probabilities(10_000, alpha), parameters, rng), rng


def with_the_first(stream: Stream, buckets: int) -> np.ndarray:
    """bool[items]: in the bucket of the most frequent item, which is item 0."""
    of = bucket_of(stream.hashes, buckets)
    return of == of[0]


@shows("dkg-mu", "Zipf-2: the worst case")
def test_worst_case_at_zipf_2_is_what_shares_the_first_items_bucket():
    shares, crowded = dict[int, list[float]](), dict[int, float]()
    for mu in (1, 10):
        excess, others = list[float](), list[bool]()
        for run in range(150):
            stream, _ = drawn(dict(DKG_MU.parameters), 2.0, run)
            beside = with_the_first(stream, 2 * mu)
            heaviest = stream.validation[beside].sum() / stream.validation.sum()
            found = imbalance(Contest(stream, 2).dkg(stream.sketch(0.5), DkgSettings(1.0, 0.5, mu)))
            assert abs(found - (200 * heaviest - 100)) < 1e-6  # nothing but what is in that bucket decides
            excess.append(found)
            others.append(beside[NEXT].sum() >= 2)
        shares[mu], crowded[mu] = excess, float(np.mean(others))
        worst = int(np.argmax(excess))
        assert mu > 1 or others[worst]
    assert crowded[1] > 0.5
    assert crowded[10] < 0.1
    assert max(shares[10]) < 0.8 * max(shares[1])


@shows("dkg-mu", "Zipf-1: the worst case")
def test_more_buckets_even_out_the_worst_mapping_of_zipf_1_as_they_do_the_mean():
    found = {
        mu: [
            imbalance(Contest(stream, 2).dkg(stream.sketch(0.5), DkgSettings(1.0, 0.5, mu)))
            for stream in (drawn(dict(DKG_MU.parameters), 1.0, run)[0] for run in range(60))
        ]
        for mu in (1, 10)
    }
    assert zipf_probabilities(10_000, 1.0)[0] < 0.11
    assert np.mean(found[10]) < 0.5 * np.mean(found[1])
    assert max(found[10]) < 0.5 * max(found[1])


@shows("dkg-theta", "Zipf-1: smaller theta")
def test_smaller_theta_improves_zipf_1_by_the_second_and_third_item():
    found = dict[float, list[float]]()
    for theta in (0.1, 0.05):
        settings = DkgSettings(theta, None, 1)
        found[theta] = []
        for run in range(60):
            stream, _ = drawn(dict(DKG_THETA.parameters), 1.0, run)
            sketch = stream.sketch(settings.precision)
            hitters, _ = stream.learnt(sketch, 2).heavy_hitters(theta)
            assert set(hitters.tolist()) <= set(stream.hashes[: 1 if theta == 0.1 else 3].tolist())
            found[theta].append(imbalance(Contest(stream, 2).dkg(sketch, settings)))
    assert np.mean(found[0.05]) < 0.75 * np.mean(found[0.1])
    assert np.mean(found[0.1]) - np.mean(found[0.05]) < 4  # points of lambda


@shows("dkg-sigma", "Universal spans from 2800 to 9600")
def test_universals_extremes_need_more_repetitions_than_a_seeds():
    """A fifth of 4,000: the span of the frequent items' mappings, drawn often, is that of the paper within a bin."""
    rng = np.random.default_rng(1)
    shares = zipf_probabilities(10_000, 2.0)[:60]
    sides = rng.integers(0, 2, (60_000, 60)) * 2 - 1
    sigma = 10_000 * np.abs(sides @ shares)  # of two instances: half of their difference, in tuples of 20,000
    often, a_seeds = 4_000, 800
    reached = [[part.max() >= 9_400 for part in np.array_split(sigma, 60_000 // size)] for size in (often, a_seeds)]
    assert np.mean(reached[0]) > 0.99
    assert np.mean(reached[1]) < 1
    assert DKG_SIGMA.runs == often


@shows("dkg-pkg", "DKG worst is better than PKG's")
def test_pkgs_worst_case_is_the_first_item_with_one_choice_which_ties_with_dkgs():
    """At k = 10 the two functions name one instance for the first item in a tenth of the runs; DKG's worst is as bad."""
    k, settings = 10, DkgSettings(DKG_PKG.parameters["theta"], None, DKG_PKG.parameters["mu"])
    alone, dkg = list[float](), list[float]()
    for run in range(200):
        stream, rng = drawn(dict(DKG_PKG.parameters), DKG_PKG.parameters["alpha"], run)
        found = imbalance(TupleContest(stream.validation_in_order(rng), k).partial_key_of_its_authors())
        dkg.append(imbalance(Contest(stream, k).dkg(stream.sketch(settings.precision), settings)))
        if found > 100 * (k * 0.6 - 1):  # all of the first item on one instance
            alone.append(found)
    assert 5 < len(alone) < 40
    assert abs(np.median(alone) - max(dkg)) < 20
