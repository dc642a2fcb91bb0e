"""`examples/sessions.py`, without Spark: what a session is, when it is emitted, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamtopology.api import BatchInfo, OptionError, Rows, new_state
from streamtopology.jobs.operators import load

Sessions = load("sessions.py:Sessions", Path(__file__).parents[2] / "examples")
NOON = datetime(2025, 1, 31, 12, tzinfo=UTC)


def clicks(*given: tuple[str, float]) -> pa.RecordBatch:
    times = [NOON + timedelta(seconds=second) for _, second in given]
    return pa.record_batch({"user": [user for user, _ in given], "at": pa.array(times, pa.timestamp("us", tz="UTC"))})


def emitted(*batches: tuple[pa.RecordBatch, float | None], final: bool = False) -> list[list[tuple[Any, ...]]]:
    """(user, start, end, tuples) of the sessions that each batch emits under its watermark; seconds from noon."""
    operator = Sessions(time="at", pause="10s")
    operator.prepare({"clicks": batches[0][0].schema}, ("user",))
    state, found, closed = new_state(operator.state), [], None
    for number, (batch, watermark) in enumerate(batches):
        seconds = None if watermark is None else NOON.timestamp() + watermark
        info = BatchInfo(number, seconds, final=final and number == len(batches) - 1, closed_until=closed)
        closed = seconds
        operator.begin(info)
        outputs = [operator.accept(Rows.of(batch, "clicks", ("user",)), state), operator.finish(info, state)]
        rows = [row for output in outputs if output is not None for row in output.to_pylist()]
        found.append([(row["user"], since_noon(row["start"]), since_noon(row["end"]), row["tuples"]) for row in rows])
    return found


def since_noon(at: datetime) -> float:
    return (at - NOON).total_seconds()


def test_pause_ends_a_session_and_the_next_tuple_emits_it():
    assert emitted((clicks(("a", 0), ("a", 10), ("b", 5), ("a", 20.5)), None)) == [[("a", 0, 10, 2)]]


def test_watermark_behind_the_pause_closes_a_session():
    assert emitted((clicks(("a", 0)), None), (clicks(("b", 19)), 9), (clicks(("b", 20)), 10)) == [[], [], [("a", 0, 0, 1)]]


def test_end_of_the_input_closes_every_session():
    assert emitted((clicks(("a", 0), ("b", 3)), None), final=True) == [[("a", 0, 0, 1), ("b", 3, 3, 1)]]


def test_tuple_before_the_session_extends_it_and_a_late_one_does_not():
    batches = (clicks(("a", 50), ("a", 42), ("a", 30)), 20), (clicks(("a", 19)), 20)
    assert emitted(*batches, final=True) == [[], [("a", 42, 50, 2)]]


def test_watermark_of_its_own_batch_makes_no_tuple_late():
    assert emitted((clicks(("a", 50)), None), (clicks(("a", 42), ("b", 43)), 45), final=True) == [
        [],
        [("a", 42, 50, 2), ("b", 43, 43, 1)],
    ]


def test_wrong_options_are_refused():
    with pytest.raises(OptionError, match="longer than 0"):
        Sessions(time="at", pause="0s")
    with pytest.raises(OptionError, match="a column of timestamps"):
        Sessions(time="user", pause="10s").prepare({"clicks": clicks(("a", 0)).schema}, ("user",))
