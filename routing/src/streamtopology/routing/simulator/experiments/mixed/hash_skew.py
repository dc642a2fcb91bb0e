"""mixed-hash: how uneven plain hashing is (figure 7)."""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt

from streamtopology.routing.hashing import hash_int64
from streamtopology.routing.simulator.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row
from streamtopology.routing.simulator.experiments.mixed.adaptation import TUPLES_PER_KEY, Setting
from streamtopology.routing.simulator.experiments.mixed.grid import DEFAULTS, only
from streamtopology.routing.simulator.streams import zipf_counts
from streamtopology.routing.table import BUCKETS, RoutingTable

PERCENTILES = (0, 25, 50, 75, 100)


def measure(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Load per instance over the mean, sorted and averaged over the intervals; each interval deals the counts to keys anew."""
    cases = list(product(parameters["over_instances"], parameters["over_keys"]))
    series: list[Row] = []
    for number, (instances, keys) in enumerate(cases):
        loads = np.mean([_sorted_loads(instances, keys, parameters, seed + run) for run in range(runs)], axis=0)
        for percentile in PERCENTILES:
            share = float(np.percentile(loads, percentile))
            series.append({"instances": instances, "keys": keys, "percentile": percentile, "load": share})
        progress((number + 1) / len(cases))

    def spread(instances: int, keys: int) -> float:
        highest, lowest = (only(series, "load", percentile=p, instances=instances, keys=keys) for p in (100, 0))
        return highest / lowest

    few, default, many = min(parameters["over_keys"]), Setting.keys, max(parameters["over_keys"])
    least, usual, most = min(parameters["over_instances"]), Setting.instances, max(parameters["over_instances"])
    summary = {
        "max_to_min_most_instances": spread(most, default),
        "max_to_min_fewest_instances": spread(least, default),
        "max_to_min_most_instances_most_keys": spread(most, many),
        "max_to_min_fewest_keys": spread(usual, few),
        "max_to_min_most_keys": spread(usual, many),
    }
    return Measured(series, summary)


def _sorted_loads(instances: int, keys: int, parameters: Parameters, seed: int) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    table = RoutingTable.uniform(range(instances), BUCKETS, seed)
    owners = table.lookup(hash_int64(np.arange(keys) + int(rng.integers(2**40))))
    counts = zipf_counts(keys, parameters["zipf"], keys * TUPLES_PER_KEY).astype(np.float64)
    loads = [np.sort(np.bincount(owners, rng.permutation(counts), instances)) for _ in range(parameters["intervals"])]
    return np.mean(loads, axis=0) * instances / counts.sum()


MIXED_HASH = Experiment(
    id="mixed-hash",
    title="Load of the instances under plain hashing",
    source="mixed-routing, section 5, figure 7",
    parameters={
        "over_instances": [5, 10, 15, 20, 40],
        "over_keys": [5_000, 10_000, 100_000, 1_000_000],
        "zipf": DEFAULTS["zipf"],
        "intervals": 50,
    },
    quick={"over_instances": [5, 15, 40], "over_keys": [5_000, 10_000, 100_000], "intervals": 10},
    runs=5,
    quick_runs=1,
    measure=measure,
    claims=(
        Claim(
            "With 40 instances the maximal load is almost 2.5 times the minimal one (2 to 3)",
            lambda s: 2 <= s["max_to_min_most_instances"] <= 3,
            {"max_to_min_most_instances": 2.5},
            "With 10,000 keys the most frequent one alone has twice the mean load of 40 instances; the text has lost which |K|"
            " the figure has, and with 1 million keys the ratio is 2.3.",
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
        Plot("Load over instances", "percentile", "load", "instances", only={"keys": 10_000}),
        Plot("Load over keys", "percentile", "load", "keys", only={"instances": 15}),
    ),
)
