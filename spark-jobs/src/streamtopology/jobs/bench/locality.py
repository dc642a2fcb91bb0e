"""How long a locality plan takes, beside METIS alone on the same graph: a week of the stand-in, 150,000 distinct pairs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pymetis

from streamtopology.jobs.bench.figures import figure, machine
from streamtopology.routing.planners.joint import JointPlanInput
from streamtopology.routing.planners.locality import locality
from streamtopology.routing.simulator.experiments.locality.chain import Chain, counted
from streamtopology.routing.simulator.experiments.locality.tweets import Tweets

TUPLES = 180_000
SERVERS = 6
ROOM = 1_000_000
"""Pairs that could be counted: more than there are."""
METIS = "METIS alone"


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
    cases = {"plan over hashing": first, "plan over last week's tables": next_one}
    metis = _metis_alone(lambda: locality(first))
    rounds: list[dict[str, float]] = []
    for _ in range(runs):
        measured = {METIS: _seconds(metis)}
        for name, given in cases.items():
            measured[name], measured[_within(name)] = _plan(given)
        rounds.append(measured)
    return {"name": "locality", "machine": machine(pairs=len(now)), "results": [_result(name, rounds) for name in rounds[0]]}


def _within(case: str) -> str:
    return f"METIS within the {case}"


def _plan(given: JointPlanInput) -> tuple[float, float]:
    """Seconds of a plan, and of METIS within it: that has colder memory than METIS on its own again and again."""
    within: list[float] = []

    def timed(*arguments: Any, **options: Any) -> Any:
        parts: list[Any] = []
        within.append(_seconds(lambda: parts.append(part_graph(*arguments, **options))))
        return parts[0]

    part_graph = pymetis.part_graph
    with mock.patch.object(pymetis, "part_graph", side_effect=timed):
        whole = _seconds(lambda: locality(given))
    return whole, sum(within)


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
    beside = [other for other in (METIS, _within(name)) if other != name and other in rounds[0]]
    return figure(name, "time", "s", values, {other: [one[other] for one in rounds] for other in beside})
