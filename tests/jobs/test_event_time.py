"""Event time by manifest: which rows are late, which windows close when, and what one bad time may do.

The reference is Spark's rule, a row at a time: a batch closes the windows that end at or before the watermark of the rows
before it, and a row is late if an earlier batch closed its window.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep
from support.stages import SLOTS, Flow, manifest, random_table

from streamtopology.jobs.admin.watermark import set_watermark
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.driver.watermarks import END_OF_TIME
from streamtopology.jobs.own_command import DEFAULT_WORK_DIR
from streamtopology.routing.table.hashing import hash_int64

MANIFEST = Path("job.yaml")
TEN_SECONDS = {"time": "t", "size": "10s", "aggregates": {"n": "count()"}}
NOON = 1_800_000_000.0


def windows(options: Mapping[str, Any] = TEN_SECONDS, late: bool = False, **watermark: Any) -> dict[str, Any]:
    """Counts per key and window of the source `s`; with `late`, late rows go to a sink of that name."""
    counts = {"name": "w", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "window-aggregate"}
    made = manifest(
        [counts | {"with": dict(options)}], {"s": "k BIGINT, t DOUBLE"}, watermarks={"s": {"column": "t", **watermark}}
    )
    if late:
        made["spec"]["operators"][0]["late"] = "late"
        made["spec"]["sinks"].append({"name": "late", "input": "w", "format": "memory"})
    return made


def rows(*times: float | None, key: int = 1) -> pa.Table:
    return pa.table({"k": pa.array([key] * len(times), pa.int64()), "t": pa.array(times, pa.float64())})


def published(flow: Flow, sink: str = "w") -> list[tuple[float, int]]:
    """(start of the window, its rows) in the order published."""
    return [(row["window_start"].timestamp(), row["n"]) for row in flow.published(sink).to_pylist()]


def late_rows(flow: Flow) -> int:
    """The rows that the newest batch left out as late."""
    return sum(result.report.late_rows for result in flow.router.done[-1].results.instances)


# --- bad times ---


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300, 1.8e15, None])
def test_row_without_event_time_is_late_and_the_stream_continues(tmp_path: Path, bad: float | None) -> None:
    flow = Flow(tmp_path, windows())
    flow.batch(s=rows(1.0, bad))
    assert (flow.last.watermark_after, late_rows(flow)) == (1.0, 1)
    flow.start(windows())
    flow.batch(s=rows(12.0))
    flow.silence()
    assert published(flow) == [(0.0, 1)]


def test_time_far_ahead_of_the_clock_does_not_make_later_rows_late(tmp_path: Path) -> None:
    year_2262 = 9_214_646_400.0
    flow = Flow(tmp_path, windows(), wall_clock=lambda: NOON)
    flow.batch(s=rows(NOON, year_2262))
    assert flow.last.watermark_after == NOON
    assert [report.rows_ahead for report in flow.router.done[-1].results.sources if report.rows_ahead] == [{"s": 1}]
    flow.batch(s=rows(NOON + 1, NOON + 11))
    flow.silence()
    assert published(flow) == [(NOON, 2)]


def test_max_ahead_is_an_option_of_the_watermark(tmp_path: Path) -> None:
    flow = Flow(tmp_path, windows(maxAhead="1h"), wall_clock=lambda: NOON)
    flow.batch(s=rows(NOON, NOON + 3600, NOON + 3601))
    assert flow.last.watermark_after == NOON + 3600


def test_watermark_of_a_checkpoint_is_shown_and_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = windows()
    flow = Flow(tmp_path, given, wall_clock=lambda: 9_214_646_400.0)  # set wrong
    flow.batch(s=rows(5.0))
    flow.batch(s=rows(12.0, 9_214_646_400.0))
    flow.batch(s=rows(13.0))
    assert late_rows(flow) == 0
    flow.batch(s=rows(14.0))
    assert late_rows(flow) == 1, "one row of the year 2262 makes all others late"
    before = published(flow)
    file = tmp_path / "flow.json"
    file.write_text(json.dumps({**given, "spec": {**given["spec"], "checkpoint": flow.checkpoint.uri}}))
    assert main(["state", "watermark", str(file)]) == 0
    assert "watermark     2262-01-01T00:00:00Z" in capsys.readouterr().out
    assert main(["state", "watermark", str(file), "--set", "1970-01-01T00:00:14Z"]) == 0
    assert "watermark 2262-01-01T00:00:00Z -> 1970-01-01T00:00:14Z" in capsys.readouterr().out
    flow.start(windows())
    assert published(flow) == before
    flow.batch(s=rows(9.0, 15.0, 25.0))
    assert late_rows(flow) == 1, "the first window is closed"
    flow.silence()
    assert published(flow) == [*before, (10.0, 1)]
    assert main(["state", "watermark", str(file), "--set", "soon"]) == 2


def test_watermark_set_to_a_later_time_closes_what_it_passes(tmp_path: Path) -> None:
    flow = Flow(tmp_path, windows(TEN_SECONDS | {"allowedLateness": "5s"}))
    flow.batch(s=rows(5.0))
    flow.batch(s=rows(6.0))
    set_watermark(flow.checkpoint.uri, MANIFEST, DEFAULT_WORK_DIR, flow.topology, 12.0)
    flow.start(windows(TEN_SECONDS | {"allowedLateness": "5s"}))
    flow.silence()
    assert published(flow) == [(0.0, 2)]


@pytest.mark.parametrize("first", ["1h", "0s"])
def test_watermark_set_back_keeps_closed_what_was_forgotten_and_no_more(tmp_path: Path, first: str) -> None:
    """Of a window before the time a late row would be emitted alone; the lateness counts for all that comes after it."""
    flow = Flow(tmp_path, windows(TEN_SECONDS | {"allowedLateness": first}), wall_clock=lambda: 9_214_646_400.0)
    flow.batch(s=rows(5.0, 6.0, 9_214_646_400.0))
    flow.batch(s=rows(7.0))
    assert (published(flow), late_rows(flow)) == ([(0.0, 3)], 0)
    hour = windows(TEN_SECONDS | {"allowedLateness": "1h"})
    flow.start(hour)
    flow.batch()
    set_watermark(flow.checkpoint.uri, MANIFEST, DEFAULT_WORK_DIR, flow.topology, 14.0)
    flow.start(hour)
    flow.batch(s=rows(8.0, 15.0, 45.0))
    assert late_rows(flow) == 1
    flow.silence()
    flow.batch(s=rows(16.0, 39.0))
    flow.silence()
    assert (published(flow)[1:], late_rows(flow)) == ([(10.0, 1), (10.0, 2), (30.0, 1)], 0)


# --- late rows ---


def test_row_below_the_watermark_counts_while_its_window_is_open(tmp_path: Path) -> None:
    flow = Flow(tmp_path, windows())
    flow.batch(s=rows(5.0))
    flow.batch(s=rows(3.0, 11.0))
    flow.batch(s=rows(9.0, 12.0))
    assert late_rows(flow) == 0, "the window closes with this batch"
    assert published(flow) == [(0.0, 3)]
    flow.batch(s=rows(9.5, 13.0))
    assert late_rows(flow) == 1
    flow.drain()
    assert published(flow) == [(0.0, 3), (10.0, 3)]


def test_restart_closes_no_window_that_the_batch_before_left_open(tmp_path: Path) -> None:
    flow = Flow(tmp_path, windows())
    flow.batch(s=rows(5.0))
    flow.batch(s=rows(11.0))
    flow.start(windows())
    flow.batch(s=rows(9.0))
    assert published(flow) == [(0.0, 2)]
    flow.start(windows())
    flow.batch(s=rows(9.0))
    assert (published(flow), late_rows(flow)) == ([(0.0, 2)], 1)


def test_allowed_lateness_emits_a_window_again_with_its_late_rows(tmp_path: Path) -> None:
    flow = Flow(tmp_path, windows(TEN_SECONDS | {"allowedLateness": "20s"}))
    flow.batch(s=rows(5.0, 11.0))
    flow.batch()
    assert published(flow) == [(0.0, 1)]
    flow.batch(s=rows(6.0, 7.0))
    assert published(flow) == [(0.0, 1), (0.0, 3)]
    flow.batch(s=rows(31.0))
    flow.batch()
    assert published(flow) == [(0.0, 1), (0.0, 3), (10.0, 1)]
    flow.batch(s=rows(8.0, 19.0))
    assert late_rows(flow) == 1, "the first window is forgotten, the second can be emitted again"
    assert published(flow) == [(0.0, 1), (0.0, 3), (10.0, 1), (10.0, 2)]
    flow.drain()
    assert published(flow)[4:] == [(30.0, 1)]


def test_raised_lateness_opens_no_window_that_was_forgotten(tmp_path: Path) -> None:
    """Its row would have the late rows alone, and readers take the newest row of a window."""
    flow = Flow(tmp_path, windows(TEN_SECONDS | {"allowedLateness": "0s"}))
    flow.batch(s=rows(1.0, 2.0, 25.0))
    flow.batch(s=rows(26.0))
    assert published(flow) == [(0.0, 2)]
    raised = windows(TEN_SECONDS | {"allowedLateness": "30s"})
    flow.start(raised)
    assert any("operator 'w' waits longer for late rows" in text for text in flow.reported)
    flow.batch(s=rows(6.0))
    assert late_rows(flow) == 1
    flow.reported.clear()
    flow.start(raised)
    assert not flow.reported
    flow.start(windows(TEN_SECONDS | {"allowedLateness": "40s"}))  # another time: the first one's bound stays
    flow.router.reroute({"w": random_table(np.random.default_rng(1), SLOTS, hash_int64(np.arange(9)))})
    flow.batch(s=rows(7.0, 27.0, 45.0))
    assert late_rows(flow) == 1
    flow.batch()
    assert published(flow) == [(0.0, 2), (20.0, 3)]
    flow.batch(s=rows(29.0))
    assert published(flow) == [(0.0, 2), (20.0, 3), (20.0, 4)], "what was not forgotten is open as long as is allowed now"


def test_late_rows_go_to_the_sink_that_late_names_and_its_results_do_not(tmp_path: Path) -> None:
    flow = Flow(tmp_path, windows(late=True))
    for times in ([5.0], [11.0], [12.0], [1.0, 2.0, None, 13.0]):
        flow.batch(s=rows(*times))
    flow.drain()
    assert sorted(flow.published("late").column("t").to_pylist(), key=str) == [1.0, 2.0, None]
    assert flow.published("late").column_names == ["k", "t"]
    assert published(flow) == [(0.0, 1), (10.0, 3)]


def test_late_rows_of_a_join_have_the_columns_of_all_inputs(tmp_path: Path) -> None:
    join = {
        "name": "j", "inputs": ["a", "b"], "grouping": {"policy": "fields", "key": "k"}, "run": "window-join",
        "with": {"time": "t", "size": "10s"}, "late": "late",
    }  # fmt: skip
    sources = {"a": "k BIGINT, t DOUBLE, x STRING", "b": "k BIGINT, t DOUBLE, y STRING"}
    made = manifest([join], sources, watermarks={name: {"column": "t"} for name in sources})
    made["spec"]["sinks"].append({"name": "late", "input": "j", "format": "memory"})
    flow = Flow(tmp_path, made)
    for time in (25.0, 26.0, 5.0):
        flow.batch(
            a=rows(time).append_column("x", pa.array(["left"])),
            b=rows(time).append_column("y", pa.array(["right"])),
        )
    assert sorted(flow.published("late").to_pylist(), key=str) == [
        {"k": 1, "t": 5.0, "x": "left", "y": None},
        {"k": 1, "t": 5.0, "x": None, "y": "right"},
    ]


# --- silence ---


def test_silent_stream_closes_the_windows_that_the_watermark_has_passed(tmp_path: Path) -> None:
    flow = Flow(tmp_path, windows(delay="3s"))
    flow.batch(s=rows(5.0, 12.0))
    flow.silence()
    assert published(flow) == []
    flow.batch(s=rows(14.0))
    assert flow.driver.is_due
    flow.silence()
    assert published(flow) == [(0.0, 1)]
    assert flow.last.rows_in == 0
    flow.start(windows(delay="3s"))
    assert not flow.driver.is_due
    flow.batch(s=rows(15.0))
    assert published(flow) == [(0.0, 1)]


def test_windows_that_were_due_when_the_run_ended_close_after_a_restart(tmp_path: Path) -> None:
    flow = Flow(tmp_path, windows())
    flow.batch(s=rows(5.0, 12.0))
    flow.start(windows())
    flow.silence()
    assert published(flow) == [(0.0, 1)]


def test_nothing_is_due_before_the_first_batch_and_without_windows(tmp_path: Path) -> None:
    count = {"name": "c", "inputs": ["s"], "grouping": {"policy": "fields", "key": "k"}, "run": "count"}
    flow = Flow(tmp_path, manifest([count], {"s": "k BIGINT, t DOUBLE"}, watermarks={"s": {"column": "t"}}))
    assert not flow.driver.is_due
    flow.batch(s=rows(5.0))
    assert not flow.driver.is_due


# --- idle sources ---


def windows_of_two() -> dict[str, Any]:
    """The windows of sources `a` and `b`, each idle after 30 s."""
    counts = {
        "name": "w", "inputs": ["a", "b"], "grouping": {"policy": "fields", "key": "k"}, "run": "window-aggregate",
        "with": TEN_SECONDS,
    }  # fmt: skip
    sources = {"a": "k BIGINT, t DOUBLE", "b": "k BIGINT, t DOUBLE"}
    return manifest([counts], sources, watermarks={name: {"column": "t", "idleTimeout": "30s"} for name in sources})


def test_source_is_idle_only_after_polls_that_found_nothing(tmp_path: Path) -> None:
    now = [0.0]
    flow = Flow(tmp_path, windows_of_two(), clock=lambda: now[0])
    flow.batch(a=rows(5.0), b=rows(5.0))
    now[0] = 1000.0  # the batch took long: nobody asked b meanwhile
    flow.batch(a=rows(50.0))
    assert flow.last.watermark_after == 5.0
    now[0] = 1010.0
    flow.batch(a=rows(60.0), b=rows(7.0))
    assert flow.last.watermark_after == 7.0
    for now[0] in (1020.0, 1049.0):
        flow.batch(a=rows(70.0))
        assert flow.last.watermark_after == 7.0
    now[0] = 1050.0
    flow.batch(a=rows(80.0))
    assert flow.last.watermark_after == 80.0


def test_windows_of_a_daily_job_close_without_a_source_that_is_silent_for_good(tmp_path: Path) -> None:
    now = [0.0]
    flow = Flow(tmp_path, windows_of_two(), clock=lambda: now[0])
    flow.batch(a=rows(5.0), b=rows(7.0))
    for day in (1, 2):
        now[0] = day * 86_400.0
        flow.start(windows_of_two())
        flow.batch(a=rows(now[0], now[0] + 11))
        assert flow.last.watermark_after == (7.0 if day == 1 else now[0] + 11)
        flow.drain(for_good=False)
    assert published(flow) == [(0.0, 2), (86_400.0, 1), (86_410.0, 1), (2 * 86_400.0, 1)]


@pytest.mark.parametrize("select", [(), ("k", "t * 1 AS t", "CAST(t AS TINYINT) AS small")])
def test_rows_that_a_where_drops_show_how_far_their_source_is(tmp_path: Path, select: tuple[str, ...]) -> None:
    now, made = [0.0], windows_of_two()
    made["spec"]["sources"][1] |= {"where": "k < 3"} | ({"select": list(select)} if select else {})
    flow = Flow(tmp_path, made, clock=lambda: now[0])
    flow.batch(a=rows(5.0), b=rows(7.0))
    for step in range(1, 4):
        now[0] = 40.0 * step
        flow.batch(a=rows(1_000.0 * step), b=pa.concat_tables([rows(200.0 * step, None, math.nan, key=3), rows(None)]))
        assert flow.last.watermark_after == 200.0 * step, "no silence, and its rows are no later than that"
    flow.batch(a=rows(4_000.0), b=rows(100.0))
    assert late_rows(flow) == 1


# --- against the reference ---


@dataclass
class Reference:
    """Counts per key and window by Spark's rule, a row at a time. Seconds are whole."""

    size: int
    slide: int
    delay: int
    lateness: int = 0
    watermark: float = -math.inf
    closed: float = -math.inf
    newest: float = -math.inf
    late: int = 0
    open: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    emitted: list[tuple[int, int, int]] = field(default_factory=list)

    def batch(self, rows: Sequence[tuple[int, int | None]], final: bool = False) -> None:
        touched = set()
        for key, time in rows:
            places = [] if time is None else range(time // self.slide * self.slide, time - self.size, -self.slide)
            still_open = [start for start in places if start + self.size + self.lateness > self.closed]
            self.late += not still_open
            for start in still_open:
                self.open[key, start] += 1
                touched.add((key, start))
        closing = math.inf if final else self.watermark
        for (key, start), count in sorted(self.open.items()):
            end = start + self.size
            if end <= closing and (end > self.closed or (key, start) in touched):
                self.emitted.append((key, start, count))
            if end + self.lateness <= closing:
                del self.open[key, start]
        self.closed = closing
        self.newest = max([self.newest, *(time for _, time in rows if time is not None)])
        self.watermark = max(self.watermark, self.newest - self.delay)


STREAMS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(-30, 20))), max_size=12),
        st.sampled_from(["rows", "rows", "rows", "silence", "restart", "reroute"]),
    ),
    min_size=1,
    max_size=8,
)


@deep(gate=12, long=30)
@given(STREAMS, st.integers(1, 20), st.integers(1, 20), st.sampled_from([0, 5]), st.sampled_from([0, 0, 15]))
def test_windows_and_late_rows_are_those_of_the_reference(
    steps: Sequence[tuple[Sequence[tuple[int, int | None]], str]], size: int, slide: int, delay: int, lateness: int
) -> None:
    options = {
        "time": "t", "size": f"{size}s", "slide": f"{min(size, slide)}s", "aggregates": {"n": "count()"},
        "allowedLateness": f"{lateness}s",
    }  # fmt: skip
    made = windows(options, late=True, delay=f"{delay}s")
    reference = Reference(size, min(size, slide), delay, lateness)
    with TemporaryDirectory() as folder:
        flow = Flow(Path(folder), made)
        for number, (values, event) in enumerate(steps):
            moved = [(key, None if time is None else time + 10 * number) for key, time in values]
            flow.batch(
                s=pa.table(
                    {"k": pa.array([k for k, _ in moved], pa.int64()), "t": pa.array([t for _, t in moved], pa.float64())}
                )
            )
            reference.batch(moved)
            if event == "silence" and flow.driver.is_due:
                flow.silence()
                reference.batch([])
            elif event == "restart":
                flow.start(made)
            elif event == "reroute":
                flow.router.reroute({"w": random_table(np.random.default_rng(number), 4)})
        flow.drain()
        reference.batch([], final=True)
        found = [(row["k"], int(row["window_start"].timestamp()), row["n"]) for row in flow.published("w").to_pylist()]
        assert sorted(found) == sorted(reference.emitted)
        assert flow.published("late").num_rows == reference.late
        assert flow.last.watermark_after == END_OF_TIME
