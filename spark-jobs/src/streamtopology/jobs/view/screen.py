"""The screen of the live view: header, a table or a line for each operator, re-routings and events, in any height."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap

from rich.console import ConsoleDimensions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from streamtopology.contract import formatting
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import PARTIAL
from streamtopology.jobs.observe.figures import judged_imbalance, operator_names, relative_loads, reports_of
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.view.formatting import (
    activity_text,
    event_line,
    imbalance_text,
    late_text,
    policy_text,
    rate_text,
    rerouting,
    shown_name,
)
from streamtopology.routing.load.load_report import LoadReport

_TREND_BATCHES = 48
_NEWS_LINES = 5
_MOST_EVENT_LINES = 5
_FEWEST_INSTANCES = 3
_NARROWEST = 80
_LOWEST_WITH_ADDRESS = 8
_LOWEST_WITH_SENTENCE = 20
_MAX_NAME_WIDTH = 16
_MAX_BAR_WIDTH = 22
_MIN_BAR_WIDTH = 6
_FAIR_LOAD = 1.08  # the default tolerance of the controller
_HIGH_LOAD = 1.35
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"

# Renderables of one line each.
Lines = list[RenderableType]


def screen(history: History, elapsed: float, size: ConsoleDimensions) -> RenderableType:
    """The whole view as one renderable within `size`, `elapsed` seconds into the command.

    In a low or narrow terminal each operator has a line in place of a table; the newest re-routings stay in sight.
    """
    head = _head(history, elapsed, size)
    room = size.height - 1 - len(head)  # a terminal scrolls when its last line is written
    for longest in range(_MOST_EVENT_LINES, 0, -1):
        full = _news(history, _NEWS_LINES, size.width, longest, titles=True)
        tables = _tables(history, size.width, room - len(full)) if len(full) <= room or longest == 1 else None
        if tables is not None:
            return Group(*head, *tables, *full)
    for lines in (3, 2, 1):
        news = _news(history, lines, size.width, titles=False)
        spare = room - len(news) - len(_operators(history))
        if spare >= 0:
            news = _news(history, lines, size.width, min(1 + spare, _MOST_EVENT_LINES), titles=False)
            break
    else:
        news = _news(history, 1, size.width, titles=False)[:room]
    return Group(*head, *_operator_lines(history, room - len(news)), *news)


def _head(history: History, elapsed: float, size: ConsoleDimensions) -> Lines:
    batches = history.batches
    text = Text(no_wrap=True, overflow="ellipsis").append(f" {history.topology} ", "bold reverse")
    text.append(f"  {formatting.duration(elapsed)}", "dim").append(f"  {activity_text(history)}", "bold cyan")
    if batches:
        text.append(f"  epoch {batches[-1].epoch}  batch {batches[-1].number}")
        text.append(f"  {rate_text(history)} ", "bold")
        text.append(_trend(batches[-_TREND_BATCHES:]), "green")
        if late := late_text(history):
            text.append(f"  {late}", "yellow")
    if size.height < _LOWEST_WITH_ADDRESS:
        return [text]
    address = [Text(f" page: {history.address}", "dim", no_wrap=True, overflow="ellipsis")] if history.address else []
    return [text, *address, *_bound(history, size), *_divided(history, size)]


def _bound(history: History, size: ConsoleDimensions) -> Lines:
    """The sentence on what bounds the batches: whole in two lines where there is room, else its beginning in one."""
    if history.binding is None:
        return []
    most = 2 if size.height >= _LOWEST_WITH_SENTENCE else 1
    lines = wrap(describe(history.binding), max(size.width - 2, 1), max_lines=most, placeholder=" …")
    return [Text(f" {line}", no_wrap=True, overflow="ellipsis") for line in lines]


def _divided(history: History, size: ConsoleDimensions) -> Lines:
    """A line for each of the heaviest divided keys, where there is room."""
    if size.height < _LOWEST_WITH_SENTENCE:
        return []
    return [Text(f" {key.text}", no_wrap=True, overflow="ellipsis") for key in history.divided.heaviest]


def _trend(batches: tuple[BatchOutcome, ...]) -> str:
    rates = [batch.rows / batch.seconds if batch.seconds > 0 else 0.0 for batch in batches]
    top = max(rates) or 1.0
    return "".join(_LEVELS[round(rate / top * (len(_LEVELS) - 1))] for rate in rates)


def _operators(history: History) -> list[str]:
    """The stages that reported in the last batch, in the topology's order, parts of keys ahead of their merge."""
    last = history.last
    if last is None:
        return []
    names = operator_names(history)
    reported = {report.operator for report in last.reports}
    place = {name: index for index, name in enumerate(names)}
    return sorted(
        (name for name in names if name in reported),
        key=lambda name: (place.get(name.removesuffix(PARTIAL), place[name]), shown_name(name) == name),
    )


def _tables(history: History, width: int, room: int) -> Lines | None:
    """A title and a table for each operator, in at most `room` lines; None if there is no room for that."""
    operators = _operators(history)
    if not operators:
        return []
    batch = history.batches[-1]
    instances = [len(reports_of(batch, operator)) for operator in operators]
    most = (room // len(operators)) - 3  # blank line, title, header
    if any(count > most for count in instances):
        most -= 1  # the line that counts the others
    if width < _NARROWEST or most < min(_FEWEST_INSTANCES, max(instances)):
        return None
    return [part for operator in operators for part in _operator(history, batch, operator, width, most)]


def _operator(history: History, batch: BatchOutcome, operator: str, width: int, most: int) -> Lines:
    """A title and a table of the operator's instances; of many, the `most` with the highest load / capacity."""
    reports = reports_of(batch, operator)
    loads = relative_loads(batch, operator)
    shown = sorted(sorted(reports, key=lambda r: -loads[r.instance])[:most], key=lambda r: r.instance)
    title = Text.assemble(
        (shown_name(operator), "bold"),
        (f"  {policy_text(history, operator)}", "dim"),
        f"  {imbalance_text(batch, operator)}",
        no_wrap=True,
        overflow="ellipsis",
    )
    table, bar_width = _empty_table(history, width)
    judged = judged_imbalance(batch, operator) is not None
    slots = {slot.index: slot for slot in history.slots}
    for report in shown:
        slot = slots.get(report.slot)
        capacity = batch.capacities.get((operator, report.instance))
        table.add_row(
            str(report.instance),
            slot.executor if slot else "gone",
            slot.class_name if slot else "",
            formatting.count(report.rows),
            _busy(report, batch.seconds, bar_width),
            "-" if capacity is None else formatting.count(capacity),
            _load(loads[report.instance], bar_width, judged),
        )
    hidden = len(reports) - len(shown)
    return [Text(), title, table, *([Text(f"    and {hidden} less loaded", "dim")] if hidden else [])]


def _operator_lines(history: History, room: int) -> Lines:
    """A line for each operator in at most `room` lines: its imbalance and its busiest instance; of many, the busiest."""
    operators = _operators(history)
    if not operators or room < 1:
        return []
    batch = history.batches[-1]
    busy = {name: sum(report.busy_seconds for report in reports_of(batch, name)) for name in operators}
    most = room if len(operators) <= room else max(1, room - 1)
    chosen = set(sorted(operators, key=lambda name: -busy[name])[:most])
    names = [name for name in operators if name in chosen]
    lines = _columns(history, batch, names)
    hidden = len(operators) - len(names)
    return [*lines, *([Text(f" and {hidden} operators that are less busy", "dim")] if hidden and room > 1 else [])]


def _columns(history: History, batch: BatchOutcome, operators: Sequence[str]) -> Lines:
    """A line for each operator, its texts one below the other."""
    texts = [(shown_name(name), policy_text(history, name), imbalance_text(batch, name)) for name in operators]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [_operator_line(history, batch, *each, widths) for each in zip(operators, texts, strict=True)]


def _operator_line(
    history: History, batch: BatchOutcome, operator: str, texts: tuple[str, str, str], widths: Sequence[int]
) -> Text:
    name, policy, judged = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
    reports = reports_of(batch, operator)
    loads = relative_loads(batch, operator)
    top = max(reports, key=lambda report: loads[report.instance])
    slot = next((slot for slot in history.slots if slot.index == top.slot), None)
    return Text.assemble(
        (f" {name}", "bold"),
        (f"  {policy}", "dim"),
        f"  {judged}  ",
        _load(loads[top.instance], _MIN_BAR_WIDTH, judged_imbalance(batch, operator) is not None),
        f"  {slot.executor if slot else 'gone'}",
        (f", most loaded of {len(reports)}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


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
    """The share of the batch's time that the instance was busy; a full bar is the whole batch."""
    share = report.busy_seconds / batch_seconds if batch_seconds > 0 else 0.0
    return Text.assemble((_bar(share, width), "blue"), f" {formatting.duration(report.busy_seconds):>7}")


def _load(relative: float, width: int, judged: bool) -> Text:
    """Load / capacity over the operator's mean; half a bar is the fair share; without colour where rows are too few."""
    style = "dim" if not judged else "green" if relative <= _FAIR_LOAD else "yellow" if relative <= _HIGH_LOAD else "red"
    return Text.assemble((_bar(relative / 2, width), style), f" {relative:5.2f}x")


def _bar(share: float, width: int) -> str:
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def _news(history: History, most: int, width: int, longest: int = 1, *, titles: bool) -> Lines:
    """The newest `most` re-routings, then as many events, in a line each; the newest event in up to `longest` lines."""
    reroutings = [rerouting(change) for change in history.reconfigurations[-most:]]
    events = [event_line(event) for event in history.events[-most:]]
    if events and longest > 1:
        events[-1:] = wrap(events[-1], max(width - 4, 1), max_lines=longest, placeholder=" …", subsequent_indent="  ")
    return [*_section("re-routings", reroutings, "", titles), *_section("events", events, "yellow", titles)]


def _section(title: str, texts: Sequence[str], style: str, titled: bool) -> Lines:
    lines: Lines = [Text(f"  {text}", style, no_wrap=True, overflow="ellipsis") for text in texts]
    return [Text(), Text(title, "bold"), *lines] if lines and titled else lines
