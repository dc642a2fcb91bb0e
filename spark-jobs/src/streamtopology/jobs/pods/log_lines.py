"""The lines of a pod's log: each phase, batch, re-routing and event of a run once, tagged with its batch."""

from __future__ import annotations

import threading
from typing import TextIO

from streamtopology.contract import formatting
from streamtopology.contract.phases import Activity
from streamtopology.jobs.log_tags import working_on
from streamtopology.jobs.observe.figures import heaviest_operator
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.view.formatting import imbalance_text, rerouting, shown_name


class LogLines:
    """Prints to `out` (default: the standard output) from the thread that changes the history."""

    def __init__(self, history: History, out: TextIO | None = None) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._activity: Activity | None = None
        self._batches = 0
        self._reroutings = 0
        self._events = 0
        history.listen(self._notify)

    def _notify(self, history: History) -> None:
        with self._lock:
            if history.activity != self._activity:
                self._activity = history.activity
                print(self._activity, file=self._out)
            self._events, events = history.events_since(self._events)
            for event in events:
                with working_on(event.batch if event.batch >= 0 else None):
                    print(event.text, file=self._out)
            self._reroutings, changes = history.reconfigurations_since(self._reroutings)
            for change in changes:
                with working_on(change.batch):
                    print(rerouting(change), file=self._out)
            self._batches, batches = history.batches_since(self._batches)
            for batch in batches:
                with working_on(batch.number):
                    print(_summary(history, batch), file=self._out)


def _summary(history: History, batch: BatchOutcome) -> str:
    text = f"committed: {formatting.count(batch.rows)} rows in {formatting.duration(batch.seconds)}, epoch {batch.epoch}"
    if batch.attempt > 1:
        text += f", attempt {batch.attempt}"
    heaviest = heaviest_operator(history)
    return f"{text}, {shown_name(heaviest)}: {imbalance_text(batch, heaviest)}" if heaviest else text
