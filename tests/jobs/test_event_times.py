"""Event times in columns of every type, and the newest that a source task counts."""

from __future__ import annotations

import datetime
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopology.jobs.columnar.event_times import FIRST_SECOND, LAST_SECOND, event_micros
from streamtopology.jobs.worker.source_task import EventTimes
from streamtopology.topology import Watermark

DAY = 86_400


@pytest.mark.parametrize(
    "column",
    [
        pa.array([DAY, None]),
        pa.array([DAY, None], pa.int32()),
        pa.array([DAY, None], pa.float32()),
        pa.array([DAY, 2**63], pa.uint64()),
        pa.array([DAY, 2**64 - 1], pa.uint64()),
        pa.array([float(DAY), math.nan]),
        pa.array([float(DAY), math.inf]),
        pa.array([float(DAY), 1e300]),
        pa.array([DAY, LAST_SECOND + 1]),
        pa.array([datetime.date(1970, 1, 2), None]),
        pa.array([datetime.date(1970, 1, 2), None], pa.date64()),
        pa.array([DAY, None]).cast(pa.timestamp("s")),
        pa.array([DAY * 10**3, None]).cast(pa.timestamp("ms")),
        pa.array([DAY * 10**6, None]).cast(pa.timestamp("us")),
        pa.array([DAY * 10**9, None]).cast(pa.timestamp("ns", "UTC")),
        pa.array([DAY, 2**62]).cast(pa.timestamp("s")),
        pa.array([DAY * 10**6, 2**63 - 1]).cast(pa.timestamp("us", "Europe/Berlin")),
    ],
    ids=lambda column: str(column.type),
)
def test_a_time_of_every_type_is_microseconds_and_the_second_value_is_none(column: pa.Array) -> None:
    micros, valid = event_micros(column)
    assert micros.dtype == np.int64
    assert micros[0] == DAY * 1_000_000
    assert valid is not None
    assert valid.tolist() == [True, False]


def test_times_before_1970_round_down() -> None:
    assert event_micros(pa.array([-1.5, -0.0000005]))[0].tolist() == [-1_500_000, -1]
    assert event_micros(pa.array([-1], pa.timestamp("ns")))[0].tolist() == [-1]
    assert event_micros(pa.array([], pa.float64()))[0].tolist() == []


UNITS = {"s": 10**6, "ms": 10**3, "us": 1, "ns": Fraction(1, 1000)}


@given(st.sampled_from(["number", "unsigned", *UNITS]), st.lists(st.integers(-(2**63), 2**64 - 1), min_size=1, max_size=5))
def test_micros_of_a_time_are_exact_or_it_is_none(unit: str, values: list[int]) -> None:
    kind = {"number": pa.int64(), "unsigned": pa.uint64()}.get(unit) or pa.timestamp(unit)
    low, high = (0, 2**64 - 1) if unit == "unsigned" else (-(2**63), 2**63 - 1)
    values = [min(max(value, low), high) for value in values]
    plain = pa.array(values, pa.uint64() if unit == "unsigned" else pa.int64())
    micros, valid = event_micros(plain if kind == plain.type else plain.view(kind))
    exact = [math.floor(value * UNITS.get(unit, 10**6)) for value in values]
    years = [FIRST_SECOND * 10**6 <= one < (LAST_SECOND + 1) * 10**6 for one in exact]
    assert (valid is None and all(years)) or (valid is not None and valid.tolist() == years)
    assert [int(one) for one, is_time in zip(micros, years, strict=True) if is_time] == [
        one for one, is_time in zip(exact, years, strict=True) if is_time
    ]


def noted(times: list[float | None], places: list[int] | None = None, now: float = 1000.0) -> EventTimes:
    seen = EventTimes(Watermark("t", max_ahead_seconds=60), now)
    seen.note(pa.array(times, pa.float64()), ["p", "q"], None if places is None else np.array(places, np.int32))
    return seen


def test_time_too_far_ahead_of_the_clock_does_not_count_as_newest() -> None:
    seen = noted([10.0, 1060.0, 1060.5, 9e9, math.nan, math.inf, None])
    assert (seen.newest, seen.rows_ahead) == ({"p": 1060.0}, 2)
    assert noted([9e9]).newest == {}


def test_each_partition_has_its_newest_time() -> None:
    assert noted([5.0, 7.0, 3.0, 9.0, None], [0, 0, 1, 1, 1]).newest == {"p": 7.0, "q": 9.0}
    assert noted([5.0, math.nan, 3.0, 9.0], [1, 1, 0, 1]).newest == {"p": 3.0, "q": 9.0}
    assert noted([math.nan, 3.0], [1, 0]).newest == {"p": 3.0}
