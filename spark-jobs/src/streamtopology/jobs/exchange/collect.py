"""From the envelopes of the last stage to the results of an attempt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa

from streamtopology.jobs.exchange.envelope import EnvelopeKind, sections
from streamtopology.jobs.exchange.reports import Report, decode
from streamtopology.jobs.plan.results import InstanceResult, MovedState, Results, SourceResult


def collect(blobs: Iterable[bytes | memoryview]) -> Results:
    """Read the envelopes that the last stage returned."""
    results = Results()
    for blob in blobs:
        for section in sections(pa.py_buffer(blob)):
            if section.kind is EnvelopeKind.REPORT:
                _add(results, decode(section.payload.to_pybytes()))
    results.instances.sort(key=_operator_and_instance)
    return results


def between_barriers(results: Results, started_at: float, level_of: Callable[[str], int], read_ahead: bool) -> Results:
    """`results` with each task's seconds counted from the barrier before its stage to its own end.

    A task does not see what Spark does before and after it on its executor, which is most of the fixed seconds of a run on a
    slow one. A stage ends for all when its slowest task does. `started_at` and all spans are by one clock. Sources that were
    prefetched (`read_ahead`) may have ended before that.
    """
    sources = [_source_seconds(task, started_at, read_ahead) for task in results.source_tasks]
    barrier = max([started_at, *(task.span.ended_at for task in results.source_tasks)])
    instances: list[InstanceResult] = []
    for level in sorted({level_of(result.report.operator) for result in results.instances}):
        stage = [result for result in results.instances if level_of(result.report.operator) == level]
        by_slot = defaultdict[int, list[InstanceResult]](list)
        for result in stage:
            by_slot[result.report.slot].append(result)
        for of_slot in by_slot.values():
            instances.extend(_share_stage(of_slot, barrier))
        barrier = max(result.span.ended_at for result in stage)
    return replace(results, instances=sorted(instances, key=_operator_and_instance), source_tasks=sources)


def _source_seconds(task: SourceResult, started_at: float, prefetched: bool) -> SourceResult:
    seconds = max(task.span.ended_at - started_at, task.report.busy_seconds)
    return replace(task, report=replace(task.report, task_seconds=seconds, ahead=prefetched))


def _share_stage(of_slot: list[InstanceResult], barrier: float) -> list[InstanceResult]:
    """The results of one slot in one stage, each with an equal part of the stage's time outside their runs."""
    busy = sum(result.report.busy_seconds for result in of_slot)
    part = max(max(result.span.ended_at for result in of_slot) - barrier - busy, 0.0) / len(of_slot)
    return [
        replace(result, report=replace(result.report, task_seconds=result.report.busy_seconds + part)) for result in of_slot
    ]


def _add(results: Results, report: Report) -> None:
    match report:
        case InstanceResult():
            results.instances.append(report)
        case SourceResult():
            results.source_tasks.append(report)
        case MovedState():
            results.handing_seconds = max(results.handing_seconds, report.seconds)
            for node, keys, size in report.moves:
                results.keys_moved[node] = results.keys_moved.get(node, 0) + keys
                results.bytes_moved[node] = results.bytes_moved.get(node, 0) + size
        case _:
            results.failures.append(report)


def _operator_and_instance(result: InstanceResult) -> tuple[str, int]:
    return result.report.operator, result.report.instance
