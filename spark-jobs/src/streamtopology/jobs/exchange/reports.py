"""Reports of tasks to the driver, as they travel in envelopes: one byte for the type, then JSON.

Driver and executors run the same version, so that the JSON has one reader and needs no compatibility with others.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from streamtopology.jobs.checkpoint import StateRef
from streamtopology.jobs.plan.results import Compacted, FailureKind, InstanceResult, MovedState, SourceResult, TaskFailure
from streamtopology.jobs.plan.span import Span
from streamtopology.routing.load.load_report import LoadReport, SourceReport

Report = InstanceResult | SourceResult | MovedState | TaskFailure

_INSTANCE, _SOURCE, _MOVED, _FAILURE = b"I", b"S", b"M", b"F"


def encode(report: Report) -> bytes:
    match report:
        case InstanceResult():
            return _INSTANCE + _json(_of_instance(report))
        case SourceResult():
            return _SOURCE + _json({**vars(report), "report": report.report.to_wire(), "span": vars(report.span)})
        case MovedState():
            return _MOVED + _json(report.moves)
        case TaskFailure():
            return _FAILURE + _json({**vars(report), "kind": report.kind.value})


def decode(payload: bytes) -> Report:
    kind, wire = payload[:1], json.loads(payload[1:])
    match kind:
        case b"I":
            return _instance(wire)
        case b"S":
            return SourceResult(**{**wire, "report": SourceReport.from_wire(wire["report"]), "span": Span(**wire["span"])})
        case b"M":
            return MovedState([(node, keys, size) for node, keys, size in wire])
        case b"F":
            return TaskFailure(**{**wire, "kind": FailureKind(wire["kind"])})
        case _:
            raise ValueError(f"unknown report {kind!r}: driver and executors run different versions; run one version on all")


def _of_instance(result: InstanceResult) -> dict[str, Any]:
    compacted = None if result.compacted is None else asdict(result.compacted)
    held = {"report": result.report.to_wire(), "span": vars(result.span), "adopted": list(result.adopted)}
    return {**vars(result), **held, "compacted": compacted}


def _instance(wire: dict[str, Any]) -> InstanceResult:
    compacted = wire["compacted"]
    if compacted is not None:
        covered = compacted["covered"]
        compacted = Compacted(**{**compacted, "covered": StateRef(**{**covered, "deltas": tuple(covered["deltas"])})})
    held = {"report": LoadReport.from_wire(wire["report"]), "span": Span(**wire["span"])}
    return InstanceResult(**{**wire, **held, "compacted": compacted})


def _json(wire: Any) -> bytes:
    return json.dumps(wire).encode()
