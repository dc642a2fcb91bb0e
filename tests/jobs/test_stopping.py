"""`streamtopology stop` shows in the run that it stops, and its answer names the batch that still runs."""

from __future__ import annotations

from typing import Any, cast

from streamtopology.jobs.local.run import stop_by_command
from streamtopology.jobs.observe.history import History, RunningBatch
from streamtopology.jobs.runtime.topology_run import TopologyRun, drain_answer

RUNNING = RunningBatch(7, None, 0.0, lambda: 12.0)


class _Run:
    def __init__(self) -> None:
        self.stops: list[Any] = []
        self.events: list[str] = []

    def stop(self, drain: bool, now: bool) -> str:
        self.stops.append((drain, now))
        return "stopping after the running batch"

    def notify(self, text: str) -> None:
        self.events.append(text)


def test_stop_of_another_terminal_is_an_event_of_the_run() -> None:
    run, history = _Run(), History("clicks", (), {})
    assert stop_by_command(cast(TopologyRun, run), history, False, False) == "stopping after the running batch"
    stop_by_command(cast(TopologyRun, run), history, True, False)
    assert run.stops == [(False, False), (True, False)]
    assert run.events[0] == "streamtopology stop: stopping after the running batch"
    assert history.stopped_by == "streamtopology stop --drain"


def test_answer_to_a_drain_names_the_batch_that_still_runs() -> None:
    text = drain_answer({}, RUNNING, False)
    assert text == "batch 7 is still running, for 12 s now; the sources hold nothing more: closing all open windows after it"
    text = drain_answer({"rows": "8 files"}, RUNNING, False)
    assert text.startswith("batch 7 is still running, for 12 s now; 8 files of source 'rows' are unread: reading them after it")


def test_answer_to_a_drain_between_batches_names_no_batch() -> None:
    assert drain_answer({}, None, False) == "the sources hold nothing more: closing all open windows"
    assert "reading them first, then closing" in drain_answer({"rows": "8 files"}, None, False)
    assert "their rows will be late, as all windows close now" in drain_answer({"rows": "8 files"}, None, True)
