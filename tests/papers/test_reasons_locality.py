"""The reasons why sentences of locality-aware routing do not hold here; with another stream, or without state, they do."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from papers.reasons import shows

from streamtopology.lab.reproduce.experiments.locality.edges import FEW
from streamtopology.lab.reproduce.experiments.locality.reconfigure import RECONFIGURE
from streamtopology.lab.simulate.chain import Chain, counted, loads, locality
from streamtopology.lab.simulate.streams import draw, zipf_probabilities
from streamtopology.lab.simulate.tweets import Tweets
from streamtopology.routing.load.sketches.key_pairs import KeyPairSummary

TUPLES, SERVERS = 100_000, 6


def week() -> tuple[np.ndarray, np.ndarray]:
    return next(Tweets(TUPLES).weeks(1, np.random.default_rng(1)))


def heaviest(first: np.ndarray, second: np.ndarray, share: float) -> tuple[KeyPairSummary, float]:
    """The summary of this share of the distinct pairs, and the share of the tuples that they carry."""
    everything = KeyPairSummary(len(first))
    everything.update(first, second)
    few = KeyPairSummary(max(round(share * len(everything)), 1))
    few.update(first, second)
    _, counts = np.unique(np.stack([first, second]), axis=1, return_counts=True)
    return few, float(np.sort(counts)[-few.capacity :].sum() / counts.sum())


def local_share(few: KeyPairSummary, first: np.ndarray, second: np.ndarray) -> float:
    chain, _ = Chain.hashed(SERVERS, 1).planned(few)
    return locality(chain.traffic(first, second))


@shows("locality-edges", "0.1 % of the edges double")
def test_a_thousandth_of_the_pairs_is_enough_if_it_carries_a_fifth_of_the_tuples():
    first, second = week()
    few, carried = heaviest(first, second, FEW)
    assert carried < 0.1
    assert local_share(few, first, second) < 0.9 * 2 / SERVERS
    random = np.random.default_rng(2)
    pairs = random.integers(0, 2**64, (2, few.capacity), dtype=np.uint64)
    often, which = random.random(TUPLES) < 0.3, random.integers(few.capacity, size=TUPLES)
    first, second = np.where(often, pairs[0, which], first), np.where(often, pairs[1, which], second)
    few, carried = heaviest(first, second, FEW)
    assert carried > 0.2
    assert local_share(few, first, second) > 0.9 * 2 / SERVERS


@shows("locality-edges", "10^6 edges of a week")
def test_a_fifth_of_the_pairs_is_as_good_as_all_where_the_others_are_few_tuples():
    first, second = week()
    distinct = len(np.unique(np.stack([first, second]), axis=1).T)
    assert distinct > 0.7 * TUPLES  # nearly each pair comes once
    fifth, carried = heaviest(first, second, 0.19)
    everything, _ = heaviest(first, second, 1.0)
    assert carried < 0.4
    assert local_share(fifth, first, second) < local_share(everything, first, second) - 0.02
    again = draw(zipf_probabilities(TUPLES, 2.0), TUPLES, np.random.default_rng(3))  # some come often, as in Zipf-2
    first, second = first[again], second[again]
    fifth, carried = heaviest(first, second, 0.19)
    everything, _ = heaviest(first, second, 1.0)
    assert carried > 0.95
    assert local_share(fifth, first, second) > local_share(everything, first, second) - 0.02


def load_of_first_plan(wander: float, seed: int, weeks: int = 9) -> float:
    """The most loaded instance over the mean in the last two weeks, planned in the first."""
    chain, found = Chain.hashed(SERVERS, seed), list[float]()
    for number, (first, second) in enumerate(Tweets(30_000, wander=wander).weeks(weeks, np.random.default_rng(seed))):
        found.append(loads(chain.traffic(first, second))["instance_load"])
        if number == 0:
            chain, _ = chain.planned(counted(first, second, 1_000_000))
    return float(np.mean(found[-2:]))


@shows("locality-online", "offline stabilises around 40 % more than the mean")
def test_load_of_a_plan_that_is_never_renewed_is_the_wander_of_regions():
    seeds = (1, 101, 201, 301, 401)
    steady, usual, wild = ([load_of_first_plan(wander, seed) for seed in seeds] for wander in (0.0, 0.6, 1.2))
    assert max(steady) < 1.15
    assert min(usual) > max(steady)
    assert max(wild) - min(wild) > 0.5


@shows("locality-reconfigure", "the increase is noticeable immediately")
def test_the_first_minute_is_as_good_as_those_up_to_the_next_re_routing():
    given = {**RECONFIGURE.parameters, **RECONFIGURE.quick, "tuples": 20_000}
    every = int(given["reconfigure_every"])
    series = RECONFIGURE.measure(given, 1, 1, lambda share: None).series
    by_case: defaultdict[tuple[object, ...], list[float]] = defaultdict(list)
    for row in series:
        if row["policy"] == "reconfigured" and row["state"] == 100:
            by_case[row["servers"], row["padding"], row["link"]].append(float(row["throughput"]))
    first_periods = [values[every : 2 * every] for values in by_case.values()]
    assert min(values[0] / np.mean(values) for values in first_periods) >= 0.95


@shows("locality-reconfigure", "no reconfiguration impacts performance negatively")
def test_without_state_no_re_routing_lowers_the_throughput_of_a_minute():
    given = {**RECONFIGURE.parameters, **RECONFIGURE.quick, "tuples": 20_000, "state_bytes": [0, 100, 12_000, 1_000_000]}
    found = RECONFIGURE.measure(given, 1, 1, lambda share: None).summary
    assert found["lowest_after_with_0_B"] > 1
    assert found["lowest_after_with_1000000_B"] < found["lowest_after_with_0_B"]
    assert found["minute_lost_to_1000000_B"] > 0
