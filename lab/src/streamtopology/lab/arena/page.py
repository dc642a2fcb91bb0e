"""The arena's tables in Markdown, of the rows that were kept."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamtopology.lab.arena.engines import ENGINES
from streamtopology.lab.arena.nexmark import FLINK, OURS

Row = Mapping[str, Any]


def nexmark_table(rows: Sequence[Row]) -> str:
    """A line a query with each engine's speed, ours to Flink's, and what is to be said; then the mean and the settings."""
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    queries = list(dict.fromkeys(row["query"] for row in rows))
    by_place = {(row["query"], row["engine"]): row for row in rows}
    ratios = {query: ratio(by_place.get((query, OURS)), by_place.get((query, FLINK))) for query in queries}
    lines = [
        f"| query | {' | '.join(f'{ENGINES[engine].title}, k events/s' for engine in engines)} | to Flink | |",
        f"| --- |{' --- |' * (len(engines) + 2)}",
    ]
    for query in queries:
        of_query = {engine: by_place[query, engine] for engine in engines if (query, engine) in by_place}
        speeds = " | ".join(_speed(of_query.get(engine)) for engine in engines)
        compared = ratios[query]
        notes = [note for row in of_query.values() for note in _notes(row)]
        if compared is not None and compared < 1:
            notes.insert(0, f"Flink is faster, {1 / compared:.2f} x")
        lines.append(f"| {query} | {speeds} | {'' if compared is None else f'{compared:.2f} x'} | {'; '.join(notes)} |")
    known = [value for value in ratios.values() if value is not None]
    return "\n".join([*lines, "", mean_of(known), "", *settings_of(rows)])


def mean_of(ratios: Sequence[float]) -> str:
    """The sentence with the geometric mean."""
    if not ratios:
        return "No query has a speed of both: there is no mean."
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
    faster = sum(ratio < 1 for ratio in ratios)
    return f"Geometric mean of {len(ratios)} queries: {mean:.2f} x Flink. Flink is faster in {faster} of them."


# Flink's q10 writes files, ours drops its rows.
NOT_ALIKE = {"q10"}


def speed(row: Row | None) -> float | None:
    """Events/s by the median of the runs; None without a result, or with one that is wrong, or empty and not checked."""
    if row is None or "failed" in row or not is_right(row) or (row["expected"] is None and not row["count"]):
        return None
    return row["events"] / statistics.median(row["seconds"])


def is_right(row: Row) -> bool:
    return row["expected"] is None or row["count"] == row["expected"]


def ratio(mine: Row | None, theirs: Row | None) -> float | None:
    if mine is not None and mine["query"] in NOT_ALIKE:
        return None
    of_mine, of_theirs = speed(mine), speed(theirs)
    return None if of_mine is None or of_theirs is None else of_mine / of_theirs


def _speed(row: Row | None) -> str:
    found = speed(row)
    return "-" if found is None else f"{found / 1000:,.0f}"


def _notes(row: Row) -> Iterator[str]:
    title = ENGINES[row["engine"]].title
    if "failed" in row:
        yield f"{title}: {cell(row['failed'])}"
    elif row["expected"] is None:
        yield f"{title}: rows not checked" + ("" if row["count"] else ", and there are none: no speed")
    elif not is_right(row):
        yield f"{title} gives {row['count']:,} rows, DuckDB {row['expected']:,}: no speed"


def cell(text: str) -> str:
    """The text as it may stand in a table."""
    return " ".join(text.replace("|", "/").split())


def settings_of(rows: Sequence[Row]) -> Iterator[str]:
    """A line an engine with its settings and versions, and an empty line after each."""
    for engine in dict.fromkeys(row["engine"] for row in rows):
        found = next((row for row in rows if row["engine"] == engine and "settings" in row), None)
        if found is not None:
            settings = ", ".join(f"`{name}: {value}`" for name, value in found["settings"].items())
            versions = f" ({found['pins']})" if found["pins"] else ""
            yield f"{ENGINES[engine].title}{versions}: {settings}"
            yield ""
