"""Batches within a latency: how many rows they may have, and that a range is read in parts of about that size."""

from __future__ import annotations

import math
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.jobs.driver.batch_pace import FIRST_ROWS, GROWTH, BatchPace
from streamtopology.jobs.runtime.part_prefetch import PartPrefetch

FIXED, OF_ROW = 0.3, 10e-6


def run(pace: BatchPace, rows: float, fixed: float = FIXED, of_row: float = OF_ROW) -> float:
    """A batch of `rows`; its seconds."""
    pace.measured(int(rows), fixed + int(rows) * of_row, int(rows) * of_row)
    return fixed + int(rows) * of_row


def settled(pace: BatchPace, latency: float, fixed: float = FIXED, of_row: float = OF_ROW, batches: int = 30) -> float:
    """The seconds of the last of some batches over an endless input."""
    seconds = 0.0
    for _ in range(batches):
        seconds = run(pace, pace.most_rows(latency), fixed, of_row)
    return seconds


def test_without_a_latency_no_batch_is_bounded() -> None:
    pace = BatchPace()
    run(pace, 1e6)
    assert pace.most_rows(None) == math.inf


def test_first_batches_grow_from_few_rows_to_the_latency() -> None:
    pace, rows = BatchPace(), []
    for _ in range(9):
        rows.append(pace.most_rows(2.0))
        run(pace, rows[-1])
    assert rows[:3] == [FIRST_ROWS, GROWTH * FIRST_ROWS, GROWTH**2 * FIRST_ROWS]
    assert rows[-1] == pytest.approx(170_000, rel=0.2)


@settings(max_examples=200)
@given(fixed=st.floats(0.01, 2), of_row=st.floats(1e-7, 1e-2), latency=st.floats(0.1, 60))
def test_batches_last_as_long_as_asked_or_half_of_them_is_work(fixed: float, of_row: float, latency: float) -> None:
    seconds = settled(BatchPace(), latency, fixed, of_row)
    assert seconds <= 1.25 * max(latency, 2 * fixed) + of_row
    assert seconds >= max(latency, 2 * fixed) / 1.2 - of_row


@settings(max_examples=200)
@given(hidden=st.floats(0, 5), latency=st.floats(0.1, 5))
def test_seconds_beyond_the_work_that_grow_with_the_rows_are_not_fixed(hidden: float, latency: float) -> None:
    """Rows take `hidden` times their work to be sent, which no instance measures."""
    pace, seconds = BatchPace(), 0.0
    for _ in range(40):
        rows = int(pace.most_rows(latency))
        seconds = FIXED + rows * (1 + hidden) * OF_ROW
        pace.measured(rows, seconds, rows * OF_ROW)
    assert seconds <= 1.25 * max(latency, 2 * FIXED)


def test_fixed_seconds_that_grow_are_believed_when_few_rows_take_them_too() -> None:
    pace = BatchPace()
    settled(pace, 2.0)
    seconds = settled(pace, 2.0, fixed=3.0, batches=40)
    assert seconds == pytest.approx(6.0, rel=0.25), "half of it is work"


def test_single_long_batch_leaves_the_number_as_it_is() -> None:
    pace = BatchPace()
    settled(pace, 2.0)
    before = pace.most_rows(2.0)
    run(pace, before, fixed=30.0)
    assert pace.most_rows(2.0) == before


def test_batches_shrink_when_rows_become_dearer() -> None:
    pace = BatchPace()
    settled(pace, 2.0)
    assert settled(pace, 2.0, of_row=10 * OF_ROW, batches=10) == pytest.approx(2.0, rel=0.2)


def test_small_differences_leave_the_number_as_it_is() -> None:
    pace = BatchPace()
    settled(pace, 2.0)
    before = pace.most_rows(2.0)
    settled(pace, 2.0, of_row=1.1 * OF_ROW, batches=6)
    assert pace.most_rows(2.0) == before
    assert pace.most_rows(4.0) > before, "another latency counts at once"


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1e4), st.floats(-1, 1e5)), max_size=8), st.floats(1e-3, 1e5))
def test_batch_may_have_a_row_after_any_measurements(measured: list[tuple[int, float, float]], latency: float) -> None:
    pace = BatchPace()
    for rows, seconds, working in measured:
        pace.measured(rows, seconds, working)
        assert 1 <= pace.most_rows(latency) < math.inf


def test_next_part_is_prefetched_once_when_the_length_of_parts_is_known() -> None:
    parts, called = PartPrefetch(lambda: 0.0), threading.Event()
    with parts.before_the_end(called.set):
        pass
    assert not called.is_set(), "how long parts take is not known"
    with parts.before_the_end(called.set):
        assert called.wait(60), "the part before took no time, so this one is about to end"
    parts.close()


def test_part_that_ends_early_is_followed_without_a_prefetch() -> None:
    parts, called = PartPrefetch(lambda: -1e6), threading.Event()
    for _ in range(3):
        with parts.before_the_end(called.set):
            pass
    parts.close()
    assert not called.is_set()


def test_failing_prefetch_is_not_hidden() -> None:
    parts = PartPrefetch(lambda: 0.0)

    def fail() -> None:
        raise OSError("no such broker")

    with parts.before_the_end(fail):
        pass
    over = threading.Event()

    def failed() -> None:
        over.set()
        fail()

    with pytest.raises(OSError, match="no such broker"), parts.before_the_end(failed):
        assert over.wait(60)
    parts.close()
