"""The arena's case switch: its figures equal slow, obvious ones; the page says which bars hold, and what failed or is wrong."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.arena.engines import ENGINES, Place
from streamtopology.lab.arena.peer import SCRIPTS, Arena
from streamtopology.lab.arena.switch import CONTESTANTS, Switch, measure
from streamtopology.lab.arena.switch_page import draw_switch, is_right, switch_page
from streamtopology.lab.arena.switch_run import run_switch
from streamtopology.lab.arena.switch_series import (
    AFTER_SECONDS,
    BEFORE_SECONDS,
    CALM_SECONDS,
    SLICE_SECONDS,
    back_after,
    longest_silence,
    series,
    switch_figures,
    worst_p99,
)

# Times in eighths of a second, exact in floating point; None: the row was never seen.
rows = st.lists(st.tuples(st.integers(0, 400), st.none() | st.integers(0, 80)), min_size=1, max_size=60).map(
    lambda given: (
        np.array(sorted(at / 8 for at, _ in given)),
        np.array([math.nan if late is None else at / 8 + late / 8 for at, late in sorted(given, key=lambda row: row[0])]),
    )
)


@given(rows, st.integers(0, 400), st.integers(0, 200))
def test_series_has_the_median_and_the_longest_of_each_slice(given: tuple[np.ndarray, np.ndarray], begin: int, length: int):
    produced, seen = given
    expected: dict[int, list[float]] = {}
    for at, until in zip(produced, seen, strict=True):
        if begin / 8 <= at < (begin + length) / 8 and not math.isnan(until):
            expected.setdefault(int((at - begin / 8) // SLICE_SECONDS), []).append(until - at)
    found = series(produced, seen, begin / 8, (begin + length) / 8)
    assert found == [(round(number * SLICE_SECONDS, 3), np.median(of), max(of)) for number, of in sorted(expected.items())]


@given(rows, st.integers(0, 400), st.integers(0, 200))
def test_silence_is_the_longest_gap_of_arrivals_that_touches_the_window(
    given: tuple[np.ndarray, np.ndarray], begin: int, length: int
):
    _, seen = given
    arrivals = sorted({until for until in seen.tolist() if not math.isnan(until)})
    gaps = [after - before for before, after in pairwise(arrivals) if after >= begin / 8 and before < (begin + length) / 8]
    found = longest_silence(seen, begin / 8, (begin + length) / 8)
    assert math.isnan(found) if not gaps else found == max(gaps)


@given(rows, st.integers(0, 400), st.integers(0, 400))
def test_worst_p99_is_the_largest_of_all_windows(given: tuple[np.ndarray, np.ndarray], begin: int, length: int):
    produced, seen = given
    found: list[float] = []
    at = begin / 8
    while at == begin / 8 or at + AFTER_SECONDS <= (begin + length) / 8:
        late = [s - p for p, s in zip(produced, seen, strict=True) if at <= p < at + AFTER_SECONDS and not math.isnan(s)]
        if late:
            found.append(float(np.percentile(late, 99)))
        at += 1
    worst = worst_p99(produced, seen, begin / 8, (begin + length) / 8)
    assert math.isnan(worst) if not found else worst == max(found)


def slices(medians: list[float]) -> list[tuple[float, float, float]]:
    return [(round(number * SLICE_SECONDS, 3), median, median) for number, median in enumerate(medians)]


def test_latency_is_back_with_the_first_calm_second_after_the_worst_slice():
    calm = round(CALM_SECONDS / SLICE_SECONDS)
    assert back_after(slices([1.0] * 5), 1.0) == 0
    assert back_after(slices([1.0, 2.0, 3.0, *[1.0] * calm]), 1.0) == pytest.approx(3 * SLICE_SECONDS)
    assert back_after(slices([1.0, 3.0, *[1.0] * (calm - 1), 2.0, *[1.0] * calm]), 1.0) == pytest.approx((calm + 2) * 0.1)
    assert math.isnan(back_after(slices([1.0, 3.0, *[1.0] * (calm - 1)]), 1.0))


def test_switch_of_a_second_without_a_row_is_told_apart_from_before():
    produced = np.arange(0.0, 60.0, 0.01)
    seen = produced + 0.05
    stopped = (seen > 30.5) & (seen < 31.5)
    seen[stopped] = 31.5
    figures = switch_figures(produced, seen, BEFORE_SECONDS, 32.0)
    assert figures["p50_before"] == figures["p99_before"] == pytest.approx(0.05)
    assert figures["silence_before"] == pytest.approx(0.01, abs=1e-6)
    assert figures["silence_through"] == pytest.approx(1.0, abs=0.011)
    assert figures["longest_through"] == pytest.approx(1.04, abs=0.011)
    assert figures["back"] == pytest.approx(1.4, abs=0.11)
    assert figures["seconds"] == 2.0


FIGURES = {
    "p50_before": 0.05,
    "p99_before": 0.1,
    "worst_p99_before": 0.1,
    "p99_through": 0.2,
    "longest_through": 0.3,
    "silence_through": 0.25,
    "back": 1.0,
    "seconds": 0.5,
}


def life(contestant: str, number: int = 1, **more: Any) -> dict[str, Any]:
    found = {"event": "move", "figures": dict(FIGURES), "series": [(-0.1, 0.05, 0.1), (0.0, 0.1, 0.2)]}
    check = {"rows": 1000, "lost": 0, "counted_twice": 0, "repeated": 0}
    engine = "streamtopology" if contestant == "streamtopology" else "flink"
    known = {"engine": engine, "contestant": contestant, "life": number, "load": 1.0, "events": [found], "check": check}
    return {**known, **more}


def test_page_says_which_bars_hold_and_what_failed(tmp_path: Path):
    theirs = life("flink-at-least-once")
    theirs["events"][0]["figures"]["silence_through"] = 1.0
    failed = {"engine": "flink", "contestant": "flink-exactly-once", "life": 1, "failed": "mvn is not on PATH: install it"}
    page = switch_page([life("streamtopology"), theirs, failed])
    assert "Longest silence, to that of Flink, sink at least once: 0.25 x (bar: 0.5 x, **met**)" in page
    assert "p99 through the switch, to the worst before: 2.00 x (bar: 1.3 x, **missed**)" in page
    assert "mvn is not on PATH: install it" in page
    draw_switch([life("streamtopology"), theirs, failed], "move", tmp_path / "switch-move.svg")
    assert "</svg>" in (tmp_path / "switch-move.svg").read_text()


def test_page_has_the_latencies_without_a_change_of_all_that_ran():
    calm = {"event": "calm", "figures": {**FIGURES, "p50_before": 0.07}, "series": []}
    page = switch_page([life("streamtopology"), life("spark-real-time", engine="spark", events=[calm])])
    latencies = page.partition("## Latency without a change")[2].partition("##")[0]
    assert "| StreamTopology, exactly once | **0.05** | **0.10** | **0.10** |" in latencies
    assert "| Spark in real-time mode, sink at least once | **0.07** | **0.10** | **0.10** |" in latencies
    assert "Nothing happens" not in page


def test_spark_takes_part_only_where_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    arena = Arena(ENGINES, Place(tmp_path), print)
    spark = "spark-real-time"
    assert not measure(Switch(10, 10, 1, ("move",), (spark,)), arena, Place(tmp_path))
    (row,) = measure(Switch(10, 10, 1, ("calm", "move"), (spark,)), arena, Place(tmp_path))
    assert row["failed"] == "mvn is not on PATH: install it"


def test_every_contestant_has_its_script():
    assert all((SCRIPTS / f"{contestant.engine}_switch.py").is_file() for contestant in CONTESTANTS.values())


def test_connector_that_cannot_be_fetched_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    asked = Switch(10, 10, 2, ("move",), ("flink-at-least-once",))
    rows = measure(asked, Arena(ENGINES, Place(tmp_path), print), Place(tmp_path))
    assert [(row["contestant"], row["life"], row["failed"]) for row in rows] == [
        ("flink-at-least-once", life, "mvn is not on PATH: install it") for life in (1, 2)
    ]


@pytest.mark.parametrize(
    ("contestant", "fault", "right"),
    [
        ("streamtopology", {}, True),
        ("streamtopology", {"lost": 1}, False),
        ("streamtopology", {"counted_twice": 1}, False),
        ("streamtopology", {"repeated": 1}, False),
        ("flink-at-least-once", {"repeated": 1}, True),
        ("flink-at-least-once", {"lost": 1}, False),
    ],
)
def test_lost_and_doubled_rows_make_a_life_wrong(contestant: str, fault: dict[str, int], right: bool):
    row = life(contestant)
    row["check"] |= fault
    assert is_right(row) == right
    assert ("**wrong**" in switch_page([row])) != right


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            Switch(10, 10, 1, ("moved",), ("streamtopology",)),
            "--event moved: there is no such event; there are calm, move, join",
        ),
        (Switch(10, 10, 1, ("move",), ("flunk",)), "--engine flunk: there is no such engine; there are streamtopology"),
        (
            Switch(10, 10, 1, ("leave",), ("streamtopology",)),
            "--event leave: the worker that leaves is the one that has joined",
        ),
    ],
)
def test_events_and_engines_that_cannot_be_are_refused(asked: Switch, message: str):
    with pytest.raises(WrongUse, match=message):
        run_switch(asked, "127.0.0.1:1", fresh=False)


def test_missing_broker_is_said_before_anything_is_measured():
    with pytest.raises(WrongUse, match=r"--bootstrap 127.0.0.1:1: no broker of Kafka answers there"):
        run_switch(Switch(10, 10, 1, ("move",), ("streamtopology",)), "127.0.0.1:1", fresh=False)
