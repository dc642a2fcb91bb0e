"""The watermark: the slowest partition that still counts decides, and it never goes back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.jobs.checkpoint import CommitRecord
from streamtopology.jobs.driver.watermarks import END_OF_TIME, Poll, Watermarks
from streamtopology.topology import Source, Watermark


def source(name: str, delay: float = 0.0, idle: float = 60.0) -> Source:
    return Source(name, "parquet", "at BIGINT", {}, (), None, Watermark("at", delay, idle))


def at(seconds: float) -> Poll:
    return Poll(seconds, seconds)


def saw(**newest: float) -> dict[str, dict[str, float]]:
    return {name: {"": time} for name, time in newest.items()}


def restarted(marks: Watermarks, sources: list[Source]) -> Watermarks:
    """The marks of the next run, from the record of the newest commit."""
    times = {"max_event_times": marks.newest(), "silent_since": marks.silent_since()}
    again = Watermarks(sources)
    again.restore(CommitRecord(1, 1, 1, 1, {}, {}, marks.current(), rows_in=0, **times), marks.closed_until())
    return again


def test_the_slowest_source_decides_after_its_delay() -> None:
    marks = Watermarks([source("a", delay=5), source("b", delay=30)])
    marks.advance(saw(a=100.0), at(0))
    assert marks.current() is None, "nothing is known of b"
    marks.advance(saw(b=120.0), at(1))
    assert marks.current() == 90.0
    marks.advance(saw(b=200.0), at(2))
    assert marks.current() == 95.0


def test_the_slowest_partition_of_a_source_decides_until_it_is_idle() -> None:
    marks = Watermarks([source("a", idle=60)])
    marks.advance({"a": {"t/0": 100.0, "t/1": 40.0}}, at(0))
    assert marks.current() == 40.0
    marks.advance({"a": {"t/0": 200.0}}, at(1))
    marks.advance({"a": {"t/0": 300.0}}, at(60))
    assert marks.current() == 40.0
    marks.advance({"a": {"t/0": 300.0}}, at(61))
    assert marks.current() == 300.0
    marks.advance({"a": {"t/0": 400.0, "t/1": 350.0}}, at(62))
    assert marks.current() == 350.0
    assert marks.newest() == {"a/t/0": 400.0, "a/t/1": 350.0}


def test_an_idle_source_holds_no_one_back_and_may_come_back_late() -> None:
    marks = Watermarks([source("a"), source("b", idle=60)])
    marks.advance(saw(a=100.0, b=50.0), at(0))
    marks.advance(saw(a=150.0), at(10))
    assert marks.current() == 50.0
    marks.advance(saw(a=200.0), at(70))
    assert marks.current() == 200.0
    marks.advance(saw(b=60.0), at(71))
    assert marks.current() == 200.0, "it never goes back"


def test_a_batch_longer_than_the_idle_timeout_makes_no_source_idle() -> None:
    marks = Watermarks([source("a"), source("b", idle=60)])
    marks.advance(saw(a=100.0, b=50.0), at(0))
    marks.advance(saw(a=150.0), Poll(after=1.0, before=1.5))
    marks.advance(saw(a=200.0), Poll(after=2.0, before=600.0))  # asked somewhere between: the batch before took so long
    assert marks.current() == 50.0
    marks.advance(saw(a=250.0, b=220.0), Poll(after=600.0, before=600.5))
    assert marks.current() == 220.0


def test_a_source_heard_in_an_earlier_part_of_what_a_poll_found_is_not_silent() -> None:
    marks = Watermarks([source("a"), source("b", idle=60)])
    marks.advance(saw(a=100.0, b=50.0), at(0))
    marks.advance(saw(a=150.0), at(10))
    marks.advance(saw(a=200.0, b=60.0), None)
    marks.advance(saw(a=250.0), at(100))
    marks.advance(saw(a=300.0), at(130))
    assert marks.current() == 60.0, "the poll of second 100 found b, and the one after it was the first in vain"
    marks.advance(saw(a=350.0), at(190))
    assert marks.current() == 350.0


def test_a_batch_without_a_poll_makes_no_source_idle() -> None:
    marks = Watermarks([source("a"), source("b", idle=60)])
    marks.advance(saw(a=100.0, b=50.0), at(0))
    marks.advance(saw(a=200.0), at(10))
    for _ in range(3):
        marks.advance({}, None)
    assert marks.current() == 50.0


def test_source_without_any_row_holds_the_others_until_it_is_idle() -> None:
    marks = Watermarks([source("a"), source("b", idle=60)])
    marks.advance(saw(a=100.0), at(0))
    assert marks.current() is None
    marks.advance(saw(a=200.0), at(60))
    assert marks.current() == 200.0


def test_a_single_source_keeps_its_watermark_and_sources_without_times_do_not_count() -> None:
    marks = Watermarks([source("a"), Source("plain", "parquet", "k BIGINT", {}, (), None, None)])
    assert marks.current() is None
    marks.advance(saw(a=10.0, plain=3.0), at(0))
    marks.advance({}, at(10_000))
    marks.advance({}, at(20_000))
    assert marks.current() == 10.0


def test_restart_resumes_from_the_committed_watermark() -> None:
    marks = Watermarks([source("a"), source("b", idle=60)])
    marks.advance(saw(a=100.0, b=50.0), at(0))
    marks.advance(saw(a=150.0), at(1))
    marks.advance(saw(a=200.0), at(61))
    again = restarted(marks, [source("a"), source("b", idle=60)])
    assert again.current() == 200.0, "b counts again, but windows up to 200 have been closed"
    again.advance(saw(a=300.0, b=250.0), at(70))
    assert again.current() == 250.0


def test_silence_lasts_through_restarts() -> None:
    sources, day = [source("a"), source("b", idle=60)], 86_400.0
    marks = Watermarks(sources)
    marks.advance(saw(a=100.0, b=50.0), at(0))
    marks = restarted(marks, sources)
    marks.advance(saw(a=200.0), at(day))
    assert (marks.current(), marks.held_back_by()) == (50.0, ["b"]), "one poll in vain is no silence yet"
    marks = restarted(marks, sources)
    marks.advance({}, None)
    marks = restarted(marks, sources)
    marks.advance(saw(a=300.0), at(2 * day))
    assert (marks.current(), marks.held_back_by()) == (300.0, [])
    marks = restarted(marks, sources)
    marks.advance(saw(a=400.0, b=350.0), at(3 * day))
    assert (marks.current(), marks.silent_since()) == (350.0, {})


def test_a_clock_that_was_set_back_between_two_runs_makes_no_source_idle_early() -> None:
    sources = [source("a"), source("b", idle=60)]
    marks = Watermarks(sources)
    marks.advance(saw(a=100.0, b=50.0), at(0))
    marks.advance(saw(a=200.0), at(1_000))
    marks = restarted(marks, sources)
    marks.advance(saw(a=300.0), at(10))
    marks.advance(saw(a=400.0), at(69))
    assert marks.current() == 50.0
    marks.advance(saw(a=500.0), at(70))
    assert marks.current() == 500.0


def test_who_holds_the_watermark_back_is_silent_and_behind_the_others() -> None:
    marks = Watermarks([source("a"), source("b"), source("c"), source("never")])
    marks.advance({"a": {"t/0": 100.0, "t/1": 70.0}, "b": {"": 60.0}, "c": {"": 300.0}}, at(0))
    assert marks.held_back_by() == ["never"]
    marks.advance({"a": {"t/0": 200.0}, "b": {"": 80.0}}, at(1))
    assert marks.held_back_by() == ["a/t/1", "never"], "b is no further than 80, and c is silent but ahead"
    marks.advance({}, at(2))
    assert marks.held_back_by() == [], "nobody is ahead who is not silent"


def test_partitions_replace_the_source_as_a_whole_once_it_has_some() -> None:
    marks = Watermarks([source("a")])
    marks.advance(saw(a=100.0), at(0))
    marks = restarted(marks, [source("a")])
    marks.advance({"a": {"t/0": 200.0}}, at(0))
    assert marks.current() == 200.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300, -1e300, END_OF_TIME + 1])
def test_time_that_is_none_is_never_committed(bad: float) -> None:
    marks = Watermarks([source("a")])
    marks.advance(saw(a=bad), at(0))
    assert (marks.current(), marks.newest()) == (None, {})


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "t/0"]), st.floats(0, 1e6), st.floats(0, 100))))
def test_it_never_goes_back(events: list[tuple[str, str, float, float]]) -> None:
    now = 0.0
    marks = Watermarks([source("a", delay=3), source("b", delay=9, idle=120)])
    last = -math.inf
    for name, partition, time, passed in events:
        now += passed
        marks.advance({name: {partition: time}}, at(now))
        current = marks.current()
        assert current is None or current >= last
        assert marks.closed_until() == (None if last == -math.inf else last)
        last = last if current is None else current
