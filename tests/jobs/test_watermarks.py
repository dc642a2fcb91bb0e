"""The watermark: the slowest source that still counts decides, and it never goes back."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.jobs.source_reader import epoch_seconds
from streamtopology.jobs.watermarks import Watermarks
from streamtopology.routing.report import SourceReport
from streamtopology.routing.topology import Source, Watermark


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def source(name: str, delay: float = 0.0, idle: float = 60.0) -> Source:
    return Source(name, "parquet", "at BIGINT", {}, (), None, Watermark("at", delay, idle))


def saw(**newest: float) -> list[SourceReport]:
    """Two tasks; only one of them saw the newest times."""
    older = {name: time - 7 for name, time in newest.items()}
    return [SourceReport(slot, 1, 0.0, 0.0, seen) for slot, seen in enumerate((older, newest))]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_slowest_source_decides_after_its_delay(clock: Clock) -> None:
    marks = Watermarks([source("a", delay=5), source("b", delay=30)], clock)
    marks.advance(saw(a=100.0))
    assert marks.current() is None, "nothing is known of b"
    marks.advance(saw(b=120.0))
    assert marks.current() == 90.0
    marks.advance(saw(b=200.0))
    assert marks.current() == 95.0


def test_an_idle_source_holds_no_one_back_and_may_come_back_late(clock: Clock) -> None:
    marks = Watermarks([source("a"), source("b", idle=60)], clock)
    marks.advance(saw(a=100.0, b=50.0))
    clock.now += 61
    marks.advance(saw(a=200.0))
    assert marks.current() == 200.0
    marks.advance(saw(b=60.0))
    assert marks.current() == 200.0, "it never goes back"


def test_a_single_source_is_never_idle_and_sources_without_times_do_not_count(clock: Clock) -> None:
    marks = Watermarks([source("a"), Source("plain", "parquet", "k BIGINT", {}, (), None, None)], clock)
    assert marks.current() is None
    marks.advance(saw(a=10.0))
    clock.now += 10_000
    marks.advance([])
    assert marks.current() == 10.0


def test_a_restart_goes_on_from_the_committed_watermark(clock: Clock) -> None:
    marks = Watermarks([source("a"), source("b", idle=60)], clock)
    marks.advance(saw(a=100.0, b=50.0))
    clock.now += 61
    marks.advance(saw(a=200.0))
    again = Watermarks([source("a"), source("b", idle=60)], clock)
    again.restore(marks.newest(), marks.current())
    assert again.current() == 200.0, "b counts again, but windows up to 200 have been closed"
    again.advance(saw(a=300.0, b=250.0))
    assert again.current() == 250.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 1e6), st.floats(0, 100))))
def test_it_never_goes_back(events: list[tuple[str, float, float]]) -> None:
    clock = Clock()
    marks = Watermarks([source("a", delay=3), source("b", delay=9, idle=120)], clock)
    last = -float("inf")
    for name, time, passed in events:
        clock.now += passed
        marks.advance(saw(**{name: time}))
        now = marks.current()
        assert now is None or now >= last
        last = last if now is None else now


@pytest.mark.parametrize(
    "value",
    [
        pa.scalar(86_400),
        pa.scalar(86_400.0),
        pa.scalar(datetime.date(1970, 1, 2)),
        pa.scalar(86_400_000, pa.int64()).cast(pa.timestamp("ms")),
        pa.scalar(86_400 * 10**9, pa.int64()).cast(pa.timestamp("ns", "UTC")),
    ],
    ids=str,
)
def test_event_times_of_every_type_are_epoch_seconds(value: pa.Scalar) -> None:
    assert epoch_seconds(value) == 86_400.0
