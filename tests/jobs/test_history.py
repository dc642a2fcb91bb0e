"""The record of a run is as large after a year as after an hour, and its figures are still those of the whole run."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from support.histories import BY_CAPACITY, HASHED, SLOTS, outcome, reconfiguration, run

from streamtopology.jobs.observe.figures import imbalance_before_and_after, rate_before_and_after
from streamtopology.jobs.observe.history import KEPT_BATCHES, KEPT_EVENTS, KEPT_WHOLE, History, Recent
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.observe.stats import MOST_RECONFIGURATIONS, build_stats
from streamtopology.jobs.view.run_report import build_report, summary_text


def live_objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def long_run(batches: int, *, reroute_at: int) -> History:
    """A run of a few values that come again and again, so that it is quickly made."""
    history = History("flights", SLOTS, {"tail": "mixed"})
    hashed, balanced = (outcome(0, {"tail": split}) for split in (HASHED, BY_CAPACITY))
    for number in range(batches):
        if number == reroute_at:
            history.rerouted(reconfiguration(epoch=2, batch=number))
        history.batch_done(numbered(balanced if number >= reroute_at else hashed, number))
    return history


def numbered(batch: BatchOutcome, number: int) -> BatchOutcome:
    return BatchOutcome(**{**vars(batch), "number": number, "committed_at": float(number)})


def test_history_takes_no_more_memory_after_more_batches() -> None:
    history = run(0)
    history.enter(history.activity.phase)

    def proceed(first: int, last: int) -> int:
        for number in range(first, last):
            history.batch_done(outcome(number, {"tail": HASHED}))
            history.rerouted(reconfiguration(epoch=number, batch=number))
            history.event(0.0, number, f"event {number}")
        return live_objects()

    assert KEPT_BATCHES < 1_100, "the first part is to fill all that is kept"
    after_first = proceed(0, 1_100)
    after_second = proceed(1_100, 2_200)
    assert after_second <= 1.001 * after_first


def test_totals_are_of_all_batches_though_the_oldest_are_gone() -> None:
    batches = KEPT_BATCHES + 500
    history = long_run(batches, reroute_at=10)
    report = build_report(history)
    assert (len(history.batches), report["batches"]) == (KEPT_BATCHES, batches)
    assert report["rows"] == 40_000 * batches
    instances = report["operators"][0]["instances"]
    assert [entry["rows"] for entry in instances] == [
        round(40_000 * before) * 10 + round(40_000 * after) * (batches - 10)
        for before, after in zip(HASHED, BY_CAPACITY, strict=True)
    ]
    assert report["throughput"]["rerouted_whole_run"] == pytest.approx(report["rows"] / report["seconds"])


def test_state_before_the_first_rerouting_is_remembered() -> None:
    short, long = (long_run(batches, reroute_at=10) for batches in (60, KEPT_BATCHES + 500))
    assert imbalance_before_and_after(long) == pytest.approx(imbalance_before_and_after(short))
    assert rate_before_and_after(long) == pytest.approx(rate_before_and_after(short))


def test_only_the_newest_batches_have_loads_of_keys() -> None:
    history = run(KEPT_WHOLE + 3)
    with_keys = [bool(batch.reports[0].bucket_rows.count) for batch in history.batches]
    assert with_keys == [False] * 3 + [True] * KEPT_WHOLE


def test_every_event_is_seen_once_by_a_reader_that_looks_often() -> None:
    history, seen, texts = History("flights", SLOTS, {}), 0, list[str]()
    for number in range(3 * KEPT_EVENTS):
        history.event(0.0, number, str(number))
        if number % 700 == 0 or number == 3 * KEPT_EVENTS - 1:
            seen, events = history.events_since(seen)
            texts += [event.text for event in events]
    assert texts == [str(number) for number in range(3 * KEPT_EVENTS)]
    assert history.events_since(seen) == (seen, ())


def test_reader_that_looks_too_seldom_gets_the_newest() -> None:
    recent: Recent[int] = Recent(3)
    for number in range(10):
        recent.append(number)
    assert recent.since(2) == (10, (7, 8, 9))
    assert recent.since(9) == (10, (9,))
    recent.change(0, lambda number: -number)
    recent.change(3, lambda number: -number)
    assert recent.kept() == (7, 8, -9)


def test_stats_hold_the_newest_reroutings_and_the_summary_counts_all() -> None:
    history = run(5)
    for epoch in range(2_000):
        history.rerouted(reconfiguration(epoch=epoch, keys_moved=1))
    epochs = [change["epoch"] for change in build_stats(history)["reconfigurations"]]
    assert epochs == list(np.arange(2_000)[-MOST_RECONFIGURATIONS:])
    assert "2,000; the newest 1,000 of them moved 1,000 keys" in summary_text(build_report(history), rerouted=True)
