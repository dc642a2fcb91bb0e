"""What a controller outside the driver needs to know of a run: the JSON value served at `/stats` (docs/stats.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streamtopology.jobs.history import BatchOutcome, History
from streamtopology.jobs.measures import imbalance, locality, recent_rate
from streamtopology.routing.epoch import Epoch

STATS_VERSION = 2

MOST_BATCHES = 64
"""Batches that one answer holds at most, the newest: a controller that was away longer has missed the others."""


@dataclass(frozen=True)
class Refusal:
    """What was asked for from outside and not taken: an epoch, or the topology of a generation."""

    epoch: int | None
    generation: int | None
    why: str


@dataclass(frozen=True)
class ExecutorStanding:
    """A live executor: as Spark calls it, what it is of, and the slot it fills (None: none of this topology)."""

    executor: str
    class_name: str
    pod: str | None
    slot: int | None
    admitted: bool


@dataclass(frozen=True)
class Standing:
    """Where a run stands beside its history.

    `routing` is the epoch that batches run under, `newest_epoch` the newest that is ready, `generation` that of the
    topology as Kubernetes counts it, `bound` source rows/s that no routing can beat (0 before it is known).
    """

    routing: Epoch | None = None
    newest_epoch: int | None = None
    generation: int | None = None
    refused: Refusal | None = None
    bound: float = 0.0
    checkpoint: str | None = None
    executors: Sequence[ExecutorStanding] = ()


NOT_STARTED = Standing()


def build_stats(history: History, standing: Standing = NOT_STARTED, since: int | None = None) -> dict[str, Any]:
    """The run as it stands after its last committed batch, with the batches after number `since`; pure and JSON-able."""
    batches = history.batches
    last = batches[-1] if batches else None
    asked = [] if since is None else [batch for batch in batches if batch.number > since][-MOST_BATCHES:]
    return {
        "version": STATS_VERSION,
        "topology": history.topology,
        "generation": standing.generation,
        "phase": history.phase,
        "epoch": last.epoch if last else None,
        "newest_epoch": standing.newest_epoch,
        "refused": asdict(standing.refused) if standing.refused else None,
        "batch": last.number if last else None,
        "rows_per_second": recent_rate(batches),
        "bound_rows_per_second": standing.bound or None,
        "checkpoint": standing.checkpoint,
        "slots": [
            {"index": slot.index, "executor": slot.executor, "class": slot.class_name, "cpu": slot.cpu, "present": slot.present}
            for slot in history.slots
        ],
        "executors": [_executor(executor) for executor in standing.executors],
        "policies": dict(history.policies),
        "routing": standing.routing.to_wire() if standing.routing else None,
        "reconfigurations": [asdict(change) for change in history.reconfigurations],
        "last_batch": _batch(last) if last else None,
        "batches": [{"number": batch.number, "epoch": batch.epoch, **_batch(batch)} for batch in asked],
    }


def _executor(executor: ExecutorStanding) -> dict[str, Any]:
    return {
        "executor": executor.executor, "class": executor.class_name, "pod": executor.pod, "slot": executor.slot,
        "admitted": executor.admitted,
    }  # fmt: skip


def _batch(batch: BatchOutcome) -> dict[str, Any]:
    operators = dict.fromkeys(report.operator for report in batch.reports)
    return {
        "rows": batch.rows,
        "seconds": batch.seconds,
        "committed_at": batch.committed_at,
        "attempt": batch.attempt,
        "moving": batch.moving,
        "imbalance": {operator: imbalance(batch, operator) for operator in operators},
        "capacities": [
            {"operator": operator, "instance": instance, "rows_per_second": capacity}
            for (operator, instance), capacity in sorted(batch.capacities.items())
        ],
        "locality": [
            {"operator": operator, "to": consumer, "share": share} for (operator, consumer), share in locality(batch).items()
        ],
        "messages": [
            {"operator": operator, "count": sent.count, "bytes": sent.bytes} for operator, sent in batch.messages.items()
        ],
        "reports": [report.to_wire() for report in batch.reports],
        "source_reports": [report.to_wire() for report in batch.source_reports],
    }
