"""The record of a run is as large after a year as after an hour, and its figures are still those of the whole run."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from support.histories import BY_CAPACITY, HASHED, SLOTS, outcome, reconfiguration, run

from streamtopology.jobs.observe.figures import imbalance_before_and_after, rate_before_and_after
from streamtopology.jobs.observe.history import (
    KEPT_BATCHES,
    KEPT_EVENTS,
    KEPT_REPORTS,
    KEPT_WHOLE,
    KEPT_WHOLE_REPORTS,
    LEAST_BATCHES,
    History,
    Recent,
)
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.observe.stats import MOST_RECONFIGURATIONS, build_stats
from streamtopology.jobs.view.run_report import build_report, summary_text
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport


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


def test_with_many_instances_fewer_batches_are_kept() -> None:
    slots = tuple(replace(SLOTS[0], index=number) for number in range(512))
    history = History("flights", slots, {"first": "mixed", "second": "mixed"})
    for number in range(300):
        history.batch_done(outcome(number, {"first": HASHED}))
    with_keys = [bool(batch.reports[0].bucket_rows.count) for batch in history.batches]
    assert with_keys == [False] * (KEPT_REPORTS // 1024 - LEAST_BATCHES) + [True] * LEAST_BATCHES
    assert KEPT_WHOLE_REPORTS // 1024 == LEAST_BATCHES
    history.slots_are(slots * 100)
    history.batch_done(outcome(300, {"first": HASHED}))
    assert [batch.number for batch in history.batches] == list(range(301 - LEAST_BATCHES, 301))


def bytes_of_report(used: int, buckets: int) -> float:
    """Of memory, in a history of reports that were read, with rows in `used` of their buckets."""
    dense = np.zeros(buckets, np.int64)
    dense[np.linspace(0, buckets - 1, used).astype(np.int64)] = np.arange(100, 100 + used)
    batch = outcome(0, {"tail": HASHED})
    wires = [replace(report, bucket_rows=BucketRows.of(dense)).to_wire() for report in batch.reports]
    history = History("flights", SLOTS, {"tail": "mixed"})
    tracemalloc.start()
    for number in range(KEPT_WHOLE):
        history.batch_done(replace(batch, number=number, reports=tuple(LoadReport.from_wire(wire) for wire in wires)))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / (KEPT_WHOLE * len(wires))


@pytest.mark.parametrize("buckets", [4096, 65_536])
def test_report_that_is_kept_takes_the_bytes_of_buckets_with_rows(buckets: int) -> None:
    bytes_of_report(1, 4096)  # readers are made
    without_rows = bytes_of_report(0, 4096)
    assert without_rows < 5_000
    for used in (1, 16, 1000, 4096):
        assert bytes_of_report(used, buckets) <= without_rows + 500 + 6.5 * used


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
    recent.keep(2)
    assert (recent.kept(), recent.since(0)) == ((8, -9), (10, (8, -9)))


def test_stats_hold_the_newest_reroutings_and_the_summary_counts_all() -> None:
    history = run(5)
    for epoch in range(2_000):
        history.rerouted(reconfiguration(epoch=epoch, keys_moved=1))
    epochs = [change["epoch"] for change in build_stats(history)["reconfigurations"]]
    assert epochs == list(np.arange(2_000)[-MOST_RECONFIGURATIONS:])
    assert "2,000; the newest 1,000 of them moved 1,000 keys" in summary_text(build_report(history), rerouted=True)
