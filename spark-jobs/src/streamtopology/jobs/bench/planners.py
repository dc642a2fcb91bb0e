"""How long Mixed takes to plan over all keys of an operator, and whether that grows in step with the keys.

The paper's setting: instances of equal capacity, keys with Zipf loads, plain hashing to start from.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamtopology.routing import planners
from streamtopology.routing.planners import PlanInput
from streamtopology.routing.table import RoutingTable

KEYS = (10_000, 100_000, 1_000_000)
ZIPF = (0.85, 1.0)
INSTANCES = 10
TOLERANCE = 0.08


def run(runs: int = 5) -> dict[str, Any]:
    """Plan time of Mixed per case, and per key with the ratio of the medians to the smallest case.

    Seconds are CPU seconds of the one thread that plans, so that other work on the machine does not count.
    """
    results: list[dict[str, Any]] = []
    for zipf in ZIPF:
        per_key: dict[str, float] = {}
        for n_keys in KEYS:
            case = f"{n_keys} keys, Zipf {zipf}"
            seconds = _plan_seconds(_operator(n_keys, zipf), runs)
            per_key[case] = statistics.median(seconds) / n_keys
            smallest = next(iter(per_key))
            results.append(_result(case, "plan time", "s", seconds, {}))
            results.append(
                _result(
                    case,
                    "plan time per key",
                    "s",
                    [second / n_keys for second in seconds],
                    {smallest: per_key[case] / per_key[smallest]},
                )
            )
    machine = {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    return {"name": "planners", "machine": machine, "results": results}


def _operator(n_keys: int, zipf: float) -> PlanInput:
    """An operator hashed plainly; loads are in no order, state is a little or a lot whatever the load."""
    rng = np.random.default_rng(n_keys)
    weights = 1 / np.arange(1, n_keys + 1) ** zipf
    return PlanInput(
        current=RoutingTable.uniform(range(INSTANCES)),
        instances=tuple(range(INSTANCES)),
        capacities=np.full(INSTANCES, 1e5),
        fixed_seconds=np.zeros(INSTANCES),
        key_hashes=rng.integers(0, 2**64, n_keys, dtype=np.uint64),
        key_loads=rng.permutation(weights) * (1e6 / weights.sum()),
        key_state=rng.integers(8, 200, n_keys).astype(np.float64),
        tolerance=TOLERANCE,
    )


def _plan_seconds(given: PlanInput, runs: int) -> list[float]:
    planner = planners.get("mixed")
    planner(given)  # compiles the kernels, or loads them
    seconds: list[float] = []
    for _ in range(runs):
        start = time.thread_time()
        planner(given)
        seconds.append(time.thread_time() - start)
    return seconds


def _result(case: str, metric: str, unit: str, values: Sequence[float], ratio_to: dict[str, float]) -> dict[str, Any]:
    return {
        "case": case,
        "metric": metric,
        "unit": unit,
        "min": min(values),
        "median": statistics.median(values),
        "max": max(values),
        "runs": len(values),
        "ratio_to": ratio_to,
    }
