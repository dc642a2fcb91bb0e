"""The events of a run in full, in a file that outlives its screen."""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path

from streamtopology.jobs.observe.history import History
from streamtopology.jobs.view.formatting import event_line

# Size at which the file makes way for a new one; the one before is kept under the name with `.1`.
MOST_BYTES = 1_000_000


class EventLog:
    """Appends each event of one history to `path`, as a listener of it. A file that cannot be written stops no run."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self.written = 0
        """The number of events of the history that the file has got."""
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._usable = True

    def __call__(self, history: History) -> None:
        """Append the events of `history` that are not written yet."""
        with self._lock:
            count, events = history.events_since(self.written)
            if not events or not self._usable:
                return
            lines = [f"{datetime.fromtimestamp(event.at):%Y-%m-%d %H:%M:%S} {event_line(event)}\n" for event in events]
            try:
                self._append("".join(lines))
                self.written = count
            except OSError:
                self._usable = False

    def _append(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size + len(text) > self._most_bytes:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        with self.path.open("a") as file:
            file.write(text)
