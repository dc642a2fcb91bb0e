"""`auto` on odd reports and odd streams: it keeps what it has, seldom re-routes, and never costs much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from streamtopology.contract.reasons import EpochCause
from streamtopology.lab.simulate.auto import AutoContender
from streamtopology.lab.simulate.contender import Dealt
from streamtopology.lab.simulate.site import Batch, Hashes, Site
from streamtopology.routing.control.decisions import Decision, Reroute
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.table.hashing import hash_int64

COST, ROWS, BATCHES = 10e-6, 20_000, 50
CPU = (1.0, 1.0, 1.0, 0.3)
SITE = Site("counts", 4, CPU, "mixed", combinable=True, fixed_seconds=0.02, most_part_seconds=3e-6)
# The most that a run may take, relative to one whose routing nobody changes.
MAY_COST = 1.05

SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3)))

Reports = Sequence[LoadReport]


class Odd(AutoContender):
    """Carried parts, as on Spark; its reports are what `seen` makes of them. If it `keeps`, it never re-routes."""

    def __init__(self, site: Site, keeps: bool) -> None:
        super().__init__(site, 1, apart=False)
        self.number = -1
        self.decisions: list[Decision] = []
        self.seconds = 0.0
        step = self.controller.step

        def judged(*given: object) -> Decision:
            decision = step(*given)  # type: ignore[arg-type]
            self.decisions.append(decision)
            return decision

        self.controller.step = judged  # type: ignore[method-assign]
        self.keeps = keeps

    def deal(self, batch: Batch, seen: Hashes) -> Dealt:
        self.number += 1
        dealt = super().deal(batch, seen)
        return replace(dealt, reports=self.seen(dealt.reports))

    def seen(self, reports: Reports) -> Reports:
        return reports

    def _judge(self, seconds: float, reports: Reports, seen: Hashes, best_seconds: float) -> None:
        self.seconds += seconds
        if not self.keeps:
            super()._judge(seconds, reports, seen, best_seconds)
            return
        epoch = self._epoch
        super()._judge(seconds, reports, seen, best_seconds)
        self._epoch = epoch

    @property
    def reroutes(self) -> list[Reroute]:
        return [one for one in self.decisions if isinstance(one, Reroute)]


class ReportsMissing(Odd):
    def seen(self, reports: Reports) -> Reports:
        return [report for report in reports if report.instance != self.number % 4]


class OldReports(Odd):
    """Every report is that of the batch before the last."""

    kept: tuple[Reports, ...] = ()

    def seen(self, reports: Reports) -> Reports:
        self.kept = (*self.kept[-2:], reports)
        return self.kept[0]


class OneBatchOnly(Odd):
    def seen(self, reports: Reports) -> Reports:
        return reports if self.number < 1 else ()


class JustCame(Odd):
    """Another instance in every fifth batch reports as one that has just come: without rows, keys or state."""

    def seen(self, reports: Reports) -> Reports:
        new = self.number // 5 % 4
        return [_new(report) if report.instance == new and self.number % 5 == 0 else report for report in reports]


def _new(report: LoadReport) -> LoadReport:
    none = BucketRows.without_rows(report.bucket_rows.count)
    return LoadReport(report.operator, report.instance, report.slot, 0, 0.0, 0.0, bucket_rows=none)


class NoCapacity(Odd):
    """The clock of one instance stands still; another is busy and gets done with no row: its capacity is zero."""

    def seen(self, reports: Reports) -> Reports:
        def off(report: LoadReport) -> LoadReport:
            if report.instance == 0:
                return replace(report, busy_seconds=0.0, task_seconds=0.0)
            return replace(report, rows=0) if report.instance == 1 else report

        return [off(report) for report in reports]


class AlwaysWrong(Odd):
    """Batches take as long as ever, whatever the routing: every gain that was predicted is not seen."""

    def _judge(self, seconds: float, reports: Reports, seen: Hashes, best_seconds: float) -> None:
        super()._judge(1.0, reports, seen, 1.0)


def skewed(seed: int) -> list[Batch]:
    """One key has 60 % of the rows; it is another one from the 25th batch on."""
    random = np.random.default_rng(seed)
    return [_batch(np.where(random.random(ROWS) < 0.6, number // 25, random.integers(100, 5_000, ROWS))) for number in _NUMBERS]


def moving(seed: int, batches: int = BATCHES) -> list[Batch]:
    """In every eight batches other keys are the heavy ones, so that a table can always be planned again."""
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, 401)
    ranks = [random.choice(400, ROWS, p=shares / shares.sum()) for _ in range(batches)]
    return [_batch(of_batch + 1_000 * (number // 8)) for number, of_batch in enumerate(ranks)]


def jumping(seed: int) -> list[Batch]:
    """A row costs ten times as much in every other ten batches."""
    return [replaced(batch, 10 if number // 10 % 2 else 1) for number, batch in enumerate(skewed(seed))]


def new_keys(seed: int) -> list[Batch]:
    """No key ever comes twice but in one batch, where one has half of the rows."""
    random = np.random.default_rng(seed)
    return [_batch(np.where(random.random(ROWS) < 0.5, 0, random.integers(1, 2_000, ROWS)) + 10_000 * n) for n in _NUMBERS]


def one_key(seed: int) -> list[Batch]:
    return [_batch(np.full(ROWS, seed)) for _ in _NUMBERS]


_NUMBERS = range(BATCHES)


def _batch(keys: np.ndarray) -> Batch:
    return Batch.of(hash_int64(keys.astype(np.int64)), COST)


def replaced(batch: Batch, factor: float) -> Batch:
    return Batch.of(batch.hashes, COST * factor)


def played(kind: type[Odd], site: Site, stream: Sequence[Batch], keeps: bool) -> Odd:
    judged, seen = kind(site, keeps), np.unique(np.concatenate([batch.keys for batch in stream]))
    for batch in stream:
        judged.take(batch, seen, float(batch.work.sum()) / sum(CPU))
    return judged


APART = replace(SITE, combinable=False)
CASES: Sequence[tuple[type[Odd], Callable[[int], list[Batch]], Site]] = (
    (ReportsMissing, skewed, SITE),
    (OldReports, skewed, SITE),
    (OneBatchOnly, skewed, SITE),
    (JustCame, skewed, SITE),
    (NoCapacity, skewed, SITE),
    (Odd, jumping, SITE),
    (Odd, jumping, APART),
    (Odd, new_keys, SITE),
    (Odd, new_keys, APART),
    (Odd, one_key, APART),
    (Odd, one_key, SITE),
    (Odd, moving, APART),
    (AlwaysWrong, moving, APART),
    (AlwaysWrong, moving, SITE),
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("kind", "make", "site"), CASES, ids=lambda one: one.__name__ if callable(one) else f"combinable={one.combinable}"
)
def test_odd_input_never_costs_much_nor_makes_auto_oscillate(
    kind: type[Odd], make: Callable[[int], list[Batch]], site: Site, seed: int
) -> None:
    stream = make(seed)
    left_alone, judged = (played(kind, site, stream, keeps) for keeps in (True, False))
    cost = sum(decision.cost_seconds for decision in judged.reroutes)
    assert judged.seconds + cost <= MAY_COST * left_alone.seconds
    at = [number for number, decision in enumerate(judged.decisions) if isinstance(decision, Reroute)]
    assert all(later - earlier >= 3 for earlier, later in pairwise(at)), "at most one in three batches"
    seen = {outcome.epoch for outcome in judged.controller.outcomes}
    tried = [one.epoch.number for one in judged.reroutes if one.reason.cause is EpochCause.REBALANCED]
    assert set(tried[:-1]) <= seen, "none whose gain was not seen"
    if site is APART:
        table = judged.route.table
        assert table is not None
        assert not len(table.splits)


@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_predictions_are_followed_by_longer_pauses(seed: int) -> None:
    """Five and more are wrong: each is measured before the next, and all together they cost little of the time."""
    judged = played(AlwaysWrong, APART, moving(seed, 200), keeps=False)
    at = [number for number, decision in enumerate(judged.decisions) if isinstance(decision, Reroute)]
    outcomes = judged.controller.outcomes
    assert len(outcomes) >= 5
    assert all(outcome.predicted_gain_seconds > 0 for outcome in outcomes)
    assert all(abs(outcome.measured_gain_seconds) < 1e-6 for outcome in outcomes)
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert min(gaps[1:]) >= 2 * gaps[0] >= 6
    assert sum(decision.cost_seconds for decision in judged.reroutes) <= (MAY_COST - 1) * judged.seconds
