"""Odd reports and odd streams: the controller carries on with what it has, seldom re-routes, and never costs much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep
from support.observed import SLOTS, Stream
from support.rerouted import Run

from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.load.load_report import LoadReport, SourceReport

Batch = tuple[float, list[LoadReport], list[SourceReport]]

BATCHES = 50
# The most that a run may take, relative to one whose routing nobody changes.
MAY_COST = 1.05


class Odd(Stream):
    """A stream whose batches are numbered from 0, each given to `odd` before it is observed."""

    number = -1

    def batch(self, epoch: Epoch) -> Batch:
        self.number += 1
        self.before(self.number)
        return self.seen(*super().batch(epoch))

    def before(self, number: int) -> None:
        pass

    def seen(self, seconds: float, reports: list[LoadReport], sources: list[SourceReport]) -> Batch:
        return seconds, reports, sources


class ReportsMissing(Odd):
    def seen(self, seconds, reports, sources):
        return seconds, [report for report in reports if report.instance != self.number % SLOTS], sources


class InstanceNeverHeard(Odd):
    def seen(self, seconds, reports, sources):
        return seconds, [report for report in reports if report.instance != 3], sources


class OldReports(Odd):
    """Every report is that of the batch before the last."""

    def __post_init__(self):
        super().__post_init__()
        self.kept: list[list[LoadReport]] = []

    def seen(self, seconds, reports, sources):
        self.kept = [*self.kept[-2:], reports]
        return seconds, self.kept[0], sources


class OneBatchOnly(Odd):
    """No instance has ever been heard of again."""

    def seen(self, seconds, reports, sources):
        return (seconds, reports, sources) if self.number < 1 else (seconds, [], [])


class CostsJump(Odd):
    """A row costs ten times as much in every other ten batches."""

    def __post_init__(self):
        super().__post_init__()
        self.usual = self.speeds

    def before(self, number):
        self.speeds = self.usual * (0.1 if number // 10 % 2 else 1.0)


class NewKeys(Odd):
    """No key ever comes twice."""

    def before(self, number):
        self.hashes = self.rng.integers(0, 2**64, self.n_keys, dtype=np.uint64)


class HotKeyMoves(Odd):
    """Another key is the heaviest in every batch."""

    def before(self, number):
        self.shares = np.roll(self.shares, 1)


class NoSeconds(Odd):
    """The clocks of the instances stand still."""

    def seen(self, seconds, reports, sources):
        return seconds, [replace(report, busy_seconds=0.0, task_seconds=0.0) for report in reports], sources


class PausesElsewhere(Odd):
    """Batches last ten times as long, now and then, for reasons that no routing changes."""

    def seen(self, seconds, reports, sources):
        return seconds * (10 if self.rng.random() < 0.2 else 1), reports, sources


class Empty(Odd):
    """Nine of ten batches have no row."""

    def before(self, number):
        self.rows = 100_000 if number % 10 == 0 else 0


class SecondsOffByTen(Odd):
    """The clocks of instances and source tasks run ten times too fast or too slow, another one in every batch."""

    def seen(self, seconds, reports, sources):
        return seconds, [self.off(report) for report in reports], [self.off(report) for report in sources]

    def off(self, report):
        factor = self.rng.choice([0.1, 1.0, 10.0])
        return replace(report, busy_seconds=report.busy_seconds * factor, task_seconds=report.task_seconds * factor)


def dead_slot(seed: int) -> Stream:
    return Odd(seed, speeds=np.array([1.0, 1.0, 1.0, 1e-3]))


def one_key(seed: int) -> Stream:
    return Odd(seed, n_keys=1)


ODD: tuple[Callable[[int], Stream], ...] = (
    ReportsMissing, InstanceNeverHeard, OldReports, OneBatchOnly, CostsJump, NewKeys, HotKeyMoves, NoSeconds,
    PausesElsewhere, Empty, SecondsOffByTen, dead_slot, one_key,
)  # fmt: skip


def seconds_of(stream: Stream, interval: float, mode: str) -> tuple[float, Run]:
    """All batches' seconds, and those that re-routing has cost; and the run."""
    run = Run(stream, interval_seconds=interval, mode=mode).go(BATCHES)
    return run.time + sum(decision.cost_seconds for _, decision in run.reroutes), run


@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
@deep(gate=2, long=4)
@given(seed=st.integers(0, 10**6), interval=st.sampled_from([0.1, 2.0, 10.0]))
def test_odd_streams_never_cost_much_more_than_they_would_left_alone(make, seed, interval):
    left_alone, _ = seconds_of(make(seed), interval, "Off")
    seconds, run = seconds_of(make(seed), interval, "Auto")
    assert seconds <= MAY_COST * left_alone
    assert len(run.reroutes) <= BATCHES // 3
