"""fish-drift: FISH against W-Choices and others on a stream whose hot keys change, and on one whose stay.

Tuples come at equal intervals, and an instance works its own off in their order: what a tuple waits follows exactly from the
instances that were chosen. A scheme is one router that lives as long as the stream, as in the paper, or, as on Spark, several
that start from nothing with every micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numba import njit

from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row
from streamtopology.lab.reproduce.experiments.beyond.routers import Route, alone, by_batches
from streamtopology.lab.reproduce.experiments.beyond.streams import Items, intervals_of, n_keys_of
from streamtopology.lab.reproduce.trace import KEYS
from streamtopology.routing.table.hashing import hash_int64

STAYS, CHANGES = "stays", "changes"


@njit(cache=True, nogil=True)
def waits(chosen: Any, k: int, interval: float) -> Any:
    """float64[n]: from each tuple's coming until it is done, in the time that one takes; tuple i comes at i * `interval`."""
    free, waited = np.zeros(k), np.empty(len(chosen))
    for i in range(len(chosen)):
        came = i * interval
        free[chosen[i]] = max(free[chosen[i]], came) + 1.0
        waited[i] = free[chosen[i]] - came
    return waited


def drift(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """A row for each stream and scheme: means over runs."""
    k = int(parameters["instances"])
    schemes: dict[str, Callable[[int], Route]] = {
        **{policy: lambda one, policy=policy: alone(policy, k, one) for policy in parameters["policies"]},
        **{
            f"{policy}, in batches": lambda _, policy=policy: by_batches(policy, k, parameters["batch"], parameters["routers"])
            for policy in parameters["in_batches"]
        },
    }
    streams = ((STAYS, 0.0), (CHANGES, float(parameters["drift"])))
    cases = [(stream, share, scheme) for stream, share in streams for scheme in schemes]
    rows: list[Row] = []
    for number, (stream, share, scheme) in enumerate(cases):
        found = [_one(parameters, share, schemes[scheme](seed + run), k, seed + run) for run in range(runs)]
        rows.append(
            {"stream": stream, "scheme": scheme, **{name: float(np.mean([one[name] for one in found])) for name in found[0]}}
        )
        progress((number + 1) / len(cases))
    return Measured(rows, _summary(rows))


def _one(parameters: Parameters, share: float, route: Route, k: int, seed: int) -> Mapping[str, float]:
    """Mean and 99th percentile of the waits, the instances of a key on average, and the most a key has."""
    keys: Items = np.concatenate(list(intervals_of(parameters, float(parameters["zipf"]), share, seed)))
    names = hash_int64(np.arange(n_keys_of(parameters)) + int(np.random.default_rng(seed).integers(1 << 40)))
    chosen = route(names[keys])
    waited = waits(chosen, k, 1 / (k * float(parameters["utilisation"])))
    pairs = np.unique(keys * k + chosen)
    return {
        "mean_wait": float(waited.mean()),
        "p99_wait": float(np.quantile(waited, 0.99)),
        "instances_a_key": len(pairs) / len(np.unique(pairs // k)),
    }


def _summary(rows: Sequence[Row]) -> dict[str, float]:
    def of(scheme: str, name: str, stream: str = CHANGES) -> float:
        return next(float(row[name]) for row in rows if row["scheme"] == scheme and row["stream"] == stream)

    def less(name: str, scheme: str, than: str, stream: str = CHANGES) -> float:
        """By how many percent the one's figure is below the other's."""
        return 100 * (1 - of(scheme, name, stream) / of(than, name, stream))

    copies = {scheme: of(scheme, "instances_a_key") - 1 for scheme in ("fish", "w-choices", "shuffle")}
    return {
        "less_mean_wait_than_w_choices": less("mean_wait", "fish", "w-choices"),
        "less_p99_wait_than_w_choices": less("p99_wait", "fish", "w-choices"),
        "less_memory_than_shuffle": 100 * (1 - copies["fish"] / copies["shuffle"]),
        "less_memory_than_w_choices": 100 * (1 - copies["fish"] / copies["w-choices"]),
        "mean_wait_of_fish_changes_to_stays": of("fish", "mean_wait") / of("fish", "mean_wait", STAYS),
        "less_mean_wait_than_w_choices_stays": less("mean_wait", "fish", "w-choices", STAYS),
        "less_mean_wait_than_w_choices_in_batches": less("mean_wait", "fish, in batches", "w-choices, in batches"),
        "less_p99_wait_than_w_choices_in_batches": less("p99_wait", "fish, in batches", "w-choices, in batches"),
    }


FISH_DRIFT = Experiment(
    id="fish-drift",
    title="FISH, W-Choices and others while hot keys change: what tuples wait, and on how many instances keys are",
    source="Huang et al., arXiv 1806.00760, abstract; the claims marked ours are about micro-batches",
    parameters={
        "keys": 100_000,
        "zipf": 1.2,
        "tuples": 50_000,
        "intervals": 20,
        "drift": 0.5,
        "instances": 20,
        "utilisation": 0.9,
        "policies": ["fish", "w-choices", "d-choices", "partial-key", "shuffle", "fields"],
        "batch": 20_000,
        "routers": 4,
        "in_batches": ["fish", "w-choices"],
        "trace": "",
    },
    quick={"tuples": 20_000, "intervals": 10},
    runs=5,
    quick_runs=1,
    measure=drift,
    claims=(
        Claim(
            "FISH has a lower mean latency than W-Choices by 87 % (at least 44 %, half of it)",
            lambda s: s["less_mean_wait_than_w_choices"] >= 87.12 / 2,
            {"less_mean_wait_than_w_choices": 87.12},
        ),
        Claim(
            "FISH has a lower 99th percentile of latency than W-Choices by 76 % (at least 38 %, half of it)",
            lambda s: s["less_p99_wait_than_w_choices"] >= 76.34 / 2,
            {"less_p99_wait_than_w_choices": 76.34},
        ),
        Claim(
            "FISH has 99.96 % less memory overhead than shuffle grouping: instances of a key beyond one (at least 95 %)",
            lambda s: s["less_memory_than_shuffle"] >= 95,
            {"less_memory_than_shuffle": 99.96},
            "Most keys come so rarely that shuffling, too, gives them few instances; and keys of the tail have two choices.",
        ),
        Claim(
            "FISH balances a time-evolving stream as it does one that stays: the mean latency is no more than 1.5 times",
            lambda s: s["mean_wait_of_fish_changes_to_stays"] <= 1.5,
        ),
        Claim("Ours: FISH has fewer instances of a key than W-Choices", lambda s: s["less_memory_than_w_choices"] > 0),
        Claim(
            "Ours: in micro-batches, whose routers start from nothing, FISH has a lower mean latency, too (by 10 %)",
            lambda s: s["less_mean_wait_than_w_choices_in_batches"] >= 10,
            why_not="Routers that start from nothing with every batch have nothing to forget: W-Choices counts the batch.",
        ),
    ),
    plots=(
        Plot("Mean wait, in the time of a tuple", "scheme", "mean_wait", "stream", log_y=True),
        Plot("99th percentile of waits, in the time of a tuple", "scheme", "p99_wait", "stream", log_y=True),
        Plot("Instances of a key, mean", "scheme", "instances_a_key", "stream"),
    ),
    stand_in="Zipf keys of which half change places in every interval, in place of the paper's data",
    takes=KEYS,
)
