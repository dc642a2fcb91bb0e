"""The driver's answer at `/stats` (docs/reference/stats.md), from the history of its run and where the run stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamtopology.contract.stats import (
    Batch,
    Capacity,
    DriverRefusal,
    LiveExecutor,
    Locality,
    NumberedBatch,
    Stats,
    shared,
)
from streamtopology.contract.stats_question import Question
from streamtopology.jobs.observe.epoch_stories import epoch_stories
from streamtopology.jobs.observe.figures import imbalance, locality, recent_rate
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.observed_batches import observed_batches
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.routing.epochs.epoch import Epoch

# Batches that one answer holds at most, the newest: a controller that was away longer has missed the others.
MOST_BATCHES = 64

# Load reports in an answer to a reader that wants them whole, some 13 kB each; the newest batch has all of its own.
MOST_REPORTS = 1024

# Re-routings that one answer holds at most, the newest.
MOST_RECONFIGURATIONS = 64

# Epochs whose stories one answer holds at most, the newest.
MOST_EPOCHS = 16

# Re-routings in an answer to a controller, the newest; it knows the others.
MOST_FOR_CONTROLLER = 32


@dataclass(frozen=True)
class Standing:
    """The state of a run that its history does not hold.

    `routing` is the epoch that batches run under, `newest_epoch` the newest that is ready, `generation` that of the
    topology as Kubernetes counts it, `replicas` of each executor class those of the topology, `bound` source rows/s of a
    perfect division by the last measured capacities (0 before it is known), `lag` by Kafka source the rows that wait after
    the newest commit, None while that is unknown, `watermark` seconds since 1970, `at` the time of this standing.
    """

    routing: Epoch | None = None
    newest_epoch: int | None = None
    generation: int | None = None
    refused: DriverRefusal | None = None
    bound: float = 0.0
    checkpoint: str | None = None
    executors: Sequence[LiveExecutor] = ()
    lag: Mapping[str, int | None] = field(default_factory=dict[str, int | None])
    replicas: Mapping[str, int] | None = None
    watermark: float | None = None
    at: float = 0.0

    @property
    def lag_rows(self) -> int | None:
        """The rows that wait in all Kafka sources together; None while it is unknown, or without one."""
        counted = [rows for rows in self.lag.values() if rows is not None]
        return sum(counted) if counted and len(counted) == len(self.lag) else None


NOT_STARTED = Standing()
NOTHING_ASKED = Question()


def build_stats(history: History, standing: Standing = NOT_STARTED, asked: Question = NOTHING_ASKED) -> dict[str, Any]:
    """The JSON value after the last committed batch, with the batches that were asked for. Pure."""
    batches = history.batches
    last = batches[-1] if batches else None
    since = [] if asked.since is None else [batch for batch in batches if batch.number > asked.since][-MOST_BATCHES:]
    routing = standing.routing
    stats = Stats(
        topology=history.topology,
        activity=history.activity,
        epoch=last.epoch if last else None,
        batch=last.number if last else None,
        rows_per_second=recent_rate(batches),
        answered_at=standing.at,
        slots=history.slots,
        policies=history.policies,
        last_batch=_batch(last) if last else None,
        generation=standing.generation,
        replicas=standing.replicas,
        newest_epoch=standing.newest_epoch,
        bound_rows_per_second=standing.bound or None,
        checkpoint=standing.checkpoint,
        refused=standing.refused,
        routing=routing.to_wire() if routing and routing.number != asked.routing else None,
        executors=tuple(standing.executors),
        reconfigurations=history.reconfigurations[-MOST_RECONFIGURATIONS:],
        batches=() if asked.as_observed else tuple(_batch(batch) for batch in _with_few_reports(since)),
        lag_rows=standing.lag_rows,
        idle_seconds=history.idle_seconds,
        binding=history.binding,
        epochs=() if asked.as_observed else epoch_stories(history, routing)[-MOST_EPOCHS:],
        part_seconds=history.part_seconds,
        divided_keys=() if asked.as_observed else history.divided.heaviest,
        memory=last.memory if last else (),
        lost=running.lost if (running := history.running) else None,
    )
    return (_as_observed(stats, batches, since, asked.since) if asked.as_observed else stats).to_wire()


def _as_observed(stats: Stats, batches: Sequence[BatchOutcome], since: Sequence[BatchOutcome], known: int | None) -> Stats:
    """`stats` for a controller: totals of batches, sums of loads, the newest re-routings."""
    return replace(
        stats,
        last_batch=stats.last_batch.without_reports() if stats.last_batch else None,
        reconfigurations=stats.reconfigurations[-MOST_FOR_CONTROLLER:],
        batches=tuple(_batch(batch, with_reports=False) for batch in since),
        observed=None if known is None else observed_batches(batches, known),
    )


def _with_few_reports(batches: Sequence[BatchOutcome]) -> Sequence[BatchOutcome]:
    """The newest of them that have `MOST_REPORTS` reports together, and at least one."""
    reports = 0
    for index in range(len(batches) - 1, -1, -1):
        reports += len(batches[index].reports)
        if reports > MOST_REPORTS:
            return batches[min(index + 1, len(batches) - 1) :]
    return batches


def _batch(batch: BatchOutcome, with_reports: bool = True) -> Batch:
    operators = dict.fromkeys(report.operator for report in batch.reports)
    return Batch(
        **shared(NumberedBatch, batch),
        remote_seconds=batch.remote_seconds,
        imbalance={operator: imbalance(batch, operator) for operator in operators},
        **(_reports(batch) if with_reports else {}),
    )


def _reports(batch: BatchOutcome) -> dict[str, Any]:
    """The fields that grow with instances and keys."""
    return {
        "capacities": tuple(Capacity(*instance, capacity) for instance, capacity in sorted(batch.capacities.items())),
        "locality": tuple(Locality(*edge, share) for edge, share in locality(batch).items()),
        "messages": tuple(batch.messages.values()),
        "reports": [report.to_wire() for report in batch.reports],
        "source_reports": [report.to_wire() for report in batch.source_reports],
    }
