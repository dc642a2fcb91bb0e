"""The last lines of a run: what went in and out, what is left open, and how to continue, to start over and to see more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from streamtopology.contract import formatting

_LABEL_WIDTH = 14


@dataclass(frozen=True)
class SinkRows:
    """The rows that one sink got in a run. `where`: the folder, topic or other place that has them."""

    name: str
    where: str
    rows: int


@dataclass(frozen=True)
class LeftBehind:
    """The checkpoint and the open ends of a run.

    `batch`: the newest committed one, None before the first. `fed_batch`: the newest that has read rows, None if it is not
    kept any more; `fed_at`: its commit in epoch seconds, None where that is unknown.
    `open_windows`: by operator, the keys of windows that are not closed. `unread`: what sources hold, by source. `closed`: all
    windows are closed for good. `dead_letters`: the folder of rows that were set aside. `keyed_operators`: the names of those
    that have state of keys.
    """

    checkpoint: str
    bytes: int
    batch: int | None
    fed_batch: int | None
    fed_at: float | None
    open_windows: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    closed: bool = False
    dead_letters: str = ""
    keyed_operators: Sequence[str] = ()


@dataclass(frozen=True)
class Ending:
    """All that the last lines are made of. `seconds`: from the command on.

    `arguments`: its manifest and work folder, as the user named them.
    `event_log`: the file that has the run's `events` in full.
    `imbalance`: how much is left and why, if it is above the tolerance.
    """

    topology: str
    arguments: str
    seconds: float
    batch_seconds: float
    batches: int
    rows_in: int
    sinks: Sequence[SinkRows]
    late: Mapping[str, int]
    set_aside: Mapping[str, int]
    left: LeftBehind
    skipped: Mapping[str, int] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)
    has_report: bool = False
    events: int = 0
    event_log: str = ""
    imbalance: str = ""


def ending_text(ending: Ending) -> str:
    """The last lines of a run, for a terminal."""
    left, arguments = ending.left, ending.arguments
    lines = [
        f"{ending.topology}: {formatting.counted(ending.batches, 'batch', 'batches')}, "
        f"{formatting.counted(ending.rows_in, 'row', 'rows')} in "
        f"{formatting.duration(ending.seconds)}, {formatting.duration(ending.batch_seconds)} of them in batches",
        _line("rows in", _rows_in(ending)),
        *(_line("rows out", f"{sink.rows:,} to {sink.name}: {sink.where}") for sink in ending.sinks),
        _line("late", _late(ending.late, left.closed)),
        _line("set aside", _set_aside(ending.set_aside, left.dead_letters)),
        *_skipped(ending.skipped),
        *_unread(left),
        *_windows(left, arguments),
        *([_line("imbalance", ending.imbalance)] if ending.imbalance else []),
        _line("checkpoint", _checkpoint(left)),
        _line("", f"the same command continues from it; to start over: streamtopology run {arguments} --fresh"),
        *_events(ending),
        *([_line("see more", more)] if (more := _see_more(ending)) else []),
    ]
    return "\n".join(lines)


def _rows_in(ending: Ending) -> str:
    filtered = f"{_by_name(ending.filtered)} left out by where" if ending.filtered else ""
    if ending.rows_in or filtered:
        return "; ".join(part for part in (f"{ending.rows_in:,}", filtered) if part)
    left = ending.left
    if left.batch is None:
        return "none: the sources hold no rows yet"
    if left.fed_batch is None:
        return "none: nothing new"
    since = "" if left.fed_at is None else f", {datetime.fromtimestamp(left.fed_at):%Y-%m-%d %H:%M:%S}"
    return f"none: nothing new since batch {left.fed_batch}{since}"


def _late(late: Mapping[str, int], closed: bool) -> str:
    if not late:
        return "none"
    if closed:
        return f"{_by_name(late)}: left out, as their window was closed before they came; now all are closed, for good"
    return (
        f"{_by_name(late)}: left out, as their window was closed (a longer delay waits for such rows) or they have no event "
        "time (a number is read as epoch seconds)"
    )


def _set_aside(rows: Mapping[str, int], folder: str) -> str:
    return f"{_by_name(rows)}: in {folder}" if rows else "none"


def _skipped(rows: Mapping[str, int]) -> list[str]:
    if not rows:
        return []
    return [_line("skipped", f"{_by_name(rows)}: deleted before they were read, and failOnDataLoss is false")]


def _unread(left: LeftBehind) -> list[str]:
    if not left.unread:
        return []
    amounts = ", ".join(f"{amount} of {name}" for name, amount in left.unread.items())
    fate = "their rows will be late, as all windows are closed" if left.closed else "the next run reads them"
    return [_line("unread", f"{amounts}: {fate}")]


def _windows(left: LeftBehind, arguments: str) -> list[str]:
    if left.closed:
        return [_line("windows", "all closed for good: rows of a later run are late")]
    if not left.open_windows:
        return []
    held = _by_name(left.open_windows)
    return [
        _line("windows open", f"{held} (keys in windows): they close when a later run's rows have passed them"),
        _line("", f"to close them now: streamtopology run {arguments} --drain"),
    ]


def _checkpoint(left: LeftBehind) -> str:
    batch = "no batch yet" if left.batch is None else f"good, as of batch {left.batch}"
    return f"{left.checkpoint} ({formatting.size(left.bytes)}), {batch}"


def _events(ending: Ending) -> list[str]:
    return [_line("events", f"{ending.events:,}, in full in {ending.event_log}")] if ending.events else []


def _see_more(ending: Ending) -> str:
    seen = [] if ending.has_report else ["a picture and all figures: --report DIR"]
    if keyed := ending.left.keyed_operators:
        named = f" --operator {keyed[0]}" if len(keyed) > 1 else ""
        seen.append(f"a key's state: streamtopology state get {ending.arguments} KEY{named}")
    return "; ".join(seen)


def _by_name(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} of {name}" for name, count in counts.items())


def _line(label: str, value: str) -> str:
    return f"  {label:<{_LABEL_WIDTH}} {value}"
