"""locality-edges: how many key pairs must be counted, by parallelism (figure 12): a plan of one week, held to the next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row, Summary
from streamtopology.lab.reproduce.experiments.locality.online import STAND_IN
from streamtopology.lab.simulate.chain import Chain, locality
from streamtopology.lab.simulate.tweets import Tweets
from streamtopology.routing.load.sketches.key_pairs import KeyPairSummary

Hashes = npt.NDArray[np.uint64]

# The share of all edges with which the paper doubles locality at 6 servers.
FEW = 0.001


def _measure(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    parallelism = [int(servers) for servers in parameters["parallelism"]]
    bounds = [int(bound) for bound in parameters["edges"]]
    found: defaultdict[tuple[int, str], list[tuple[int, float]]] = defaultdict(list)
    for run in range(runs):
        tweets = Tweets(int(parameters["tuples"])).weeks(2, np.random.default_rng(seed + run))
        collected, following = next(tweets), next(tweets)
        for done, (name, pairs) in enumerate(_summaries(*collected, int(parameters["batch"]), bounds)):
            for servers in parallelism:
                chain, _ = Chain.hashed(servers, seed + run).planned(pairs)
                found[servers, name].append((len(pairs), locality(chain.traffic(*following))))
            progress((run + (done + 1) / (len(bounds) + 2)) / runs)
    means = {point: np.mean(values, axis=0).tolist() for point, values in found.items()}
    series: list[Row] = [
        {"servers": servers, "edges": edges, "locality": local} for (servers, _), (edges, local) in sorted(means.items())
    ]
    at_most = {name: tuple(point) for (servers, name), point in means.items() if servers == max(parallelism)}
    by_servers = [means[servers, "all"][1] for servers in sorted(parallelism)]
    summary: Summary = {
        "hash": 1 / max(parallelism),
        "distinct_edges": at_most["all"][0],
        "few_edges": at_most["few"][1],
        "most_edges": at_most[str(max(bounds))][1],
        "all_edges": at_most["all"][1],
        "largest_step_back": max(0.0, *(fewer[1] - more[1] for fewer, more in pairwise(sorted(at_most.values())))),
        "rises_with_servers": max(0.0, *(more - fewer for fewer, more in pairwise(by_servers))),
    }
    return Measured(series, summary)


def _summaries(first: Hashes, second: Hashes, batch: int, bounds: list[int]) -> Iterator[tuple[str, KeyPairSummary]]:
    """The week's pairs, batch by batch with memory for each number of pairs; at last with room for all."""
    everything = KeyPairSummary(len(first))
    everything.update(first, second)
    few = max(round(FEW * len(everything)), 1)
    for name, bound in [*((str(bound), bound) for bound in bounds), ("few", few)]:
        pairs = KeyPairSummary(bound)
        for start in range(0, len(first), batch):
            pairs.update(first[start : start + batch], second[start : start + batch])
        yield name, pairs
    yield "all", everything


EDGES = Experiment(
    id="locality-edges",
    title="Locality over the number of key pairs kept",
    source="locality-aware routing, section 4.3, figure 12",
    parameters={
        "tuples": 5_770_000,
        "batch": 100_000,
        "edges": [1_000, 10_000, 100_000, 1_000_000],
        "parallelism": [2, 3, 4, 5, 6],
    },
    quick={"tuples": 300_000, "batch": 20_000, "edges": [50, 500, 5_000, 52_000], "parallelism": [2, 6]},
    runs=1,
    quick_runs=1,
    measure=_measure,
    claims=(
        Claim(
            "0.1 % of the edges double the locality of hashing at 6 servers (within a tenth)",
            lambda found: found["few_edges"] >= 0.9 * 2 * found["hash"],
            {"few_edges": 2 / 6},
            "It needs a fifth of the tuples in 0.1 % of the pairs; in the stand-in, nearly each of whose pairs comes once (5.2"
            " million in 5.77 million tuples), they carry 1.4 %.",
        ),
        Claim(
            "10^6 edges of a week of 5.77 million tuples (quick: as many in proportion) are enough: within 2 points of all",
            lambda found: found["most_edges"] >= found["all_edges"] - 0.02,
            why_not="10^6 edges are a fifth of the 5.2 million pairs that the stand-in has in a week; how many the paper's week"
            " has, and what all of them would give, it does not say.",
        ),
        Claim(
            "information on more pairs of keys results in better locality (no step back of more than a point)",
            lambda found: found["largest_step_back"] <= 0.01,
        ),
        Claim("locality falls with parallelism", lambda found: found["rises_with_servers"] == 0),
    ),
    plots=(Plot(title="Locality over the number of edges kept", x="edges", y="locality", line="servers", log_x=True),),
    stand_in=STAND_IN,
)
