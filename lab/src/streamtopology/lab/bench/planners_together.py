"""The time that `auto` takes to plan chains of operators together, on a network that counts, and each of them alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.lab.bench.figures import row
from streamtopology.lab.simulate.streams import zipf_probabilities
from streamtopology.lab.simulate.throttled_chain import CommunityStream, Keys
from streamtopology.routing.load.load_report import KEY_PAIRS, KeyPairs
from streamtopology.routing.planners import JointPlanInput, PlanInput
from streamtopology.routing.planners.auto import auto
from streamtopology.routing.planners.together import auto_together
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import BUCKETS, RoutingTable, bucket_of

# Operators and instances.
CHAINS = ((2, 8), (10, 8), (10, 100), (10, 1000))

KEYS, ENTRIES = 50_000, 3000
# Rows of a batch at each operator, and those drawn, each of which stands for as many.
ROWS, SAMPLE = 20_000_000, 4 * KEY_PAIRS

SECONDS_PER_ROW, REMOTE_SECONDS = 5e-6, 20e-6
CPU = (1.0, 1.0, 1.0, 0.3)
COMMUNITIES_PER_INSTANCE = 4


def together_lines(runs: int) -> list[dict[str, Any]]:
    """CPU seconds of a first plan, from hashing, and the ratio to those of each operator alone."""
    lines: list[dict[str, Any]] = []
    for operators, instances in CHAINS:
        given = chain_of(operators, instances)
        case = f"{operators} operators, {instances} instances"
        each = _seconds(lambda given=given: [auto(one) for one in given.operators.values()], runs)
        alone = row(f"{case}, alone", "plan time", "s", each, {})
        both = _seconds(lambda given=given: auto_together(given), runs)
        ratio = {alone["case"]: float(np.median(both)) / alone["median"]}
        lines += [alone, row(f"{case}, together", "plan time", "s", both, ratio)]
    return lines


def chain_of(operators: int, instances: int) -> JointPlanInput:
    """A chain of operators, each with 3,000 heavy keys and the buckets of all others, from hashing."""
    names, shares = [f"operator-{n}" for n in range(operators)], zipf_probabilities(KEYS, 1.0)
    given: dict[str, PlanInput] = {}
    pairs: dict[tuple[str, str], KeyPairs] = {}
    hashes = [hash_int64(np.arange(KEYS, dtype=np.int64) + n * KEYS) for n in range(operators)]
    for n, name in enumerate(names):
        given[name] = _operator(hashes[n], shares * ROWS, np.resize(CPU, instances))
        if n:
            stream = CommunityStream(KEYS, COMMUNITIES_PER_INSTANCE * instances, 0.8, shares, n)
            pairs[names[n - 1], name] = _counted(stream.batch(SAMPLE, (hashes[n - 1], hashes[n])))
    return JointPlanInput(given, pairs, remote_seconds=REMOTE_SECONDS)


def _counted(batch: Keys) -> KeyPairs:
    return KeyPairs.summed(*batch, np.full(SAMPLE, ROWS // SAMPLE), ROWS)


def _operator(hashes: npt.NDArray[np.uint64], rows: npt.NDArray[np.float64], cpu: npt.NDArray[np.float64]) -> PlanInput:
    """The keys in the order of their numbers, of which the first are heavy."""
    bucket = bucket_of(hashes[ENTRIES:], BUCKETS)
    return PlanInput(
        current=RoutingTable.uniform(range(len(cpu))),
        instances=tuple(range(len(cpu))),
        capacities=cpu / SECONDS_PER_ROW,
        fixed_seconds=0.02 / cpu,
        key_hashes=hashes[:ENTRIES],
        key_loads=rows[:ENTRIES],
        key_state=np.full(ENTRIES, 64.0),
        bucket_loads=np.bincount(bucket, rows[ENTRIES:], BUCKETS).astype(np.float64),
        bucket_state=np.bincount(bucket, minlength=BUCKETS).astype(np.float64) * 64,
        tolerance=0.02,
        max_entries=ENTRIES,
    )


def _seconds(plan: Callable[[], object], runs: int) -> list[float]:
    plan()  # compiles the kernels, or loads them
    seconds: list[float] = []
    for _ in range(runs):
        start = time.thread_time()
        plan()
        seconds.append(time.thread_time() - start)
    return seconds
