"""Synthetic runs with known figures: four instances, the last on a small executor, with or without re-routing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamtopology.contract.phases import Phase
from streamtopology.contract.reasons import SOURCE, EpochCause, EpochReason, RemedyKind, StageReason
from streamtopology.contract.stats import Rerouting, Slot
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport, Onward, SourceReport

SLOTS = (
    Slot(0, "large-0", "large", 1.0),
    Slot(1, "large-1", "large", 1.0),
    Slot(2, "large-2", "large", 1.0),
    Slot(3, "small-0", "small", 0.3),
)
CAPACITIES = (40_000.0, 40_000.0, 40_000.0, 12_000.0)
HASHED = (0.30, 0.26, 0.22, 0.22)
BY_CAPACITY = (0.303, 0.303, 0.303, 0.091)
FIXED_SECONDS = 0.15
BUCKETS = 4096


@dataclass
class Clock:
    """Seconds that pass only on request."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def no_page(since: int) -> Mapping[str, object]:
    """The page of a server that is asked for other things."""
    raise AssertionError(f"the page was asked for, with batches after {since}")


def load_report(
    operator: str, instance: int, rows: int, busy_seconds: float, *, late_rows: int = 0, bad_rows: int = 0
) -> LoadReport:
    return LoadReport(
        operator=operator,
        instance=instance,
        slot=instance,
        rows=rows,
        busy_seconds=busy_seconds,
        task_seconds=busy_seconds + FIXED_SECONDS,
        state_keys=100 + instance,
        state_bytes=5_000 + instance,
        late_rows=late_rows,
        bad_rows=bad_rows,
        heavy_hashes=np.array([7], np.uint64),
        heavy_rows=np.array([rows // 10], np.int64),
        heavy_seconds=np.array([busy_seconds / 10]),
        heavy_bytes=np.array([64], np.int64),
        heavy_labels=("N725MQ",),
        bucket_rows=BucketRows.without_rows(BUCKETS),
    )


def outcome(
    number: int,
    shares: Mapping[str, Sequence[float]],
    *,
    rows: int = 40_000,
    epoch: int = 1,
    at: float = 0.0,
    noise: float = 0.0,
    capacities: Sequence[float] | None = CAPACITIES,
) -> BatchOutcome:
    """A batch whose rows every operator splits by its `shares`; it lasts as long as its slowest instance.

    An instance needs rows / its true capacity seconds; `capacities` is what the controller estimates (None: nothing).
    """
    random = np.random.default_rng(number)
    reports = []
    for weight, (operator, split) in enumerate(shares.items()):
        for instance, share in enumerate(split):
            taken = round(rows * share)
            seconds = taken / CAPACITIES[instance] / (1 + 2 * weight) * (1 + noise * random.standard_normal())
            reports.append(load_report(operator, instance, taken, seconds))
    seconds = FIXED_SECONDS + max(
        sum(report.busy_seconds for report in reports if report.instance == instance) for instance in range(len(CAPACITIES))
    )
    return BatchOutcome(
        number=number,
        attempt=1,
        epoch=epoch,
        rows=rows,
        seconds=seconds,
        committed_at=at + seconds,
        reports=tuple(reports),
        source_reports=tuple(
            SourceReport(slot=slot.index, rows=rows // 4, busy_seconds=0.05, task_seconds=0.06, max_event_time={})
            for slot in SLOTS
        ),
        capacities={
            (operator, instance): capacity for operator in shares for instance, capacity in enumerate(capacities or ())
        },
    )


def sent_on(number: int, stayed: int, edge: tuple[str, str] = ("tail", "next"), **changed: object) -> BatchOutcome:
    """A batch in which two instances sent 10 rows each along `edge`, of which `stayed` each stayed on their executor."""
    batch = outcome(number, {edge[0]: (0.5, 0.5)})
    reports = tuple(replace(report, onward={edge[1]: Onward(10, stayed)}) for report in batch.reports)
    return replace(batch, reports=reports, **changed)  # pyright: ignore[reportArgumentType]


def run(
    batches: int,
    *,
    reroute_at: int | None = None,
    operators: Sequence[str] = ("tail",),
    noise: float = 0.0,
    rows: int = 40_000,
    policy: str = "mixed",
    slower_from: int | None = None,
) -> History:
    """A run of `batches` batches, hashed at first and by capacity from batch `reroute_at` on.

    From batch `slower_from` on the machine takes three times as long for everything.
    """
    history = History("flights", SLOTS, dict.fromkeys(operators, policy))
    history.enter(Phase.RUNNING)
    at = 1_700_000_000.0
    for number in range(batches):
        balanced = reroute_at is not None and number >= reroute_at
        split = BY_CAPACITY if balanced else HASHED
        if number == reroute_at:
            history.rerouted(reconfiguration(epoch=2, batch=number, operator=operators[0]))
        batch = outcome(number, dict.fromkeys(operators, split), rows=rows, epoch=2 if balanced else 1, at=at, noise=noise)
        if slower_from is not None and number >= slower_from:
            reports = tuple(replace(report, busy_seconds=3 * report.busy_seconds) for report in batch.reports)
            batch = replace(batch, reports=reports, seconds=3 * batch.seconds, committed_at=at + 3 * batch.seconds)
        at = batch.committed_at
        history.batch_done(batch)
    return history


def reconfiguration(epoch: int = 2, batch: int = 8, operator: str = "tail", **changed: object) -> Rerouting:
    figures: dict[str, object] = {
        "epoch": epoch,
        "batch": batch,
        "operator": operator,
        "reason": EpochReason(EpochCause.REBALANCED, (StageReason(RemedyKind.TABLE, "tail", 1.42, 0.021),)),
        "keys_moved": 412,
        "bytes_moved": 1_200_000,
        "plan_seconds": 0.04,
        "published_to_active_seconds": 0.9,
        "predicted_gain": 0.38,
    }
    return Rerouting(**{**figures, **changed})  # pyright: ignore[reportArgumentType]


def source_shares(epoch: int = 2, batch: int = 8) -> Rerouting:
    """A re-routing that only divides the source's rows differently."""
    reason = EpochReason(EpochCause.REBALANCED, (StageReason(RemedyKind.SHARES, SOURCE, 0.487),))
    return reconfiguration(epoch, batch, SOURCE, reason=reason, keys_moved=0, bytes_moved=0, predicted_gain=0.0)
