"""applyInPandasWithState on our engine: its state and timeouts as Spark says, with lost attempts, rebuilt from deltas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pandas
import pyarrow as pa
import pytest
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from support.processor_store import Store

from streamtopology.jobs.operators.base import BadTuple
from streamtopology.jobs.operators.processors.group_state import GroupStateProcessor, time_mode_of

SCHEMA = pa.schema({"k": pa.int64(), "n": pa.int64(), "at": pa.timestamp("us", "UTC")})
OUTPUT = "k bigint, said string"
Frames = Iterator[pandas.DataFrame]


def rows(*given: tuple[int, int, int]) -> pa.RecordBatch:
    """Rows (key, n, second)."""
    table = [{"k": key, "n": n, "at": datetime.fromtimestamp(second, UTC)} for key, n, second in given]
    return pa.RecordBatch.from_pylist(table, SCHEMA)


def summed(key: tuple[int], frames: Frames, state: GroupState) -> Frames:
    """Adds up; a key that has no rows for 10 seconds of event time gives its sum and is forgotten."""
    if state.hasTimedOut:
        assert [list(frame.columns) for frame in frames] == [["k", "n", "at"]]
        yield pandas.DataFrame({"k": [key[0]], "said": [f"over with {state.get[0]}"]})
        state.remove()
        return
    newest = state.getCurrentWatermarkMs()
    total = state.get[0] if state.exists else 0
    for frame in frames:
        total += int(frame["n"].sum())
        newest = max(newest, int(frame["at"].max().timestamp() * 1000))
    state.update((total,))
    state.setTimeoutTimestamp(newest + 10_000)
    yield pandas.DataFrame([[key[0], f"has {total}"]])  # by position, as it has no names


def processor(function: Callable[..., Any], timeout: str) -> type[StatefulProcessor]:
    class Made(GroupStateProcessor):
        def __init__(self) -> None:
            super().__init__(function, "total bigint", SCHEMA.names, ["k", "said"], timeout, has_watermark=True)

    return Made


def store(function: Callable[..., Any], timeout: str) -> Store:
    mode = time_mode_of(timeout)
    timed = {"time": "at"} if mode == "EventTime" else {}
    return Store(processor(function, timeout), OUTPUT, SCHEMA, timeMode=mode, form="pandas", **timed)


@pytest.mark.parametrize("lost", [0, 2])
def test_a_key_times_out_once_the_watermark_is_behind_its_timeout(lost: int) -> None:
    kept = store(summed, GroupStateTimeout.EventTimeTimeout)
    assert kept.batch(rows((1, 2, 100), (2, 5, 100), (1, 3, 101)), lost) == [
        {"k": 1, "said": "has 5"},
        {"k": 2, "said": "has 5"},
    ]
    assert kept.batch(rows((1, 1, 105)), lost, watermark=110.0) == [{"k": 1, "said": "has 6"}], (
        "not at 110, of key 2: behind it"
    )
    assert kept.batch(rows(), lost, watermark=110.001) == [{"k": 2, "said": "over with 5"}]
    assert kept.batch(rows((2, 7, 112)), lost, watermark=112.0, closed_until=110.001) == [{"k": 2, "said": "has 7"}]
    assert kept.batch(rows(), lost, watermark=500.0) == [{"k": 1, "said": "over with 6"}, {"k": 2, "said": "over with 7"}]
    assert len(kept.state) == 0


def reminded(key: tuple[int], frames: Frames, state: GroupState) -> Frames:
    """Sets a timeout in its first call only: the next call forgets it."""
    if state.hasTimedOut:
        yield pandas.DataFrame({"k": [key[0]], "said": ["reminded"]})
    elif not state.exists:
        state.update((1,))
        state.setTimeoutDuration(5_000)


def test_a_timeout_is_forgotten_by_a_call_that_does_not_set_it_again() -> None:
    kept = store(reminded, GroupStateTimeout.ProcessingTimeTimeout)
    assert kept.batch(rows((1, 0, 0), (2, 0, 0)), now=1000.0) == []
    assert kept.batch(rows((2, 0, 0)), now=1002.0) == []
    assert kept.batch(rows(), now=1005.0) == [], "at the very time it is not over yet"
    assert kept.batch(rows(), now=1005.001) == [{"k": 1, "said": "reminded"}]
    assert kept.batch(rows(), now=9999.0) == []
    assert len(kept.state) == 2, "the values stay"


def test_a_function_that_returns_a_frame_is_named_with_its_line() -> None:
    def whole(key: Any, frames: Any, state: Any) -> Any:
        return pandas.DataFrame({"k": [1], "said": ["x"]})

    def broken(key: Any, frames: Any, state: Any) -> Any:
        raise KeyError("no table")

    with pytest.raises(BadTuple, match=r"whole.*TypeError: whole returns a DataFrame; yield it"):
        store(whole, GroupStateTimeout.NoTimeout).batch(rows((1, 0, 0)))
    with pytest.raises(
        BadTuple, match=r"broken.handleInputRows raised KeyError: 'no table' on key k=1 \(test_group_state.py, line"
    ):
        store(broken, GroupStateTimeout.NoTimeout).batch(rows((1, 0, 0)))
