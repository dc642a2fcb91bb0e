"""The page of the arena's case switch: a table of each event, whether the bars hold, and a picture of latency over time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from streamtopology.lab.arena.page import settings_of
from streamtopology.lab.arena.switch import CALM, CONTESTANTS, EVENTS, OURS
from streamtopology.lab.palette import COLORS, GRID, INK, MUTED

Row = Mapping[str, Any]

SILENCE_BAR, P99_BAR = 0.5, 1.3
_COLUMNS = {
    "p50_before": "p50 before",
    "p99_before": "p99 before",
    "worst_p99_before": "worst p99 before",
    "p99_through": "p99 through",
    "longest_through": "longest through",
    "silence_through": "longest silence",
    "back": "back after",
    "seconds": "switch took",
}

_NOTES = """A keyed count from Kafka to Kafka, all keys in state; three workers share all CPU with the broker and the player.
Latency: from the production of a row to when a `read_committed` consumer sees its count. *Before*: the 30 s before the event.
*Through*: from the event to 10 s after the end of the switch. *Worst p99*, and *p99 through*: of the worst 10 s. *Longest
silence*: the longest time without any count. *Back after*: from the event to the first calm second after the worst.

Flink moves no keys of a running job: the nearest is one instance fewer on the same workers, by its REST API. A worker that
leaves is not needed any more first, by the same API. Its exact sink publishes with each checkpoint, of which there is one a
second, so rows wait for it; the other sink publishes again what it had published since the checkpoint that a switch goes back
to. A killed worker is replaced at once, by Spark here, by the script there. Spark's own streams go through no event."""


def switch_page(rows: Sequence[Row]) -> str:
    """A table for each event, with the median of the lives and their least and most; then the bars, what is wrong, settings."""
    lines = [_NOTES, "", *_latencies(rows), ""]
    for event in dict.fromkeys(found["event"] for row in rows for found in row.get("events", ())):
        if event == CALM:
            continue
        lines += [f"## {EVENTS[event].capitalize()}", "", f"![latency over time](switch-{event}.svg)", ""]
        lines += [f"| seconds | {' | '.join(_COLUMNS.values())} |", f"| --- |{' --- |' * len(_COLUMNS)}"]
        for name in dict.fromkeys(row["contestant"] for row in rows):
            figures = figures_of(rows, name, event)
            if figures:
                cells = " | ".join(_spread([each[column] for each in figures]) for column in _COLUMNS)
                lines.append(f"| {CONTESTANTS[name].title} | {cells} |")
        lines += ["", *bars(rows, event), ""]
    return "\n".join([*lines, *_checks(rows), "", *settings_of(rows)])


_WITHOUT = {"p50_before": "p50", "p99_before": "p99", "worst_p99_before": "p99 of the worst 10 s"}


def _latencies(rows: Sequence[Row]) -> Iterator[str]:
    """Those of each contestant while nothing happens: of the 30 s before each event of each life."""
    yield "## Latency without a change"
    yield ""
    yield f"| seconds | {' | '.join(_WITHOUT.values())} |"
    yield f"| --- |{' --- |' * len(_WITHOUT)}"
    for name in dict.fromkeys(row["contestant"] for row in rows):
        figures = [figures for event in EVENTS for figures in figures_of(rows, name, event)]
        if figures:
            cells = " | ".join(_spread([each[column] for each in figures]) for column in _WITHOUT)
            yield f"| {CONTESTANTS[name].title} | {cells} |"


def figures_of(rows: Sequence[Row], contestant: str, event: str) -> list[dict[str, float]]:
    """Those of each life that has them."""
    of_contestant = [found for row in rows if row["contestant"] == contestant for found in row.get("events", ())]
    return [found["figures"] for found in of_contestant if found["event"] == event]


def bars(rows: Sequence[Row], event: str) -> Iterator[str]:
    """Sentences: our silence beside that of each other, and our p99 beside that of before, by the medians of the lives."""
    ours = figures_of(rows, OURS, event)
    if not ours:
        return
    silence = statistics.median(each["silence_through"] for each in ours)
    for name in dict.fromkeys(row["contestant"] for row in rows if row["contestant"] != OURS):
        if theirs := figures_of(rows, name, event):
            yield _bar(
                f"Longest silence, to that of {CONTESTANTS[name].title}",
                silence / statistics.median(each["silence_through"] for each in theirs),
                SILENCE_BAR,
            )
    ratio = statistics.median(each["p99_through"] / each["worst_p99_before"] for each in ours)
    yield _bar("p99 through the switch, to the worst before", ratio, P99_BAR)


def _bar(what: str, ratio: float, bar: float) -> str:
    return f"- {what}: {ratio:.2f} x (bar: {bar:g} x, **{'met' if ratio <= bar else 'missed'}**)"


def is_right(row: Row) -> bool:
    """No row is lost or counted twice; with an exact sink none is published twice either."""
    check = row["check"]
    exact = CONTESTANTS[row["contestant"]].guarantee == "exactly-once"
    return not (check["lost"] or check["counted_twice"] or (exact and check["repeated"]))


def _checks(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Rows, and what failed"
    yield ""
    yield "| | life | rows | lost | counted twice | published again | load | |"
    yield f"|{' --- |' * 8}"
    for row in rows:
        title = CONTESTANTS[row["contestant"]].title
        if "failed" in row:
            yield f"| {title} | {row['life']} | | | | | | {' '.join(row['failed'].replace('|', '/').split())} |"
        else:
            counted = " | ".join(f"{row['check'][name]:,}" for name in ("rows", "lost", "counted_twice", "repeated"))
            yield f"| {title} | {row['life']} | {counted} | {row['load']:.1f} | {'' if is_right(row) else '**wrong**'} |"


def _spread(values: Sequence[float]) -> str:
    known = [value for value in values if not math.isnan(value)]
    if len(known) < len(values):
        return "never"
    middle = f"**{statistics.median(known):.2f}**"
    return middle if len(known) == 1 else f"{min(known):.2f} / {middle} / {max(known):.2f}"


def draw_switch(rows: Sequence[Row], event: str, path: Path) -> None:
    """Draw into `path`, an SVG: a panel for each contestant, the median and the longest of each slice of its first life."""
    shown = [
        (row["contestant"], found)
        for row in rows
        for found in row.get("events", ())
        if found["event"] == event and row["life"] == min(other["life"] for other in rows if "events" in other)
    ]
    with matplotlib.rc_context({"font.size": 10, "svg.hashsalt": event}):
        layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
        figure = Figure(figsize=(10, 0.5 + 2.2 * len(shown)), layout=layout, facecolor="white")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(shown), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
        for number, (panel, (name, found)) in enumerate(zip(panels, shown, strict=True)):
            _draw(panel, CONTESTANTS[name].title, found, COLORS[number])
        panels[-1].set_xlabel("seconds since the event", color=MUTED)
        figure.suptitle(EVENTS[event], x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK)
        figure.savefig(path, metadata={"Date": None})


def _draw(panel: Axes, title: str, found: Mapping[str, Any], color: str) -> None:
    at, median, longest = zip(*found["series"], strict=True)
    panel.fill_between(at, median, longest, color=color, alpha=0.3, linewidth=0, label="longest row")
    panel.plot(at, median, color=color, linewidth=1.2, label="median row")
    panel.axvspan(0, found["figures"]["seconds"], color=INK, alpha=0.06, linewidth=0, label="switch")
    panel.set_yscale("log")
    panel.set_title(title, loc="left", fontsize=10, color=INK)
    panel.set_ylabel("latency, s", color=MUTED)
    panel.grid(color=GRID, linewidth=0.8)
    panel.legend(loc="upper right", fontsize=8, frameon=False)
