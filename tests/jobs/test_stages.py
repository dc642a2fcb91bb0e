"""Seconds of tasks as the driver counts them: from the barrier before a stage to the task's own end."""

from __future__ import annotations

import pytest

from streamtopology.jobs.stages import Results, Turned, between_barriers
from streamtopology.routing.report import LoadReport, SourceReport

LEVELS = {"first": 1, "second": 2}


def a_turn(operator: str, instance: int, slot: int, busy: float, left_at: float) -> Turned:
    return Turned(LoadReport(operator, instance, slot, 10, busy, busy), None, {}, None, left_at)


def results() -> Results:
    """Two sources, the slower left at 101.5; two turns of one slot and one of another, until 103; then one more stage."""
    turns = [
        a_turn("first", 0, 0, 0.3, 102.0),
        a_turn("first", 1, 1, 1.2, 103.0),
        a_turn("first", 2, 0, 0.5, 102.5),
        a_turn("second", 0, 0, 0.1, 103.4),
    ]
    sources = [SourceReport(0, 50, 0.9, 0.9), SourceReport(1, 50, 0.2, 0.2)]
    return Results(turns=turns, sources=sources, sources_left_at=[101.0, 101.5])


def seconds_of(timed: Results) -> dict[tuple[str, int], float]:
    return {(t.report.operator, t.report.instance): round(t.report.task_seconds, 6) for t in timed.turns}


def test_a_turn_counts_from_the_slowest_task_of_the_stage_before_to_its_own_end() -> None:
    timed = between_barriers(results(), 100.0, LEVELS.__getitem__, read_ahead=False)
    assert [source.task_seconds for source in timed.sources] == [1.0, 1.5]
    assert seconds_of(timed)["first", 1] == 1.5
    assert seconds_of(timed)["second", 0] == pytest.approx(0.4)


def test_turns_of_one_slot_share_what_the_stage_took_there_beside_their_work() -> None:
    timed = between_barriers(results(), 100.0, LEVELS.__getitem__, read_ahead=False)
    assert seconds_of(timed)["first", 0] == pytest.approx(0.3 + 0.1)
    assert seconds_of(timed)["first", 2] == pytest.approx(0.5 + 0.1)


def test_a_source_that_was_read_ahead_took_no_less_than_its_work_and_the_first_barrier_is_the_batchs_start() -> None:
    timed = between_barriers(results(), 102.2, LEVELS.__getitem__, read_ahead=True)
    assert [(source.task_seconds, source.ahead) for source in timed.sources] == [(0.9, True), (0.2, True)]
    assert seconds_of(timed)["first", 0] == 0.3  # it was over before the batch began: nothing beside its work
    assert seconds_of(timed)["first", 1] == 1.2  # 0.8 s after the start, yet never less than its work
