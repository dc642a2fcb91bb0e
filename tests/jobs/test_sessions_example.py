"""`examples/sessions.py`, without Spark: what a session is, and when it is emitted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamtopology.api import BatchInfo, Rows, new_state
from streamtopology.jobs.operators import load

Sessions = load("sessions.py:Sessions", Path(__file__).parents[2] / "examples")
NOON = datetime(2025, 1, 31, 12, tzinfo=UTC)
OPTIONS: dict[str, Any] = {
    "output": "symbol string, start timestamp, end timestamp, rows bigint",
    "timeMode": "EventTime",
    "time": "at",
    "args": {"pause": 10},
}


def trades(*given: tuple[str, float]) -> pa.RecordBatch:
    times = [NOON + timedelta(seconds=second) for _, second in given]
    return pa.record_batch({"symbol": [symbol for symbol, _ in given], "at": pa.array(times, pa.timestamp("us", tz="UTC"))})


def emitted(*batches: tuple[pa.RecordBatch, float | None], final: bool = False) -> list[list[tuple[Any, ...]]]:
    """(symbol, start, end, rows) of the sessions that each batch emits under its watermark; seconds from noon."""
    operator = Sessions(**OPTIONS)
    operator.prepare({"trades": batches[0][0].schema}, ("symbol",))
    state, found, closed = new_state(operator.state), [], None
    for number, (batch, watermark) in enumerate(batches):
        seconds = None if watermark is None else NOON.timestamp() + watermark
        info = BatchInfo(number, seconds, final=final and number == len(batches) - 1, closed_until=closed)
        closed = seconds
        operator.begin(info)
        outputs = [operator.accept(Rows.of(batch, "trades", ("symbol",)), state), operator.finish(info, state)]
        rows = [row for output in outputs if output is not None for row in output.to_pylist()]
        found.append([(row["symbol"], since_noon(row["start"]), since_noon(row["end"]), row["rows"]) for row in rows])
    return found


def since_noon(at: datetime) -> float:
    return (at - NOON).total_seconds()


def test_watermark_behind_the_pause_closes_a_session():
    assert emitted((trades(("a", 0)), None), (trades(("b", 19)), 9), (trades(("b", 20)), 10)) == [[], [], [("a", 0, 0, 1)]]


def test_end_of_the_input_closes_every_session():
    batch = trades(("a", 0), ("a", 10), ("b", 3), ("a", 20.5))
    assert sorted(emitted((batch, None), final=True)[0]) == [("a", 0, 10, 2), ("a", 20.5, 20.5, 1), ("b", 3, 3, 1)]


def test_rows_out_of_order_make_the_sessions_of_sparks_session_window():
    """The cases of the recipe that it once got wrong."""
    assert emitted((trades(("a", 0), ("a", 100), ("a", 40), ("a", 42)), None), final=True) == [
        [("a", 0, 0, 1), ("a", 40, 42, 2), ("a", 100, 100, 1)]
    ]
    assert emitted((trades(("a", 0), ("a", 15)), None), (trades(("a", 8)), None), final=True) == [[], [("a", 0, 15, 3)]]


def test_row_at_the_watermark_of_the_batch_before_is_late():
    batches = (trades(("a", 50), ("a", 42), ("a", 30)), 20), (trades(("a", 20), ("a", 21)), 20)
    assert emitted(*batches, final=True) == [[], [("a", 21, 30, 2), ("a", 42, 50, 2)]]
