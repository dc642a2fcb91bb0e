"""The live view of a run: a screen that redraws itself in a terminal or a notebook, plain progress lines everywhere else.

The view pulls from the history a few times a second in its own thread, so that drawing never delays a batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from streamtopology.contract.phases import Activity
from streamtopology.contract.reason_text import describe
from streamtopology.jobs.observe.figures import heaviest_operator
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.view.formatting import activity_text, imbalance_text, late_text, rate_text, rerouting, shown_name
from streamtopology.jobs.view.screen import screen

REFRESHES_PER_SECOND = 4
LINE_SECONDS = 1.0
HEARTBEAT_SECONDS = 10.0


class View:
    """Shows `history`, until it is told another, on `console` between `with` and its end; the last state stays on the screen.

    `clock` gives seconds on any monotonic scale; the view counts from `started` (default: now).
    """

    def __init__(self, history: History, console: Console, clock: Callable[[], float], started: float | None = None) -> None:
        started = clock() if started is None else started
        self._history = history
        self._shown: AbstractContextManager[object]
        in_notebook = console.is_jupyter and find_spec("ipywidgets") is not None  # rich draws there by an Output of them
        if console.is_terminal or in_notebook:
            self._shown = Live(
                console=console,
                refresh_per_second=1 if in_notebook else REFRESHES_PER_SECOND,
                get_renderable=lambda: screen(self._history, clock() - started, console.size),
            )
        else:
            self._shown = _LinePrinter(lambda: self._history, console, lambda: clock() - started)

    def turn_to(self, history: History) -> None:
        """Show `history` from now on: of runs that take turns the one that has its turn."""
        self._history = history

    def __enter__(self) -> Self:
        self._shown.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._shown.__exit__(kind, error, at)


class ProgressLines:
    """The next line of a log: at most one a second, one at least every ten seconds, no event left out."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._printed: tuple[Activity, int] | None = None  # activity and number of batches of the last line
        self._printed_at = 0.0
        self._reroutings = 0
        self._events = 0
        self._address = ""
        self._bound: tuple[str, ...] = ()  # the subject of the last constraint printed

    def next(self, elapsed: float, *, last: bool = False) -> str | None:
        """The line to print `elapsed` seconds into the run, or None; `last` when no other chance will come."""
        state = (self._history.activity, self._history.totals.batches)
        waited = elapsed - self._printed_at
        reroutings, changes = self._history.reconfigurations_since(self._reroutings)
        count, events = self._history.events_since(self._events)
        binding = self._history.binding
        bound = [describe(binding)] if binding is not None and binding.subject != self._bound else []
        news = [*self._new_address(), *bound, *map(rerouting, changes), *(event.text for event in events)]
        changed = state != self._printed or bool(news)
        if self._printed is not None and not last and waited < (LINE_SECONDS if changed else HEARTBEAT_SECONDS):
            return None
        if last and not changed:
            return None
        self._printed, self._printed_at = state, elapsed
        self._reroutings, self._events = reroutings, count
        self._address = self._history.address
        self._bound = self._bound if binding is None else binding.subject
        return " | ".join([f"[{elapsed:6.1f} s] {_status(self._history)}", *news])

    def _new_address(self) -> list[str]:
        return [f"page: {self._history.address}"] if self._history.address != self._address else []


class _LinePrinter:
    """Prints lines of the `current` history from a thread, so that a long phase without any change still shows life."""

    def __init__(self, current: Callable[[], History], console: Console, elapsed: Callable[[], float]) -> None:
        self._current = current
        self._lines: dict[History, ProgressLines] = {}
        self._console = console
        self._elapsed = elapsed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress-lines", daemon=True)

    def __enter__(self) -> Self:
        self._print()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self._print(last=True)

    def _run(self) -> None:
        while not self._ended.wait(1 / REFRESHES_PER_SECOND):
            self._print()

    def _print(self, last: bool = False) -> None:
        history = self._current()
        line = self._lines.setdefault(history, ProgressLines(history)).next(self._elapsed(), last=last)
        if line is not None:
            of = f"{history.topology}: " if len(self._lines) > 1 else ""
            self._console.print(f"{of}{line}", soft_wrap=True, markup=False, highlight=False)


def _status(history: History) -> str:
    """One line on where the run stands."""
    batches = history.batches
    if not batches:
        return activity_text(history)
    last = batches[-1]
    text = f"{activity_text(history)}, epoch {last.epoch}, batch {last.number}, {rate_text(history)}"
    heaviest = heaviest_operator(history)
    imbalance = [f"{shown_name(heaviest)}: {imbalance_text(last, heaviest)}"] if heaviest else []
    return ", ".join([text, *imbalance, *filter(None, [late_text(history)])])
