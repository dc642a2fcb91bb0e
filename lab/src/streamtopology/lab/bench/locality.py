"""The time of a locality plan against METIS alone on the same graph: a week of the stand-in, 150,000 distinct pairs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pymetis

from streamtopology.jobs.malloc import keep_freed_memory
from streamtopology.lab.bench.figures import figure, machine
from streamtopology.lab.simulate.chain import Chain, counted
from streamtopology.lab.simulate.tweets import Tweets
from streamtopology.routing.planners.locality import locality

TUPLES = 180_000
SERVERS = 6
# Pairs that could be counted: more than there are.
ROOM = 1_000_000
METIS = "METIS alone"
# More than any cache holds.
CACHES_BYTES = 64 << 20


def run(runs: int = 5) -> dict[str, Any]:
    """Seconds of METIS alone and of whole plans, over plain hashing and over the tables of the week before.

    CPU seconds of the one thread that plans, so that other work on the machine does not count, with caches that hold nothing
    of it, as a planner finds them that is called now and then. Each round runs all cases; ratios are medians over rounds.
    """
    keep_freed_memory()  # as `streamtopology run` does
    weeks = Tweets(TUPLES).weeks(2, np.random.default_rng(1))
    before, now = (counted(*week, ROOM) for week in weeks)
    hashed = Chain.hashed(SERVERS, 1)
    running, _ = hashed.planned(before)
    first, next_one = hashed.asked(now), running.asked(now)
    cases: dict[str, Callable[[], object]] = {
        METIS: _metis_alone(lambda: locality(first)),
        "plan over hashing": lambda: locality(first),
        "plan over last week's tables": lambda: locality(next_one),
    }
    other = np.zeros(CACHES_BYTES, np.uint8)
    measured: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(runs):
        for name, case in cases.items():
            other += 1
            measured[name].append(_seconds(case))
    beside = {METIS: measured[METIS]}
    results = [figure(name, "time", "s", seconds, {} if name == METIS else beside) for name, seconds in measured.items()]
    return {"name": "locality", "machine": machine(pairs=len(now)), "results": results}


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
