"""The time of a plan by Mixed over all keys of an operator, singly and in compact form, and whether that grows in step
with the keys.

The paper's setting: instances of equal capacity, keys with Zipf loads, a table of 3,000 entries.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np

from streamtopology.lab.bench.figures import machine, row
from streamtopology.lab.bench.planners_together import together_lines
from streamtopology.lab.groupings import planners
from streamtopology.routing.planners import PlanInput
from streamtopology.routing.table.table import RoutingTable

KEYS = (10_000, 100_000, 1_000_000)
ZIPF = (0.85, 1.0)
INSTANCES = 10
TOLERANCE = 0.08
MAX_ENTRIES = 3000
COMPACT, BOUNDED = ", compact", ", bounded"
# The part of a case's name, and the planner that it is of.
PLANNERS = {"": "mixed", COMPACT: "mixed-compact", BOUNDED: "mixed"}

# A bound on the table that every case needs more entries than: it is fitted by bisection, each step a table of its own.
BOUNDED_BY = {"max_entries": 10, "tolerance": 0.01}

# Share of the keys that have traded their loads since the table was made.
CHANGED = 0.1


def run(runs: int = 5) -> dict[str, Any]:
    """Plan time of Mixed per case, and per key with the ratio of the medians to the smallest case.

    Of the compact form and of bounded tables also the ratio to Mixed over the same keys. Seconds are CPU seconds of the
    one thread that plans, so that other work on the machine does not count.
    """
    results: list[dict[str, Any]] = []
    for zipf in ZIPF:
        per_key: dict[str, dict[str, float]] = {kind: {} for kind in PLANNERS}
        for n_keys in KEYS:
            operator = operator_of(n_keys, zipf)
            exact: dict[str, float] = {}
            for kind, planner in PLANNERS.items():
                case = f"{n_keys} keys, Zipf {zipf}{kind}"
                seconds = _plan_seconds(planner, bounded(operator) if kind == BOUNDED else operator, runs)
                median = statistics.median(seconds)
                results.append(row(case, "plan time", "s", seconds, {of: median / time for of, time in exact.items()}))
                exact = exact or {case: median}
                per_key[kind][case] = median / n_keys
                smallest = next(iter(per_key[kind]))
                growth = per_key[kind][case] / per_key[kind][smallest]
                each = [second / n_keys for second in seconds]
                results.append(row(case, "plan time per key", "s", each, {smallest: growth}))
    return {"name": "planners", "machine": machine(numpy=np.__version__), "results": results + together_lines(runs)}


def bounded(given: PlanInput) -> PlanInput:
    """The same operator, whose table may have next to no entries."""
    return replace(given, **BOUNDED_BY)


def operator_of(n_keys: int, zipf: float) -> PlanInput:
    """An operator whose table was full and right before some keys' loads changed.

    Loads are in no order, state is a little or a lot whatever the load.
    """
    rng = np.random.default_rng(n_keys)
    weights = 1 / np.arange(1, n_keys + 1) ** zipf
    before = PlanInput(
        current=RoutingTable.uniform(range(INSTANCES)),
        instances=tuple(range(INSTANCES)),
        capacities=np.full(INSTANCES, 1e5),
        fixed_seconds=np.zeros(INSTANCES),
        key_hashes=rng.integers(0, 2**64, n_keys, dtype=np.uint64),
        key_loads=rng.permutation(weights) * (1e6 / weights.sum()),
        key_state=rng.integers(8, 200, n_keys).astype(np.float64),
        tolerance=TOLERANCE,
        max_entries=MAX_ENTRIES,
    )
    loads, changed = before.key_loads.copy(), rng.random(n_keys) < CHANGED
    loads[changed] = rng.permutation(loads[changed])
    return replace(before, current=planners.get("simple")(before).table, key_loads=loads)


def _plan_seconds(name: str, given: PlanInput, runs: int) -> list[float]:
    planner = planners.get(name)
    planner(given)  # compiles the kernels, or loads them
    seconds: list[float] = []
    for _ in range(runs):
        start = time.thread_time()
        planner(given)
        seconds.append(time.thread_time() - start)
    return seconds
