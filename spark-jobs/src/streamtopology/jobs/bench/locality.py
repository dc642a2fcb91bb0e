"""How long a locality plan takes, beside METIS alone on the same graph: a week of the stand-in, 140,000 distinct pairs."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pymetis

from streamtopology.routing.planners.locality import locality
from streamtopology.routing.simulator.experiments.locality.chain import Chain, counted
from streamtopology.routing.simulator.experiments.locality.tweets import Tweets

TUPLES = 180_000
SERVERS = 6
ROOM = 1_000_000
"""Pairs that could be counted: more than there are."""


def run(runs: int = 5) -> dict[str, Any]:
    """Seconds of METIS alone and of whole plans, over plain hashing and over the tables of the week before.

    CPU seconds of the one thread that plans, so that other work on the machine does not count. Each round runs all
    cases; ratios are medians over rounds.
    """
    weeks = Tweets(TUPLES).weeks(2, np.random.default_rng(1))
    before, now = (counted(*week, ROOM) for week in weeks)
    hashed = Chain.hashed(SERVERS, 1)
    running, _ = hashed.planned(before)
    first, next_one = hashed.asked(now), running.asked(now)
    cases: dict[str, Callable[[], object]] = {
        "METIS alone": _metis_alone(lambda: locality(first)),
        "plan over hashing": lambda: locality(first),
        "plan over last week's tables": lambda: locality(next_one),
    }
    rounds = [{name: _seconds(case) for name, case in cases.items()} for _ in range(runs)]
    machine = {"cores": os.cpu_count(), "processor": platform.machine(), "python": platform.python_version(), "pairs": len(now)}
    return {"name": "locality", "machine": machine, "results": [_result(name, rounds) for name in cases]}


def _metis_alone(plan: Callable[[], object]) -> Callable[[], object]:
    """The very call of METIS that this plan makes."""
    with mock.patch.object(pymetis, "part_graph", side_effect=pymetis.part_graph) as recorded:
        plan()
    (arguments, options), *_ = [(call.args, call.kwargs) for call in recorded.call_args_list]
    return lambda: pymetis.part_graph(*arguments, **options)


def _seconds(case: Callable[[], object]) -> float:
    start = time.thread_time()
    case()
    return time.thread_time() - start


def _result(name: str, rounds: list[dict[str, float]]) -> dict[str, Any]:
    values = [one[name] for one in rounds]
    ratio = statistics.median(one[name] / one["METIS alone"] for one in rounds)
    return {
        "case": name,
        "metric": "time",
        "unit": "s",
        "min": min(values),
        "median": statistics.median(values),
        "max": max(values),
        "runs": len(values),
        "ratio_to": {} if name == "METIS alone" else {"METIS alone": ratio},
    }
