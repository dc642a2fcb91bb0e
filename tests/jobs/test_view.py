"""The live view: a line a second in a log, a screen that fits in a terminal, nothing left out that is news."""

from __future__ import annotations

import io
import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from support.histories import HASHED, SLOTS, Clock, outcome, reconfiguration, run

from streamtopology.jobs import wording
from streamtopology.jobs.history import History, SlotInfo
from streamtopology.jobs.view import HEARTBEAT_SECONDS, LINE_SECONDS, ProgressLines, View, screen


def drawn(history: History, width: int = 120, height: int = 40) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width, height=height)
    console.print(screen(history, 12.0, console.size))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_phases_are_shown_from_the_first_moment():
    history = History("flights", SLOTS, {})
    history.enter("starting executors 2/4")
    assert "starting executors 2/4" in drawn(history)
    assert "starting executors 2/4" in (ProgressLines(history).next(0.0) or "")


def test_the_screen_names_every_instance_with_its_executor_class_and_load():
    text = drawn(run(10))
    for slot in SLOTS:
        assert re.search(rf"{slot.index} +{slot.executor} +{slot.class_name}", text)
    relative = (HASHED[3] / 12_000) / (sum(HASHED[:3]) / 40_000 / 4 + HASHED[3] / 12_000 / 4)
    assert f"{relative:.2f}x" in text
    assert "imbalance" in text
    assert "epoch 1  batch 9" in text


def test_reroutings_and_events_are_told_in_words():
    history = run(16)
    history.rerouted(reconfiguration(epoch=3, batch=14))
    history.event(0.0, 15, "executor small-0 lost")
    expected = "epoch 3 at batch 14: tail moved 412 keys, 1.20 MB, predicted gain 38 %"
    assert expected in drawn(history)
    assert "batch 15: executor small-0 lost" in drawn(history)
    line = ProgressLines(history).next(0.0)
    assert line is not None
    assert expected in line
    assert "executor small-0 lost" in line


def test_what_was_applied_predicted_nothing_and_what_moved_no_keys_names_no_operator():
    applied = reconfiguration(epoch=3, batch=14, operator="(source)", keys_moved=0, bytes_moved=0, predicted_gain=0.0)
    assert wording.rerouting(applied) == "epoch 3 at batch 14: no keys moved"
    planned = replace(applied, predicted_gain=0.1)
    assert wording.rerouting(planned) == "epoch 3 at batch 14: sources are read in other shares, predicted gain 10 %"


@settings(max_examples=15, deadline=None)
@given(width=st.integers(80, 200), height=st.integers(24, 60), operators=st.integers(1, 2))
def test_the_screen_fits_the_terminal(width, height, operators):
    history = run(60, reroute_at=8, operators=("tail", "destination")[:operators], noise=0.1)
    lines = drawn(history, width, height).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= height


def test_of_many_instances_the_most_loaded_are_shown():
    slots = tuple(SlotInfo(i, f"large-{i}", "large", 1.0) for i in range(4))
    history = History("flights", slots, {f"op{i}": "fields" for i in range(6)})
    history.batch_done(outcome(0, {f"op{i}": HASHED for i in range(6)}))
    text = drawn(history, 80, 24)
    assert text.count("large-3") == 6  # the slowest one of each operator
    assert "and 1 less loaded" in text


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.tuples(st.floats(0.01, 3.0), st.sampled_from(["batch", "event", "phase", "nothing"]))))
def test_a_log_gets_at_most_a_line_a_second_and_all_the_news(steps):
    history = History("flights", SLOTS, {"tail": "mixed"})
    lines = ProgressLines(history)
    now, printed, told = 0.0, [], []
    for number, (seconds, change) in enumerate(steps):
        if change == "batch":
            history.batch_done(outcome(number, {"tail": HASHED}))
        elif change == "event":
            history.event(now, number, f"news {number}.")
        elif change == "phase":
            history.enter(f"phase {number}")
        now += seconds
        if line := lines.next(now):
            printed.append((now, line))
    if line := lines.next(now, last=True):
        told = [line]
    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(printed)]
    assert all(gap >= LINE_SECONDS for gap in gaps)
    log = "\n".join([line for _, line in printed] + told)
    for event in history.events:
        assert log.count(event.text) == 1


def test_a_long_phase_shows_a_heartbeat():
    history = History("flights", SLOTS, {})
    history.enter("warming up")
    lines = ProgressLines(history)
    times = [t / 4 for t in range(200) if lines.next(t / 4) is not None]
    assert times == [0.0, HEARTBEAT_SECONDS, 2 * HEARTBEAT_SECONDS, 3 * HEARTBEAT_SECONDS, 4 * HEARTBEAT_SECONDS]


def test_without_a_terminal_the_view_prints_plain_lines_and_the_last_state():
    history = History("flights", SLOTS, {"tail": "mixed"})
    console = Console(file=io.StringIO(), width=40)
    with View(history, console, Clock()):
        history.enter("running")
        history.batch_done(outcome(7, {"tail": HASHED}))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 2  # no line is broken at the console's width, no control codes
    assert "starting" in lines[0]
    assert "running, epoch 1, batch 7" in lines[1]
    assert "\x1b" not in lines[1]


def test_in_a_terminal_the_last_state_stays_on_the_screen():
    history = run(5)
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=100, height=30)
    with View(history, console, Clock()):
        history.enter("done")
    assert "done" in console.file.getvalue().split("\x1b[2K")[-1]  # type: ignore[attr-defined]


def test_an_error_in_the_run_is_not_swallowed():
    console = Console(file=io.StringIO())
    with pytest.raises(ZeroDivisionError), View(run(1), console, Clock()):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (wording.count(0), "0"),
        (wording.count(999), "999"),
        (wording.count(15_300), "15.3 k"),
        (wording.count(1_700_000), "1.70 M"),
        (wording.count(999_999), "1.00 M"),
        (wording.size(412), "412 B"),
        (wording.size(1_200_000), "1.20 MB"),
        (wording.rate(None), "-"),
        (wording.tick(20_000), "20 k"),
        (wording.duration(0.085), "85 ms"),
        (wording.duration(9.99), "10 s"),
        (wording.duration(59.9), "1 min 00 s"),
        (wording.duration(125), "2 min 05 s"),
        (wording.percent(0.384), "38 %"),
    ],
)
def test_quantities_in_words(text, expected):
    assert text == expected
