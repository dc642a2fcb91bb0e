"""The share of the capacity bound that `policy: auto` reaches, and today's policies with it, on the streams it is judged by.

Simulated, with the groupings, planners and the controller that run on Spark; `bench hotkeys` runs such streams there.
Capacities are 1, 1, 1, 0.3, again and again, unless a stream says equal. The bound is all cores busy with rows: fixed seconds
and merging come on top. The source is left out, so all shares are a little higher than on Spark.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.lab.bench.auto_chain import chain_lines
from streamtopology.lab.bench.figures import machine, met, row
from streamtopology.lab.bench.flights_data import key_shares
from streamtopology.lab.simulate.auto import AutoContender
from streamtopology.lab.simulate.comparison import Comparison, Result
from streamtopology.lab.simulate.site import Batch, Site
from streamtopology.lab.simulate.streams import draw, zipf_probabilities
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.topology.groupings import GROUPINGS

Shares = npt.NDArray[np.float64]

UNEQUAL = (1.0, 1.0, 1.0, 0.3)
EQUAL = (1.0, 1.0, 1.0, 1.0)

SECONDS_PER_ROW = 10e-6
# Of an instance's part in a stage, without its rows, on one core; one of 0.3 cores takes 67 ms.
FIXED_SECONDS = 0.020

# Of merging one part of a key, on one core.
SECONDS_PER_PART = 3e-6

# The share of the one key that has most rows.
HOT = 0.6

# Batches until another key is the hot one.
MOVES_EVERY = 6

# The policy of the catalogue that reaches most.
BEST = "the best"

# `auto` as it is judged, and as it would be if parts rode with the next batch: true where they have a stage of their own.
AUTO = {"auto": True, "auto, carried": False}

# The policy of an operator without a grouping: in place of `auto` where there is no key to route by.
WITHOUT_KEY = "shuffle"

# Least and most cost of a row, in `SECONDS_PER_ROW`, where it depends on the content.
COSTS = (1.0, 10.0)


@dataclass(frozen=True)
class Size:
    """Distinct keys, rows of a batch, and batches."""

    keys: int
    rows: int
    batches: int


FULL, QUICK = Size(100_000, 200_000, 30), Size(1_000, 20_000, 15)


@dataclass(frozen=True)
class Case:
    """A stream. `shares`: of each key in a batch, by its number.

    `bar`: the share of the bound that `auto` should reach, or the multiple of what the policy `of` or the `BEST` one does.
    `slowest`: how many times the median batch no batch of it should exceed, 0 where nothing is asked. `judged`: the policy that
    has to reach the bar. `is_slowed`: the first slot has half of its cores from the last third of the batches on, and all
    batches count, not the last third.
    """

    name: str
    shares: Callable[[Size, int], Shares]
    policies: tuple[str, ...]
    bar: float
    of: str = ""
    cpu: tuple[float, ...] = UNEQUAL
    stateful: bool = True
    combinable: bool = True
    by_content: bool = False
    slowest: float = 0.0
    judged: str = "auto"
    is_slowed: bool = False

    def site(self) -> Site:
        return Site(
            operator="count",
            parallelism=len(self.cpu),
            cpu=self.cpu,
            policy="mixed",
            stateful=self.stateful,
            combinable=self.combinable,
            fixed_seconds=FIXED_SECONDS,
            most_part_seconds=SECONDS_PER_PART,
        )

    def cpu_at(self, size: Size, number: int) -> tuple[float, ...]:
        """The cores of each slot in a batch."""
        first, *others = self.cpu
        return (first / 2, *others) if self.is_slowed and number >= size.batches * 2 // 3 else self.cpu

    def batches(self, size: Size, seed: int) -> Iterator[Batch]:
        rng = np.random.default_rng(seed)
        order = rng.permutation(size.keys)
        least, most = COSTS if self.by_content else (1.0, 1.0)
        costs = np.exp(rng.uniform(np.log(least), np.log(most), size.keys)) * SECONDS_PER_ROW
        for number in range(size.batches):
            keys = order[draw(self.shares(size, number), size.rows, rng)]
            yield Batch.of(hash_int64(keys), costs[keys] if self.by_content else SECONDS_PER_ROW)


def zipf(exponent: float) -> Callable[[Size, int], Shares]:
    return lambda size, number: zipf_probabilities(size.keys, exponent)


def tweets(size: Size, number: int) -> Shares:
    return key_shares("tweets", size.keys)


def hot(size: Size, number: int) -> Shares:
    return _with_hot_key(size, 0, HOT)


def hot_moves(size: Size, number: int) -> Shares:
    return _with_hot_key(size, number // MOVES_EVERY, HOT)


def drifting(size: Size, number: int) -> Shares:
    """A hot key that moves, of a share that grows from 0.2 to 0.6 and falls again, over a Zipf stream whose ranks turn."""
    share = 0.2 + 0.4 * (1 - abs(2 * number / size.batches - 1))
    return _with_hot_key(size, number // MOVES_EVERY, share, np.roll(zipf_probabilities(size.keys, 1.0), number))


def _with_hot_key(size: Size, key: int, share: float, others: Shares | None = None) -> Shares:
    shares = (np.full(size.keys, 1 / size.keys) if others is None else others) * (1 - share)
    shares[key] += share
    return shares


KEYED = ("fields", "mixed", "partial-key", "w-choices", *AUTO)
CASES = (
    Case("Zipf 1.0", zipf(1.0), KEYED, 0.93),
    Case("Zipf 1.2", zipf(1.2), KEYED, 0.93),
    Case("keys as in tweets", tweets, KEYED, 0.93),
    Case("one key 60 %, 4 instances", hot, KEYED, 0.90),
    Case("one key 60 %, 8 instances", hot, KEYED, 0.86, cpu=UNEQUAL * 2),
    Case("60 % key moves every 6 batches", hot_moves, KEYED, 0.88, slowest=1.3),
    Case("one key 60 %, not combinable", hot, ("fields", "mixed", "auto"), 0.98, of="mixed", combinable=False),
    Case(
        "stateless, cost by content",
        zipf(1.0),
        ("shuffle", "earliest-finish", "mixed"),
        0.98,
        of="earliest-finish",
        stateful=False,
        by_content=True,
        judged=WITHOUT_KEY,
    ),
    Case(
        "stateless, cost by content, equal",
        zipf(1.0),
        ("shuffle", "earliest-finish", "mixed"),
        0.98,
        of="earliest-finish",
        cpu=EQUAL,
        stateful=False,
        by_content=True,
        judged=WITHOUT_KEY,
    ),
    Case("uniform, equal", zipf(0.0), KEYED, 0.98, of="fields", cpu=EQUAL),
    Case("hot key and shares drift", drifting, KEYED, 1.15, of=BEST),
    Case("the same, an executor slowed to half, whole run", drifting, KEYED, 1.15, of=BEST, is_slowed=True),
)


@dataclass(frozen=True)
class Reached:
    """The result of a policy. `slowest`: the slowest batch over the median one, of the last two thirds."""

    share_of_bound: float
    slowest: float


def run(runs: int = 5, seed: int = 1, quick: bool = False) -> dict[str, Any]:
    """The share of the bound by stream and policy, one run a seed, and the bar of `auto` with what comes nearest to it."""
    size = QUICK if quick else FULL
    seeds = range(seed, seed + runs)
    results = [line for case in CASES for line in _lines(case, size, seeds)] + chain_lines(seeds, quick)
    sizes = {"keys": size.keys, "rows": size.rows, "batches": size.batches}
    return {"name": "auto", "machine": machine(numpy=np.__version__, **sizes), "results": results}


def _lines(case: Case, size: Size, seeds: range) -> list[dict[str, Any]]:
    reached: dict[str, list[Reached]] = {policy: [] for policy in case.policies}
    for seed in seeds:
        for policy, of_seed in _reached(case, size, seed).items():
            reached[policy].append(of_seed)
    shares = {policy: [one.share_of_bound for one in of_policy] for policy, of_policy in reached.items()}
    lines = [row(f"{case.name}, {policy}", "share of bound", "", values, {}) for policy, values in shares.items()]
    if case.slowest:
        slowest = [one.slowest for one in reached["auto"]]
        lines.append(row(f"{case.name}, auto", "slowest batch to median", met(max(slowest) <= case.slowest), slowest, {}))
    medians = {policy: statistics.median(values) for policy, values in shares.items()}
    best = max(medians.keys() - AUTO.keys(), key=medians.__getitem__)
    bar = case.bar * (medians[best if case.of == BEST else case.of] if case.of else 1.0)
    unit = f"{met(medians[case.judged] >= bar)} by {case.judged}"
    return [*lines, row(case.name, "bar of auto", unit, [bar], {f"{case.name}, {case.judged}": bar / medians[case.judged]})]


def _reached(case: Case, size: Size, seed: int) -> dict[str, Reached]:
    listed = {policy: GROUPINGS[policy] for policy in case.policies if policy not in AUTO}
    others = [AutoContender(case.site(), seed, apart) for policy, apart in AUTO.items() if policy in case.policies]
    comparison = Comparison(case.site(), listed, seed, others)
    least_seconds = 0.0
    for number, batch in enumerate(case.batches(size, seed)):
        cpu = case.cpu_at(size, number)
        least_seconds += float(batch.work.sum()) / sum(cpu)
        comparison.run_on(cpu)
        comparison.take(batch)
    return {
        result.policy: Reached(
            least_seconds / _seconds(result, size) if case.is_slowed else result.share_of_bound, _slowest(result)
        )
        for result in comparison.results()
    }


def _seconds(result: Result, size: Size) -> float:
    """Of all batches, which have as many rows."""
    return sum(size.rows / rate for rate in result.rows_per_second_of)


def _slowest(result: Result) -> float:
    """All batches have as many rows."""
    rates = result.rows_per_second_of[len(result.rows_per_second_of) // 3 :]
    return statistics.median(rates) / min(rates)
