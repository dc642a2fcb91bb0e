"""The page of the case keyed: a table for each skew and change, of medians over the runs, and a picture of rows/s over time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamtopology.lab.arena.engines import ENGINES
from streamtopology.lab.arena.keyed import CHANGED_AT, CHANGES, STEP, Found, judge
from streamtopology.lab.arena.page import cell, settings_of
from streamtopology.lab.arena.timeline import rate
from streamtopology.lab.reproduce.experiment import Plot
from streamtopology.lab.reproduce.figure import Figure, draw

Row = Mapping[str, Any]

HEAD = (
    "engine",
    "k rows/s before",
    "after",
    "paid CPU at work before",
    "after",
    "share of the bound",
    "back after, s",
    "batches",
    "",
)


def keyed_table(rows: Sequence[Row]) -> str:
    """The tables, what they mean, and the settings of each engine."""
    parts: list[str] = []
    for skew, change in dict.fromkeys((row["skew"], row["change"]) for row in rows):
        of_both = [row for row in rows if (row["skew"], row["change"]) == (skew, change)]
        parts += [f"## {title(skew)}: {CHANGES[change]}", "", f"| {' | '.join(HEAD)} |", f"|{' --- |' * len(HEAD)}"]
        parts += [_line(engine, of_both) for engine in dict.fromkeys(row["engine"] for row in of_both)]
        parts.append("")
    return "\n".join([*parts, *settings_of(rows)])


def title(skew: float) -> str:
    return f"Keys by Zipf's law with exponent {skew:g}" if skew else "Uniform keys"


def is_right(row: Row) -> bool:
    """True if the counts of the first file are those that numpy has: keys, rows, the highest count."""
    return row["found"] == row["expected"]


def is_whole(row: Row) -> bool:
    """True if rows were counted until after the change."""
    return row["changed_at"] is not None and bool(row["rows_at"]) and row["rows_at"][-1][0] > row["changed_at"]


def _has_speed(row: Row) -> bool:
    return "failed" not in row and is_right(row) and is_whole(row)


def _line(engine: str, rows: Sequence[Row]) -> str:
    of_engine = [row for row in rows if row["engine"] == engine]
    judged = [judge(row) for row in of_engine if _has_speed(row)]
    notes = list(dict.fromkeys(note for row in of_engine for note in _notes(row)))
    cells = _cells(judged) if judged else ["-"] * (len(HEAD) - 2)
    return f"| {' | '.join([ENGINES[engine].title, *cells, '; '.join(notes)])} |"


def _cells(judged: Sequence[Found]) -> list[str]:
    back = [found.back_after for found in judged if found.back_after is not None]
    batches = [found.batches for found in judged if found.batches is not None]
    return [
        _spread([found.before / 1000 for found in judged], ",.0f"),
        _spread([found.after / 1000 for found in judged], ",.0f"),
        _spread([found.busy_before for found in judged], ".0%"),
        _spread([found.busy_after for found in judged], ".0%"),
        _spread([found.share_of_bound for found in judged], ".0%"),
        _spread(back, ".0f") if len(back) == len(judged) else "not",
        _spread(batches, ".0f") if len(batches) == len(judged) else "",
    ]


def _spread(values: Sequence[float], form: str) -> str:
    """The median, and of several runs the least and the greatest."""
    middle = format(statistics.median(values), form)
    return middle if len(values) == 1 else f"{middle} ({format(min(values), form)} to {format(max(values), form)})"


def _notes(row: Row) -> Iterator[str]:
    if "failed" in row:
        yield cell(row["failed"])
    elif not is_right(row):
        yield f"counts {row['found']}, right is {row['expected']}: no speed"
    elif not is_whole(row):
        yield "no rows after the change: no speed"


def picture(rows: Sequence[Row], skew: float, change: str) -> Figure:
    """Rows/s of each engine over time, as a share of its own before the change."""
    points: list[dict[str, Any]] = []
    for row in rows:
        if (row["skew"], row["change"]) != (skew, change) or not _has_speed(row):
            continue
        samples = [(at, float(count)) for at, count in row["rows_at"]]
        before = judge(row).before
        ends = range(int(CHANGED_AT) - 40, int(row["request"]["seconds"]) + 1, int(STEP))
        points += [
            {"second": end - row["changed_at"], "share": rate(samples, end - STEP, end) / before, "engine": title_of(row)}
            for end in ends
        ]
    heading = f"{title(skew)}: {CHANGES[change]} at 0 s"
    return draw(Plot(heading, "second", "share", "engine", x_label="seconds", y_label="rows/s, to those before"), points)


def title_of(row: Row) -> str:
    return ENGINES[row["engine"]].title
