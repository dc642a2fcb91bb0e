"""The progress of a simulation: bars in a terminal, a line per operator and one every ten seconds everywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from streamtopology.jobs.view.live_view import HEARTBEAT_SECONDS


class Progress(Protocol):
    def begin(self, operator: str) -> None:
        """Take this operator next: its rows are drawn or read."""
        ...

    def advance(self, done: int, batches: int) -> None:
        """Note that `done` of `batches` batches of it have gone through every policy."""
        ...


@contextmanager
def progress_on(console: Console, operators: Sequence[str], batches: int) -> Iterator[Progress]:
    """Show progress over `operators` on `console` while entered; `batches` is the expected number for each."""
    if not console.is_terminal:
        yield ProgressLines(console, len(operators), time.monotonic)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("batches under every policy"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        yield _ProgressBars(bars, operators, batches)


class ProgressLines:
    """`clock` gives seconds on any monotonic scale."""

    def __init__(self, console: Console, operators: int, clock: Callable[[], float]) -> None:
        self._console = console
        self._operators = operators
        self._clock = clock
        self._begun = 0
        self._name = ""
        self._printed_at = clock()

    def begin(self, operator: str) -> None:
        self._begun, self._name = self._begun + 1, operator
        self._print("its rows go through every policy")

    def advance(self, done: int, batches: int) -> None:
        if self._clock() - self._printed_at >= HEARTBEAT_SECONDS:
            self._print(f"{done} of {batches} batches")

    def _print(self, text: str) -> None:
        self._printed_at = self._clock()
        line = f"operator {self._begun} of {self._operators}, {self._name}: {text}"
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class _ProgressBars:
    """A bar for each operator from the start, so that it shows how much is left."""

    def __init__(self, bars: Bars, operators: Sequence[str], batches: int) -> None:
        self._bars = bars
        self._tasks = {name: bars.add_task(name, total=batches, start=False) for name in operators}
        self._current = next(iter(self._tasks.values()))

    def begin(self, operator: str) -> None:
        self._current = self._tasks[operator]
        self._bars.start_task(self._current)

    def advance(self, done: int, batches: int) -> None:
        self._bars.update(self._current, completed=done, total=batches)
