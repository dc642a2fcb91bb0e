"""Seconds of tasks as the driver counts them: from the barrier before a stage to the task's own end."""

from __future__ import annotations

import pytest

from streamtopology.jobs.exchange.collect import between_barriers
from streamtopology.jobs.plan.results import InstanceResult, Results, SourceResult
from streamtopology.jobs.plan.span import Span
from streamtopology.routing.load.load_report import LoadReport, SourceReport

LEVELS = {"first": 1, "second": 2}


def ran(operator: str, instance: int, slot: int, busy: float, ended_at: float) -> InstanceResult:
    return InstanceResult(LoadReport(operator, instance, slot, 10, busy, busy), None, {}, None, Span("boot", 100.0, ended_at))


def results() -> Results:
    """Two sources, the slower ended at 101.5; two runs of one slot and one of another, until 103; then one more stage."""
    instances = [
        ran("first", 0, 0, 0.3, 102.0),
        ran("first", 1, 1, 1.2, 103.0),
        ran("first", 2, 0, 0.5, 102.5),
        ran("second", 0, 0, 0.1, 103.4),
    ]
    sources = [
        SourceResult(SourceReport(0, 50, 0.9, 0.9), Span("boot", 100.0, 101.0)),
        SourceResult(SourceReport(1, 50, 0.2, 0.2), Span("boot", 100.0, 101.5)),
    ]
    return Results(instances, sources)


def seconds_of(timed: Results) -> dict[tuple[str, int], float]:
    return {(t.report.operator, t.report.instance): round(t.report.task_seconds, 6) for t in timed.instances}


def test_run_counts_from_slowest_task_of_stage_before_to_its_own_end() -> None:
    timed = between_barriers(results(), 100.0, LEVELS.__getitem__, read_ahead=False)
    assert [source.task_seconds for source in timed.sources] == [1.0, 1.5]
    assert seconds_of(timed)["first", 1] == 1.5
    assert seconds_of(timed)["second", 0] == pytest.approx(0.4)


def test_runs_of_one_slot_share_the_stages_overhead() -> None:
    timed = between_barriers(results(), 100.0, LEVELS.__getitem__, read_ahead=False)
    assert seconds_of(timed)["first", 0] == pytest.approx(0.3 + 0.1)
    assert seconds_of(timed)["first", 2] == pytest.approx(0.5 + 0.1)


def test_prefetched_source_takes_no_less_than_its_work() -> None:
    timed = between_barriers(results(), 102.2, LEVELS.__getitem__, read_ahead=True)
    assert [(source.task_seconds, source.ahead) for source in timed.sources] == [(0.9, True), (0.2, True)]
    assert seconds_of(timed)["first", 0] == 0.3  # it ended before the batch began: no overhead
    assert seconds_of(timed)["first", 1] == 1.2  # 0.8 s after the start, yet never less than its work
