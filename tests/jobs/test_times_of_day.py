"""Times of day that Python has not (24:00, nanoseconds) reach a TupleOperator as texts: none becomes another without a word."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stages import Flow, manifest

from streamtopology.jobs.columnar.python_values import python_values
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS

OWN = """
import pyarrow as pa
from streamtopology.api import TupleOperator


class Same(TupleOperator):
    def prepare(self, inputs, key):
        super().prepare(inputs, key)
        (self.output,) = inputs.values()
        return self.output

    def process_tuple(self, row, state):
        return row
"""


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        ("TIME '24:00:00'", "24:00:00"),
        ("[TIME '24:00:00']", "24:00:00"),
        ("'01:02:03.000000004'::TIME_NS", "01:02:03.000000004"),
    ],
)
def test_time_of_day_that_python_has_not_is_refused_by_name(tmp_path: Path, odd: str, text: str) -> None:
    (tmp_path / "own.py").write_text(OWN)
    usual = odd.replace("24:00:00", "12:00:00").replace(".000000004", ".000004")
    select = ["k", f"CASE WHEN k = 7 THEN {odd} ELSE {usual} END AS t"]
    shuffle = {"policy": "shuffle"}
    times = {"name": "times", "inputs": ["s"], "grouping": shuffle, "run": "map", "with": {"select": select}}
    own = {"name": "own", "inputs": ["times"], "grouping": shuffle, "run": "own.py:Same"}
    flow = Flow(tmp_path, manifest([times, own], {"s": "k BIGINT"}, onBadTuple="deadLetter"))
    flow.batch(s=pa.table({"k": pa.array([1, 7, 2], pa.int64())}))
    assert sorted(flow.published("own").column("k").to_pylist()) == [1, 2]
    (letter,) = flow.published(DEAD_LETTERS).to_pylist()
    assert "Same emits" in letter["reason"]
    assert text in json.dumps(json.loads(letter["tuple"])["t"])


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@given(st.sampled_from(list(UNITS)), st.data())
def test_values_of_times_of_day_are_exact(unit: str, data: st.DataObject) -> None:
    per_second, is_wide = UNITS[unit], unit in ("us", "ns")
    ticks = data.draw(st.lists(st.none() | st.integers(0, 86_400 * per_second), max_size=4))
    kind = pa.time64(unit) if is_wide else pa.time32(unit)
    column = pa.array(ticks, pa.int64() if is_wide else pa.int32()).view(kind)
    for tick, value in zip(ticks, python_values(column), strict=True):
        if tick is None or not isinstance(value, str):
            assert value == (None if tick is None else python_time(tick, per_second))
        else:
            clock, _, part = value.partition(".")
            hours, minutes, seconds = map(int, clock.split(":"))
            whole = (hours * 60 + minutes) * 60 + seconds
            assert whole * 10**9 + int(part.ljust(9, "0")) == tick * 10**9 // per_second


def python_time(tick: int, per_second: int) -> dt.time:
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=tick // per_second)
    nanoseconds = tick % per_second * 10**9 // per_second
    assert nanoseconds % 1000 == 0
    return moment.time().replace(microsecond=nanoseconds // 1000)
