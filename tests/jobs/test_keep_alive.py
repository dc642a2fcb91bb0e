"""Executors without tasks are pinged before Spark ends their Python workers, and those with tasks are left alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from streamtopology.jobs.spark.executors import ExecutorInfo
from streamtopology.jobs.spark.keep_alive import QUIET_SECONDS, KeepAlive

SPARKS_LIMIT_SECONDS = 60.0
EXECUTORS = [ExecutorInfo(f"{number}", f"127.0.0.1{number}", {}) for number in range(2)]


class Quiet:
    """A keep-alive over two executors; `pinged`: ids with times. `busy`: those whose pings do not end."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pinged: list[tuple[str, float]] = []
        self.busy: set[str] = set()
        self.keep_alive = KeepAlive(self._ping, lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            self.now += 0.5
            self.keep_alive.look(EXECUTORS)

    def pings_of(self, executor: str) -> list[float]:
        return [time for id, time in self.pinged if id == executor]

    def _ping(self, executor: ExecutorInfo) -> Callable[[], bool]:
        self.pinged.append((executor.id, self.now))
        return lambda: executor.id not in self.busy


@pytest.fixture
def quiet() -> Quiet:
    made = Quiet()
    made.keep_alive.look(EXECUTORS)
    return made


def test_quiet_executor_is_pinged_before_spark_ends_its_workers(quiet: Quiet) -> None:
    quiet.pass_time(10 * SPARKS_LIMIT_SECONDS)
    for executor in EXECUTORS:
        times = [0.0, *quiet.pings_of(executor.id)]
        assert max(after - before for before, after in pairwise(times)) < SPARKS_LIMIT_SECONDS / 2


def test_executor_that_works_is_not_pinged(quiet: Quiet) -> None:
    for _ in range(100):
        quiet.pass_time(QUIET_SECONDS / 2)
        quiet.keep_alive.worked(["0"])
    assert quiet.pings_of("0") == []
    assert quiet.pings_of("1") != []


def test_pings_of_a_busy_executor_do_not_pile_up(quiet: Quiet) -> None:
    quiet.busy = {"0"}
    quiet.pass_time(10 * QUIET_SECONDS)
    assert len(quiet.pings_of("0")) == 1
    assert len(quiet.pings_of("1")) == 10
