"""What a controller outside the driver needs to know of a run: the JSON value served at `/stats` (docs/stats.md)."""

from __future__ import annotations

from typing import Any

from streamtopology.jobs.history import BatchOutcome, History
from streamtopology.jobs.measures import imbalance, locality, recent_rate
from streamtopology.routing.epoch import Epoch

STATS_VERSION = 1


def build_stats(history: History, routing: Epoch | None = None) -> dict[str, Any]:
    """The run as it stands after its last committed batch, and the epoch that batches run under; pure and JSON-able."""
    batches = history.batches
    last = batches[-1] if batches else None
    return {
        "version": STATS_VERSION,
        "topology": history.topology,
        "phase": history.phase,
        "epoch": last.epoch if last else None,
        "batch": last.number if last else None,
        "rows_per_second": recent_rate(batches),
        "slots": [
            {"index": slot.index, "executor": slot.executor, "class": slot.class_name, "cpu": slot.cpu}
            for slot in history.slots
        ],
        "policies": dict(history.policies),
        "routing": routing.to_wire() if routing else None,
        "last_batch": _batch(last) if last else None,
    }


def _batch(batch: BatchOutcome) -> dict[str, Any]:
    operators = dict.fromkeys(report.operator for report in batch.reports)
    return {
        "rows": batch.rows,
        "seconds": batch.seconds,
        "committed_at": batch.committed_at,
        "attempt": batch.attempt,
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
