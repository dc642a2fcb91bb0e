"""mixed-hash: how uneven plain hashing is (figure 7).

The text leaves two things open, so each is measured both ways. The stream: frequencies are swapped between keys of different
instances at random, or such that one instance grows, as in the other rows. The average over the intervals: of an instance,
or of a rank (the least loaded instance of each interval, the second, and so on).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import numpy.typing as npt

from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row
from streamtopology.lab.reproduce.experiments.mixed.adaptation import TUPLES_PER_KEY, Counts, Setting
from streamtopology.lab.reproduce.experiments.mixed.grid import DEFAULTS, KEYS, only
from streamtopology.lab.simulate.streams import swapped, swapped_at_random, zipf_counts
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import BUCKETS, RoutingTable

PERCENTILES = (0, 25, 50, 75, 100)

Owners = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

# (counts, owners, change in tuples, rng) -> the counts of the next interval.
Swaps = Callable[[Counts, Owners, float, np.random.Generator], Counts]


def _one_grows(counts: Counts, owners: Owners, change: float, rng: np.random.Generator) -> Counts:
    return swapped(counts, owners, int(rng.integers(int(owners.max()) + 1)), change, rng)


STREAMS: Mapping[str, Swaps] = {"random swaps": swapped_at_random, "one grows": _one_grows}

# Loads float64[intervals, instances] -> the average loads, ascending.
AVERAGES: Mapping[str, Callable[[Floats], Floats]] = {
    "rank": lambda loads: np.sort(loads, axis=1).mean(axis=0),
    "instance": lambda loads: np.sort(loads.mean(axis=0)),
}


def measure(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Load per instance over the mean, averaged over the intervals."""
    sizes: list[tuple[int, int]] = list(product(parameters["over_instances"], parameters["over_keys"]))
    cases = [(instances, keys, stream) for instances, keys in sizes for stream in STREAMS]
    series: list[Row] = []
    for number, (instances, keys, stream) in enumerate(cases):
        measured = [_loads(instances, keys, STREAMS[stream], parameters, seed + run) for run in range(runs)]
        for average, averaged in AVERAGES.items():
            loads = np.mean([averaged(one) for one in measured], axis=0)
            series += [
                {
                    "instances": instances,
                    "keys": keys,
                    "stream": stream,
                    "average": average,
                    "percentile": percentile,
                    "load": float(np.percentile(loads, percentile)),
                }
                for percentile in PERCENTILES
            ]
        progress((number + 1) / len(cases))

    def spread(instances: int, keys: int, average: str = "rank", stream: str = "random swaps") -> float:
        where = {"instances": instances, "keys": keys, "average": average, "stream": stream}
        highest, lowest = (only(series, "load", percentile=p, **where) for p in (100, 0))
        return highest / lowest

    few, many, keys = min(parameters["over_keys"]), max(parameters["over_keys"]), parameters["keys"]
    least, usual, most = min(parameters["over_instances"]), Setting.instances, max(parameters["over_instances"])
    summary = {
        "max_to_min_most_instances": spread(most, keys),
        "max_to_min_of_an_instance": spread(most, keys, average="instance"),
        "max_to_min_one_grows": spread(most, keys, stream="one grows"),
        "max_to_min_of_an_instance_one_grows": spread(most, keys, average="instance", stream="one grows"),
        "max_to_min_fewest_instances": spread(least, keys),
        "max_to_min_most_instances_fewest_keys": spread(most, few),
        "max_to_min_most_instances_most_keys": spread(most, many),
        "max_to_min_fewest_keys": spread(usual, few),
        "max_to_min_most_keys": spread(usual, many),
    }
    return Measured(series, summary)


def _loads(instances: int, keys: int, swaps: Swaps, parameters: Parameters, seed: int) -> Floats:
    """float64[intervals, instances]: loads over their mean."""
    rng = np.random.default_rng(seed)
    table = RoutingTable.uniform(range(instances), BUCKETS, seed)
    owners = table.lookup(hash_int64(np.arange(keys) + int(rng.integers(2**40))))
    counts = rng.permutation(zipf_counts(keys, parameters["zipf"], keys * TUPLES_PER_KEY))
    mean = float(counts.sum()) / instances
    loads: list[Floats] = []
    for _ in range(parameters["intervals"]):
        loads.append(np.bincount(owners, counts, instances) / mean)
        counts = swaps(counts, owners, parameters["fluctuation"] * mean, rng)
    return np.array(loads)


_AS_JUDGED = {"stream": "random swaps", "average": "rank"}

MIXED_HASH = Experiment(
    id="mixed-hash",
    title="Load of the instances under plain hashing",
    source="mixed-routing, section 5, figure 7",
    parameters={
        "over_instances": [5, 10, 15, 20, 40],
        "over_keys": [5_000, 10_000, 100_000, KEYS, 1_000_000],
        "keys": KEYS,
        "zipf": DEFAULTS["zipf"],
        "fluctuation": DEFAULTS["fluctuation"],
        "intervals": 50,
    },
    quick={"over_instances": [5, 15, 40], "over_keys": [5_000, 10_000, KEYS], "intervals": 10},
    runs=1,
    quick_runs=1,
    measure=measure,
    claims=(
        Claim(
            "With 40 instances the maximal load is almost 2.5 times the minimal one (2 to 3), averaged by rank",
            lambda s: 2 <= s["max_to_min_most_instances"] <= 3,
            {"max_to_min_most_instances": 2.5},
        ),
        Claim(
            "With 40 instances the maximal load is almost 2.5 times the minimal one (2 to 3), averaged by instance",
            lambda s: 2 <= s["max_to_min_of_an_instance"] <= 3,
            {"max_to_min_of_an_instance": 2.5},
            "An instance's highs and lows cancel over 50 intervals of random swaps. Where one instance at a time grows, as in"
            " the other rows, the ratio is above 3 by either average.",
        ),
        Claim(
            "The skew grows with the number of instances",
            lambda s: s["max_to_min_most_instances"] > s["max_to_min_fewest_instances"],
        ),
        Claim(
            "Fewer keys in the domain are more unbalanced than many",
            lambda s: s["max_to_min_fewest_keys"] > s["max_to_min_most_keys"],
        ),
    ),
    plots=(
        Plot("Load over instances", "percentile", "load", "instances", only={"keys": KEYS, **_AS_JUDGED}),
        Plot("Load over keys", "percentile", "load", "keys", only={"instances": 15, **_AS_JUDGED}),
        Plot("Load by instance", "percentile", "load", "instances", only={"keys": KEYS, **_AS_JUDGED, "average": "instance"}),
    ),
)
