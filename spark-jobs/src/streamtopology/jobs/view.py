"""The live view of a run: a screen that redraws itself in a terminal, plain progress lines everywhere else.

The view pulls from the history a few times a second in its own thread, so that drawing never delays a batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamtopology.jobs import wording
from streamtopology.jobs.history import BatchOutcome, Event, History
from streamtopology.jobs.measures import (
    heaviest_operators,
    imbalance,
    operator_names,
    recent_rate,
    relative_loads,
    reports_of,
)
from streamtopology.routing.report import LoadReport

REFRESHES_PER_SECOND = 4
LINE_SECONDS = 1.0
HEARTBEAT_SECONDS = 10.0

_TREND_BATCHES = 48
_NEWS_LINES = 5
_MAX_NAME_WIDTH = 16
_MAX_BAR_WIDTH = 22
_MIN_BAR_WIDTH = 6
_FAIR_LOAD = 1.08  # the default tolerance of the controller
_HIGH_LOAD = 1.35
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"


class View:
    """Shows `history` on `console` between `with` and its end; the last state stays on the screen.

    `clock` gives seconds on any monotonic scale.
    """

    def __init__(self, history: History, console: Console, clock: Callable[[], float]) -> None:
        started = clock()
        self._shown: AbstractContextManager[object]
        if console.is_terminal:
            self._shown = Live(
                console=console,
                refresh_per_second=REFRESHES_PER_SECOND,
                get_renderable=lambda: screen(history, clock() - started, console.size),
            )
        else:
            self._shown = _LinePrinter(history, console, lambda: clock() - started)

    def __enter__(self) -> Self:
        self._shown.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._shown.__exit__(kind, error, at)


class ProgressLines:
    """Which line a log should get next: at most one a second, one at least every ten seconds, no news left out."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._printed: tuple[str, int] | None = None  # phase and number of batches of the last line
        self._printed_at = 0.0
        self._reroutings = 0
        self._events = 0

    def next(self, elapsed: float, *, last: bool = False) -> str | None:
        """The line to print `elapsed` seconds into the run, or None; `last` when no other chance will come."""
        state = (self._history.phase, len(self._history.batches))
        waited = elapsed - self._printed_at
        news = self._news_waiting()
        changed = state != self._printed or bool(news)
        if self._printed is not None and not last and waited < (LINE_SECONDS if changed else HEARTBEAT_SECONDS):
            return None
        if last and not changed:
            return None
        self._printed, self._printed_at = state, elapsed
        self._reroutings += len(self._history.reconfigurations[self._reroutings :])
        self._events += len(self._history.events[self._events :])
        return " | ".join([f"[{elapsed:6.1f} s] {_status(self._history)}", *news])

    def _news_waiting(self) -> list[str]:
        reroutings = self._history.reconfigurations[self._reroutings :]
        events = self._history.events[self._events :]
        return [wording.rerouting(change) for change in reroutings] + [event.text for event in events]


class _LinePrinter:
    """Prints progress lines from a thread, so that a long phase without any change still shows life."""

    def __init__(self, history: History, console: Console, elapsed: Callable[[], float]) -> None:
        self._lines = ProgressLines(history)
        self._console = console
        self._elapsed = elapsed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress-lines", daemon=True)

    def __enter__(self) -> Self:
        self._print(self._lines.next(self._elapsed()))
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self._print(self._lines.next(self._elapsed(), last=True))

    def _run(self) -> None:
        while not self._ended.wait(1 / REFRESHES_PER_SECOND):
            self._print(self._lines.next(self._elapsed()))

    def _print(self, line: str | None) -> None:
        if line is not None:
            self._console.print(line, soft_wrap=True, markup=False, highlight=False)


def screen(history: History, elapsed: float, size: ConsoleDimensions) -> RenderableType:
    """The whole view as one renderable that fits about `size` from 80 x 24 on, `elapsed` seconds into the run."""
    batches = history.batches
    parts: list[RenderableType] = [_header(history, elapsed)]
    news = _news(history)
    if batches:
        operators = operator_names(history)
        lines_left = size.height - 4 - len(news) - 3 * len(operators)
        most_instances = max(3, lines_left // max(1, len(operators)))
        for operator in operators:
            parts += _operator(history, batches[-1], operator, size.width, most_instances)
    return Group(*parts, *news)


def _status(history: History) -> str:
    """One line on where the run stands."""
    batches = history.batches
    if not batches:
        return history.phase
    last = batches[-1]
    text = f"{history.phase}, epoch {last.epoch}, batch {last.number}, {wording.rate(recent_rate(batches))}"
    heaviest = heaviest_operators(history)
    return f"{text}, imbalance of {heaviest[0]} {wording.percent(imbalance(last, heaviest[0]))}" if heaviest else text


def _header(history: History, elapsed: float) -> Text:
    batches = history.batches
    text = Text(no_wrap=True, overflow="ellipsis").append(f" {history.topology} ", "bold reverse")
    text.append(f"  {history.phase}", "bold cyan").append(f"  {wording.duration(elapsed)}", "dim")
    if batches:
        text.append(f"  epoch {batches[-1].epoch}  batch {batches[-1].number}")
        text.append(f"  {wording.rate(recent_rate(batches))} ", "bold")
        text.append(_trend(batches[-_TREND_BATCHES:]), "green")
    return text


def _trend(batches: tuple[BatchOutcome, ...]) -> str:
    rates = [batch.rows / batch.seconds if batch.seconds > 0 else 0.0 for batch in batches]
    top = max(rates) or 1.0
    return "".join(_LEVELS[round(rate / top * (len(_LEVELS) - 1))] for rate in rates)


def _operator(history: History, batch: BatchOutcome, operator: str, width: int, most: int) -> list[RenderableType]:
    """A title and a table of the operator's instances; of many, the `most` with the highest load / capacity."""
    reports = reports_of(batch, operator)
    loads = relative_loads(batch, operator)
    shown = sorted(sorted(reports, key=lambda r: -loads[r.instance])[:most], key=lambda r: r.instance)
    title = Text.assemble(
        "\n",
        (operator, "bold"),
        (f"  {history.policies.get(operator, '')}", "dim"),
        f"  imbalance {wording.percent(imbalance(batch, operator))}",
    )
    table, bar_width = _empty_table(history, width)
    slots = {slot.index: slot for slot in history.slots}
    for report in shown:
        slot = slots.get(report.slot)
        capacity = batch.capacities.get((operator, report.instance))
        table.add_row(
            str(report.instance),
            slot.executor if slot else "gone",
            slot.class_name if slot else "",
            wording.count(report.rows),
            _busy(report, batch.seconds, bar_width),
            "-" if capacity is None else wording.count(capacity),
            _load(loads[report.instance], bar_width),
        )
    hidden = len(reports) - len(shown)
    return [title, table, *([Text(f"    and {hidden} less loaded", "dim")] if hidden else [])]


def _empty_table(history: History, width: int) -> tuple[Table, int]:
    """The columns of an operator's table, and the width left for each of its two bars."""
    executor = _name_width(slot.executor for slot in history.slots)
    class_name = _name_width(slot.class_name for slot in history.slots)
    numbers = 2 + 7 + 8 + 7 + 7  # instance, rows, busy time, capacity, load
    gaps = 6 * 2
    bar = min(_MAX_BAR_WIDTH, max(_MIN_BAR_WIDTH, (width - executor - class_name - numbers - gaps) // 2))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("#", justify="right", width=2)
    table.add_column("executor", width=executor, no_wrap=True)
    table.add_column("class", width=class_name, no_wrap=True)
    table.add_column("rows", justify="right", width=7)
    table.add_column("busy in the batch", width=bar + 8, no_wrap=True)
    table.add_column("rows/s", justify="right", width=7)
    table.add_column("load / capacity", width=bar + 7, no_wrap=True)
    return table, bar


def _name_width(names: Iterable[str]) -> int:
    return min(_MAX_NAME_WIDTH, max(8, *map(len, names)))


def _busy(report: LoadReport, batch_seconds: float, width: int) -> Text:
    """The share of the batch's time that the instance was at work; a full bar is the whole batch."""
    share = report.busy_seconds / batch_seconds if batch_seconds > 0 else 0.0
    return Text.assemble((_bar(share, width), "blue"), f" {wording.duration(report.busy_seconds):>7}")


def _load(relative: float, width: int) -> Text:
    """Load / capacity over the operator's mean; half a bar is exactly the fair share."""
    style = "green" if relative <= _FAIR_LOAD else "yellow" if relative <= _HIGH_LOAD else "red"
    return Text.assemble((_bar(relative / 2, width), style), f" {relative:5.2f}x")


def _bar(share: float, width: int) -> str:
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def _news(history: History) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if history.reconfigurations:
        lines.append(Text("\nre-routings", "bold"))
        lines += [_news_line(wording.rerouting(change), "") for change in history.reconfigurations[-_NEWS_LINES:]]
    if history.events:
        lines.append(Text("\nevents", "bold"))
        lines += [_news_line(_told(event), "yellow") for event in history.events[-_NEWS_LINES:]]
    return lines


def _told(event: Event) -> str:
    return f"batch {event.batch}: {event.text}" if event.batch >= 0 else event.text


def _news_line(text: str, style: str) -> Text:
    return Text(f"  {text}", style, no_wrap=True, overflow="ellipsis")
