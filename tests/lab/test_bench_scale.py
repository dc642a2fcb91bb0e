"""The bench of scale measures every part of the driver, whose scripted executors report what it counts."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from streamtopology.lab.bench import scale
from streamtopology.lab.bench.part_times import PartTimes
from streamtopology.lab.bench.scripted_workers import ROWS

BATCHES = 20  # chains of deltas are compacted by then


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return scale.run(executors=(4, 2), batches=BATCHES)


def test_every_part_is_of_each_number_of_executors_and_is_judged_by_its_growth(result):
    lines = {(line["case"], line["metric"], line["unit"]): line for line in result["results"]}
    for part in (scale.WHOLE, scale.UNJUDGED, *scale.SHOWN):
        few, many = (lines[part, f"{count} executors", "ms"] for count in (2, 4))
        assert few["runs"] == many["runs"] == scale.GROUPS
        if part == scale.GARBAGE:  # of which so few executors leave hardly any
            continue
        assert few["median"] > 0
        exponent = scale.growth((2, few["median"]), (4, many["median"]))
        bar = "met" if exponent <= scale.LARGEST_EXPONENT else "missed"
        assert lines[part, "growth exponent", bar]["median"] == pytest.approx(exponent)
        assert (part in result["machine"]["missed"]) == (bar == "missed")


def test_whole_batch_is_the_sum_of_its_parts_without_what_is_beside_it():
    measured = scale.measure(2, 6)
    assert len(measured.parts[scale.WHOLE]) == 3
    parts = [part for part in scale.SHOWN if part not in scale.BESIDE]
    for number, whole in enumerate(measured.parts[scale.WHOLE]):
        assert whole == pytest.approx(sum(measured.parts[part][number] for part in parts))


def test_sizes_are_of_one_batch_and_every_row_is_counted(result):
    sizes = {(line["case"], line["metric"]): line["median"] for line in result["results"] if line["unit"] == "kB"}
    for name in ("orders sent", "tasks sent by Spark", "reports", "commit record", scale.STATS):
        assert 0 < sizes[name, "2 executors"] < sizes[name, "4 executors"], name
    assert sizes["routing, packed", "4 executors"] > 1
    assert result["check"] == {"rows counted wrong": 0, "re-routings": 0}
    measured = scale.measure(3, 2)
    assert (measured.rows, measured.expected) == (2 * 3 * ROWS, 2 * 3 * ROWS)


def test_growth_is_the_exponent_of_the_number():
    assert scale.growth((64, 5.0), (256, 20.0)) == pytest.approx(1)
    assert scale.growth((10, 3.0), (100, 300.0)) == pytest.approx(2)
    assert scale.growth((10, 3.0), (100, 3.0)) == 0


def test_one_number_of_executors_has_no_growth():
    lines = scale.run(executors=(2,), batches=2)["results"]
    assert {line["metric"] for line in lines} == {"2 executors"}


def test_garbage_is_a_part_of_its_own_in_the_thread_that_measures():
    now = iter(range(100))
    times = PartTimes(lambda: float(next(now)))
    gc.disable()
    try:
        with times.measuring({}):
            gc.collect()
            times.timed("part", gc.collect)()
            other = threading.Thread(target=gc.collect)
            times.timed("waits", lambda: (other.start(), other.join()))()
    finally:
        gc.enable()
    taken = times.take()
    assert taken[scale.GARBAGE] == 1
    assert taken.keys() == {scale.GARBAGE, "part", "waits"}


def test_time_of_an_inner_part_counts_for_it_alone():
    now = 0.0

    class Work:
        def outer(self) -> str:
            nonlocal now
            now += 1
            self.inner()
            now += 2
            return "done"

        def inner(self) -> None:
            nonlocal now
            now += 4

    times, plain = PartTimes(lambda: now), Work.outer
    with times.measuring({"outside": [(Work, "outer")], "inside": [(Work, "inner")]}):
        assert Work().outer() == "done"
        Work().inner()
    assert Work.outer is plain
    assert times.take() == {"outside": 3, "inside": 8}
    assert times.take() == {}
