"""The live view: a line a second in a log, a screen that fits in a terminal, nothing left out that is news."""

from __future__ import annotations

import io
import itertools
import re
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from support.histories import (
    BY_CAPACITY,
    CAPACITIES,
    HASHED,
    SLOTS,
    Clock,
    load_report,
    outcome,
    reconfiguration,
    run,
    source_shares,
)

from streamtopology.contract import formatting
from streamtopology.contract.phases import Phase
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import Binding, BindingKind
from streamtopology.contract.stats import Rerouting, Slot
from streamtopology.contract.wire_values import from_wire, to_wire
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.view.formatting import rerouting
from streamtopology.jobs.view.live_view import HEARTBEAT_SECONDS, LINE_SECONDS, ProgressLines, View
from streamtopology.jobs.view.screen import screen


def drawn(history: History, width: int = 120, height: int = 40) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width, height=height)
    console.print(screen(history, 12.0, console.size))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_phases_are_shown_from_the_first_moment():
    history = History("flights", SLOTS, {})
    history.enter(Phase.STARTING, "starting executors 2/4")
    assert "starting executors 2/4" in drawn(history)
    assert "starting executors 2/4" in (ProgressLines(history).next(0.0) or "")


def test_the_screen_names_every_instance_with_its_executor_class_and_load():
    text = drawn(run(10))
    for slot in SLOTS:
        assert re.search(rf"{slot.index} +{slot.executor} +{slot.class_name}", text)
    relative = HASHED[3] / CAPACITIES[3] * sum(CAPACITIES)
    assert f"{relative:.2f}x" in text
    assert "imbalance" in text
    assert "epoch 1  batch 9" in text


def test_reroutings_and_events_are_reported_in_words():
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


def test_rerouting_line_omits_a_missing_prediction_and_operator():
    applied = reconfiguration(epoch=3, batch=14, operator="(source)", keys_moved=0, bytes_moved=0, predicted_gain=0.0)
    assert rerouting(applied) == "epoch 3 at batch 14: no keys moved"
    planned = replace(applied, predicted_gain=0.1)
    assert rerouting(planned) == "epoch 3 at batch 14: sources are read in other shares, predicted gain 10 %"
    assert rerouting(source_shares(epoch=3, batch=14)) == "epoch 3 at batch 14: sources are read in other shares"
    by_wire = from_wire(Rerouting, to_wire(source_shares(epoch=3, batch=14)))
    reason = "source: shares by measured capacity, imbalance 48.7%"
    assert rerouting(by_wire) == f"epoch 3 at batch 14: no keys moved ({reason})"


@settings(max_examples=40)
@given(width=st.integers(40, 200), height=st.integers(4, 60), operators=st.integers(1, 9))
def test_in_any_terminal_the_newest_rerouting_is_in_sight(width, height, operators):
    names = ["tail", "destination", "tail.partial", *(f"op{i}" for i in range(6))][:operators]
    history = run(20, reroute_at=8, operators=names, noise=0.1)
    history.served_at("http://127.0.0.1:4040/")
    history.event(0.0, 19, "executor small-0 lost")
    lines = drawn(history, width, height).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < height, "a terminal scrolls after its last line"
    assert any("epoch 2 at batch 8" in line for line in lines)


def test_a_short_terminal_has_a_line_per_operator_with_its_most_loaded_instance():
    history = History("flights", SLOTS, {f"op{i}": "fields" for i in range(6)})
    history.batch_done(outcome(0, {f"op{i}": HASHED for i in range(6)}))
    lines = drawn(history, 100, 24).splitlines()
    named = [line for line in lines if re.match(r" op\d +fields +imbalance \d+ % .* [\d.]+x +small-0, most loaded of 4", line)]
    assert len(named) == 6
    assert "and 4 operators that are less busy" in drawn(history, 100, 5)


def test_of_many_instances_the_most_loaded_are_shown():
    slots = tuple(Slot(i, f"large-{i}", "large", 1.0) for i in range(12))
    history = History("flights", slots, {"tail": "fields"})
    reports = tuple(load_report("tail", i, 1000 * (i + 1), 0.1 * (i + 1)) for i in range(12))
    history.batch_done(replace(outcome(0, {}), reports=reports))
    text = drawn(history, 100, 16)
    assert "large-11" in text
    assert "large-0 " not in text
    assert re.search(r"and \d less loaded", text)


def test_address_of_the_page_is_printed_in_both_forms():
    history = run(2)
    history.served_at("http://127.0.0.1:4040/")
    assert "http://127.0.0.1:4040/" in drawn(history)
    lines = ProgressLines(history)
    assert "page: http://127.0.0.1:4040/" in (lines.next(0.0) or "")
    assert "4040" not in (lines.next(60.0) or ""), "once"


BERLIN = Binding(BindingKind.KEY, "tail", 1.27, 0.61, instance=1, key="Berlin", combinable=False)


def test_constraint_of_the_batches_is_shown_where_there_is_room():
    history = run(4)
    history.binding = BERLIN
    for width in (80, 120, 200):
        assert describe(BERLIN) in " ".join(drawn(history, width).split())
    low = drawn(history, 80, 12)
    assert "tail is bounded by one key" in low
    assert len(low.splitlines()) < 12
    assert "bounded" not in drawn(history, 80, 7)


def test_divided_keys_are_named_where_there_is_room():
    history = run(4)
    history.policies = dict.fromkeys(history.policies, "auto")
    assert not history.divided.heaviest
    history.batch_done(outcome(4, {"tail": BY_CAPACITY}))
    assert "key N725MQ of tail, 4.00 k rows a batch, is divided over 4 instances" in drawn(history)
    assert "divided" not in drawn(history, 80, 12)


def test_log_says_what_bounds_the_batches_once_for_each_subject():
    history = run(4)
    lines, times = ProgressLines(history), itertools.count(0, 60)
    history.binding = BERLIN
    assert describe(BERLIN) in (lines.next(next(times)) or "")
    history.binding = replace(BERLIN, seconds=1.4)
    assert "Berlin" not in (lines.next(next(times)) or ""), "other figures alone are not printed"
    history.binding = None
    lines.next(next(times))
    history.binding = replace(BERLIN, key="Paris")
    assert "Paris" in (lines.next(next(times)) or "")


def test_two_rows_have_no_imbalance():
    history = History("flights", SLOTS, {"tail": "fields"})
    history.batch_done(outcome(0, {"tail": HASHED}, rows=2))
    assert "too few rows to judge" in drawn(history)
    assert "too few rows to judge" in (ProgressLines(history).next(0.0) or "")
    history.batch_done(outcome(1, {"tail": HASHED}, rows=160))
    assert re.search(r"imbalance \d+ %", drawn(history))


def test_late_rows_are_counted_and_no_rate_is_shown_of_rows_that_do_not_come():
    clock = Clock()
    history = History("flights", SLOTS, {"tail": "mixed"}, clock)
    history.enter(Phase.RUNNING)
    batch = outcome(0, {"tail": HASHED})
    history.batch_done(replace(batch, reports=tuple(replace(report, late_rows=report.rows) for report in batch.reports)))
    clock.now = 9.0
    for shown in (drawn(history), ProgressLines(history).next(0.0) or ""):
        assert "40,000 rows late" in shown
        assert "rows/s" in shown
    clock.now = 12.0
    for shown in (drawn(history), ProgressLines(history).next(0.0) or ""):
        assert "no new rows for 12 s" in shown
        assert "rows/s" not in shown.splitlines()[0]


def test_both_halves_of_a_split_operator_bear_its_name():
    history = History("flights", SLOTS, {"counts": "partial-key", "last": "fields"})
    history.batch_done(outcome(0, {"last": HASHED, "counts": HASHED, "counts.partial": HASHED}))
    for text in (drawn(history, 100, 40), drawn(history, 100, 16)):
        assert ".partial" not in text
        order = [text.index(part) for part in ("counts (parts of keys)", "merges the parts", "last")]
        assert order == sorted(order)
    assert "partial-key" in drawn(history, 100, 40)


@settings(max_examples=30)
@given(steps=st.lists(st.tuples(st.floats(0.01, 3.0), st.sampled_from(["batch", "event", "phase", "nothing"]))))
def test_a_log_gets_at_most_a_line_a_second_and_all_the_news(steps):
    history = History("flights", SLOTS, {"tail": "mixed"})
    lines = ProgressLines(history)
    now, printed, reported = 0.0, [], []
    for number, (seconds, change) in enumerate(steps):
        if change == "batch":
            history.batch_done(outcome(number, {"tail": HASHED}))
        elif change == "event":
            history.event(now, number, f"news {number}.")
        elif change == "phase":
            history.enter(Phase.STARTING, f"phase {number}")
        now += seconds
        if line := lines.next(now):
            printed.append((now, line))
    if line := lines.next(now, last=True):
        reported = [line]
    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(printed)]
    assert all(gap >= LINE_SECONDS for gap in gaps)
    log = "\n".join([line for _, line in printed] + reported)
    for event in history.events:
        assert log.count(event.text) == 1


def test_a_long_phase_shows_a_heartbeat():
    history = History("flights", SLOTS, {})
    history.enter(Phase.WARMING_UP)
    lines = ProgressLines(history)
    times = [t / 4 for t in range(200) if lines.next(t / 4) is not None]
    assert times == [0.0, HEARTBEAT_SECONDS, 2 * HEARTBEAT_SECONDS, 3 * HEARTBEAT_SECONDS, 4 * HEARTBEAT_SECONDS]


def test_without_a_terminal_the_view_prints_plain_lines_and_the_last_state():
    history = History("flights", SLOTS, {"tail": "mixed"})
    console = Console(file=io.StringIO(), width=40)
    with View(history, console, Clock()):
        history.enter(Phase.RUNNING)
        history.batch_done(outcome(7, {"tail": HASHED}))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 2  # no line is broken at the console's width, no control codes
    assert "starting" in lines[0]
    assert "running, epoch 1, batch 7" in lines[1]
    assert "\x1b" not in lines[1]


def test_lines_of_runs_in_turns_say_whose_they_are_and_repeat_nothing():
    first, second = run(8, reroute_at=4), History("other", SLOTS, {})
    console, now = Console(file=io.StringIO(), width=40), [0.0]
    printer = View(first, console, lambda: now[0])
    with printer:
        for now[0], history in (20.0, second), (40.0, first):
            printer.turn_to(history)
            while f"{history.topology}: [" not in console.file.getvalue():  # type: ignore[attr-defined]
                time.sleep(0.01)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("epoch 2 at batch 4") == 1


def test_the_clock_counts_from_the_command_on():
    console, clock = Console(file=io.StringIO(), width=100), Clock(now=130.0)
    with View(run(1), console, clock, 100.0):
        pass
    assert console.file.getvalue().startswith("[  30.0 s]")  # type: ignore[attr-defined]


def test_long_step_of_a_start_does_not_hide_the_clock():
    history = run(0)
    history.starting("step 3 of 5, usually 30 s in all: 2 of 4 executors are warm; the first batch waits for all of them")
    console = Console(file=io.StringIO(), width=60, height=12)
    console.print(screen(history, 42.0, console.size))
    assert "  42 s  step 3 of 5" in console.file.getvalue()  # type: ignore[attr-defined]


def test_in_a_terminal_the_last_state_stays_on_the_screen():
    history = run(5)
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=100, height=30)
    with View(history, console, Clock()):
        history.enter(Phase.DONE)
    assert "done" in console.file.getvalue().split("\x1b[2K")[-1]  # type: ignore[attr-defined]


def test_an_error_in_the_run_is_not_swallowed():
    console = Console(file=io.StringIO())
    with pytest.raises(ZeroDivisionError), View(run(1), console, Clock()):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (formatting.count(0), "0"),
        (formatting.count(999), "999"),
        (formatting.count(15_300), "15.3 k"),
        (formatting.count(1_700_000), "1.70 M"),
        (formatting.count(999_999), "1.00 M"),
        (formatting.size(412), "412 B"),
        (formatting.size(1_200_000), "1.20 MB"),
        (formatting.rate(None), "-"),
        (formatting.tick(20_000), "20 k"),
        (formatting.duration(0.085), "85 ms"),
        (formatting.duration(9.99), "10 s"),
        (formatting.duration(59.9), "1 min 00 s"),
        (formatting.duration(125), "2 min 05 s"),
        (formatting.percent(0.384), "38 %"),
        (formatting.percent(-1e-9), "0 %"),
    ],
)
def test_quantities_in_words(text, expected):
    assert text == expected


def test_batch_that_takes_long_is_shown_with_its_time_and_rows():
    clock = Clock()
    history = History("flights", SLOTS, {}, clock)
    history.enter(Phase.RUNNING)
    history.batch_begins(283, 730_000)
    clock.now = 2.0
    assert "batch 283" not in drawn(history), "most batches end sooner"
    clock.now = 12.0
    for text in (drawn(history), ProgressLines(history).next(0.0) or ""):
        assert "running batch 283 for 12 s, about 730,000 rows" in text
    history.batch_begins(284, None)
    clock.now = 24.0
    assert "running batch 284 for 12 s\n" in drawn(history)
    history.batch_done(outcome(284, {"tail": HASHED}))
    clock.now = 60.0
    assert "running batch" not in drawn(history)


def test_newest_event_is_wrapped_where_the_terminal_has_room():
    history = run(5)
    history.event(0.0, 4, "clicks.yaml changed but is not applied: " + "a reason that is long, " * 8 + "and the remedy")
    for height in (40, 14):
        lines = drawn(history, 100, height).splitlines()
        assert "and the remedy" in lines[-1]
        assert max(map(len, lines)) <= 100
    assert "and the remedy" not in drawn(history, 100, 4)
