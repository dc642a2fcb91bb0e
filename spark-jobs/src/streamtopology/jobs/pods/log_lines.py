"""What a run does, as lines of a pod's log: each phase, batch, re-routing and event once, tagged with its batch."""

from __future__ import annotations

import threading

from streamtopology.jobs import wording
from streamtopology.jobs.history import BatchOutcome, History
from streamtopology.jobs.logs import working_on
from streamtopology.jobs.measures import heaviest_operators, imbalance


class LogLines:
    """Prints from whatever thread changes the history it listens to."""

    def __init__(self, history: History) -> None:
        self._lock = threading.Lock()
        self._phase = ""
        self._batches = 0
        self._reroutings = 0
        self._events = 0
        history.listen(self._tell)

    def _tell(self, history: History) -> None:
        with self._lock:
            if history.phase != self._phase:
                self._phase = history.phase
                print(self._phase)
            for event in history.events[self._events :]:
                self._events += 1
                with working_on(event.batch if event.batch >= 0 else None):
                    print(event.text)
            for change in history.reconfigurations[self._reroutings :]:
                self._reroutings += 1
                with working_on(change.batch):
                    print(wording.rerouting(change))
            for batch in history.batches[self._batches :]:
                self._batches += 1
                with working_on(batch.number):
                    print(_summary(history, batch))


def _summary(history: History, batch: BatchOutcome) -> str:
    text = f"committed: {wording.count(batch.rows)} rows in {wording.duration(batch.seconds)}, epoch {batch.epoch}"
    if batch.attempt > 1:
        text += f", attempt {batch.attempt}"
    heaviest = heaviest_operators(history)
    return f"{text}, imbalance of {heaviest[0]} {wording.percent(imbalance(batch, heaviest[0]))}" if heaviest else text
