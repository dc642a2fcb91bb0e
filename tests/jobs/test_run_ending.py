"""The last lines of a run answer what a user asks next: what went where, what is left, how to continue and to start over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from support.histories import run, source_shares

from streamtopology.contract.reasons import Hold, HoldReason
from streamtopology.jobs.own_command import DEFAULT_WORK_DIR, on_manifest
from streamtopology.jobs.view.formatting import still_unbalanced, verdict
from streamtopology.jobs.view.run_ending import Ending, LeftBehind, SinkRows, ending_text

LEFT = LeftBehind("/work/checkpoint", 12_300_000, 20, 19, 1_767_265_200.0, keyed_operators=["fares"])
ENDED = Ending(
    topology="trips",
    arguments="trips.yaml",
    seconds=62.0,
    batch_seconds=12.0,
    batches=20,
    rows_in=200_000,
    sinks=[SinkRows("fares", "/out/fares", 1_500), SinkRows("alerts", "topic alerts at kafka:9092", 0)],
    late={},
    set_aside={},
    left=LEFT,
)


def test_ending_names_rows_places_checkpoint_and_what_to_do_next() -> None:
    assert ending_text(ENDED).splitlines() == [
        "trips: 20 batches, 200,000 rows in 1 min 02 s, 12 s of them in batches",
        "  rows in        200,000",
        "  rows out       1,500 to fares: /out/fares",
        "  rows out       0 to alerts: topic alerts at kafka:9092",
        "  late           none",
        "  set aside      none",
        "  checkpoint     /work/checkpoint (12.3 MB), good, as of batch 20",
        "                 the same command continues from it; to start over: streamtopology run trips.yaml --fresh",
        "  see more       a picture and all figures: --report DIR; a key's state: streamtopology state get trips.yaml KEY",
    ]


def test_hint_at_a_keys_state_runs_whatever_operators_there_are_and_however_the_manifest_is_called() -> None:
    arguments = on_manifest(Path("my trips.yaml"), DEFAULT_WORK_DIR)

    def seen(*keyed: str) -> str:
        return ending_text(replace(ENDED, arguments=arguments, left=replace(LEFT, keyed_operators=keyed)))

    assert seen("fares").endswith("streamtopology state get 'my trips.yaml' KEY")
    assert seen("fares", "sums").endswith("streamtopology state get 'my trips.yaml' KEY --operator fares")
    assert "state get" not in seen()
    assert "streamtopology run 'my trips.yaml' --fresh" in seen()


def test_ending_names_late_rows_and_rows_set_aside() -> None:
    text = ending_text(replace(ENDED, late={"sums": 400_000}, set_aside={"rows": 2}, left=replace(LEFT, dead_letters="/dead")))
    assert "late           400,000 of sums: left out, as their window was closed" in text
    assert "set aside      2 of rows: in /dead" in text


def test_ending_names_rows_that_were_deleted_before_they_were_read() -> None:
    text = ending_text(replace(ENDED, skipped={"clicks": 130}))
    assert "skipped        130 of clicks: deleted before they were read, and failOnDataLoss is false" in text


def test_ending_names_rows_that_where_left_out() -> None:
    text = ending_text(replace(ENDED, filtered={"flights": 84_218}))
    assert "rows in        200,000; 84,218 of flights left out by where" in text
    assert "rows in        0; 7 of flights left out by where" in ending_text(replace(ENDED, rows_in=0, filtered={"flights": 7}))


def test_ending_with_open_windows_says_how_to_close_them() -> None:
    text = ending_text(replace(ENDED, left=replace(LEFT, open_windows={"sums": 34}, unread={"rows": "8 files"})))
    assert "unread         8 files of rows: the next run reads them" in text
    assert "windows open   34 of sums" in text
    assert "to close them now: streamtopology run trips.yaml --drain" in text


def test_ending_with_closed_windows_says_that_unread_rows_are_late() -> None:
    text = ending_text(replace(ENDED, left=replace(LEFT, closed=True, unread={"rows": "8 files"})))
    assert "unread         8 files of rows: their rows will be late, as all windows are closed" in text
    assert "windows        all closed for good" in text
    text = ending_text(replace(ENDED, late={"sums": 7}, left=replace(LEFT, closed=True)))
    assert "7 of sums: left out, as their window was closed before they came; now all are closed, for good" in text


def test_run_that_finds_nothing_new_says_since_when() -> None:
    text = ending_text(replace(ENDED, rows_in=0, batches=1))
    assert "trips: 1 batch, 0 rows" in text
    assert "rows in        none: nothing new since batch 19, 20" in text
    assert "none: nothing new\n" in ending_text(replace(ENDED, rows_in=0, left=replace(LEFT, fed_batch=None)))
    assert "none: the sources hold no rows yet" in ending_text(replace(ENDED, rows_in=0, left=replace(LEFT, batch=None)))


def test_ending_names_the_file_that_has_all_events() -> None:
    text = ending_text(replace(ENDED, events=12, event_log="build/streamtopology/trips/events.log"))
    assert "events         12, in full in build/streamtopology/trips/events.log" in text


def test_ending_gives_the_controllers_reason_for_an_imbalance_that_is_left() -> None:
    history = run(12)
    history.judged(Hold(HoldReason.NOT_DUE, due_seconds=1.4))
    early = "imbalance      tail 142 %, tolerance 8 %; not re-routed: the run ended 1.4 s before the next judgement"
    assert early in ending_text(replace(ENDED, imbalance=still_unbalanced(history, 0.08)))
    history.judged(Hold(HoldReason.NOT_WORTH_COST, gain_seconds=0.01, batches=10, cost_seconds=0.3))
    history.judged(Hold(HoldReason.NOT_DUE, due_seconds=5.0))
    judged = "tail 142 %, tolerance 8 %; not re-routed: not worth its cost: saves 0.010 s a batch over 10 batches, costs 0.30 s"
    assert still_unbalanced(history, 0.08) == judged
    assert still_unbalanced(history, 1.5) == ""
    assert still_unbalanced(run(12, reroute_at=3), 0.08) == "", "balanced at the end"


def test_imbalance_left_after_other_source_shares_counts_as_rerouted() -> None:
    history = run(12)
    history.rerouted(source_shares(epoch=2, batch=7))
    history.judged(Hold(HoldReason.NO_BETTER_PLAN, stages=("tail",)))
    left = "tail 142 % -> 142 %, tolerance 8 %; not re-routed again: tail is out of balance, but no plan is noticeably better"
    assert still_unbalanced(history, 0.08) == left
    assert "nothing was re-routed" not in verdict(history, None)
