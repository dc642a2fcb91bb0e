"""The rows that each sink must hold of each batch, in SQL over the whole input.

Every source and every operator is a table of rows with their batch. What SQL cannot say is computed batch by batch: watermarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from support.differential import timed
from support.differential.case import Case, Source, Version
from support.differential.keyed import accuracy
from support.differential.lives import Batch, Era, lives, source_of
from support.differential.operators import add_life, inputs_of, is_split
from support.differential.tables import Tables, listed, quoted, same, shown
from support.differential.values import FIRST_SECOND

# Seconds that an event time may be ahead of the clock and still move the watermark, unless the manifest says otherwise.
MAX_AHEAD = 86_400
MICROS = 1_000_000
# Event times before and after all others.
BEGINNING, END = -(1 << 61), 1 << 61
MOST_SHOWN = 3


class Oracle:
    """The tables of a case that ran in `batches`. `watermarks`: in microseconds, after each batch; None: none yet."""

    def __init__(self, case: Case, batches: Sequence[Batch]) -> None:
        self._case = case
        self._batches = batches
        self._tables = Tables()
        self._lives = lives(batches)
        self.watermarks: dict[int, int | None] = {}
        for name, table in case.files.items():
            self._tables.copy(name, table)
        for name in dict.fromkeys(source.name for batch in batches for source in batch.version.sources):
            self._add_source(name)
        self._add_marks()
        behind = dict[str, int]()
        for batch in batches:
            behind |= timed.behind(batch.version.operators, lambda spec: [each["from"] for each in inputs_of(spec).values()])
        for life in self._lives:
            add_life(self._tables, life, behind[life.name])

    def differences(self, sink: str, found: Mapping[int, pa.Table]) -> list[str]:
        """The rows expected in a sink that are not among those found by batch, and the other way round; each as a sentence."""
        sentences, eras = list[str](), self._eras(sink)
        for era, table in eras:
            mine = {number: rows for number, rows in found.items() if era.first <= number <= era.last and len(rows)}
            sentences += self._differences(table, era, mine)
        strange = [number for number in found if not any(era.first <= number <= era.last for era, _ in eras)]
        return [*sentences, *(f"batch {number} is not expected" for number in strange)]

    def left_open(self, number: int, sink: str) -> list[str]:
        """The windows that the watermark after batch `number` had passed, and that a later batch emitted first."""
        mark = self.watermarks[number]
        tables = [] if mark is None else [table for _, table in self._eras(sink)]
        windows = [window for table in tables for window in timed.left_open(self._tables, table, number, mark or 0)]
        return [f"window {start} to {end} was open in a silence after batch {number}" for start, end in windows]

    def _eras(self, sink: str) -> list[tuple[Era, str]]:
        """The eras of the sink's operator, and the table of what the sink gets in each."""
        return [
            (era, f"{life.name}@{number}" + (" late" if sink != life.name else ""))
            for life in self._lives
            for number, era in enumerate(life.eras)
            if sink == era.spec.get("late") or (sink == life.name and era.spec.get("with", {}).get("emit") != "nothing")
        ]

    def _differences(self, expected: str, era: Era, found: Mapping[int, pa.Table]) -> list[str]:
        if not found:
            missing = self._tables.count(expected)
            return [f"all {missing} rows of batches {era.first} to {era.last} are missing"] if missing else []
        tables = [table.append_column("_batch", pa.array([batch] * len(table), pa.int64())) for batch, table in found.items()]
        self._tables.copy("found", pa.concat_tables(tables))
        types = self._tables.types("found")
        if types != self._tables.types(expected):
            return [f"the columns are {types}, expected {self._tables.types(expected)}"]
        near = None if expected.endswith(" late") else accuracy(self._tables, expected, era.spec)
        columns = list(types)
        return self._unequal(expected, columns) if near is None else self._far(expected, columns, near, era)

    def _unequal(self, table: str, columns: Sequence[str]) -> list[str]:
        """The rows that are in one of `found` and `table` only."""
        found, expected = (f"SELECT {listed([*columns, '_batch'])} FROM {quoted(name)}" for name in ("found", table))
        return [
            f"batch {batch}: {what} {shown(dict(zip(columns, row, strict=True)))}"
            for what, some, others in (("missing", expected, found), ("not expected", found, expected))
            for *row, batch in self._tables.texts(f"({some}) EXCEPT ALL ({others}) ORDER BY _batch LIMIT {MOST_SHOWN}")
        ]

    def _far(self, table: str, columns: Sequence[str], near: float, era: Era) -> list[str]:
        """The rows that have no partner with equal columns, quantiles within `near` of the exact ones."""
        quantiles = [column for column in columns if column.startswith("q") and column[1:].replace("_", "").isdigit()]
        others = [column for column in columns if column not in quantiles]
        resolution = era.spec["with"]["resolution"]
        close = " AND ".join(_near(f"f.{quoted(q)}", f"e.{quoted(q)}", near, resolution) for q in quantiles)
        pairs = f"SELECT * FROM found f WHERE f._batch = e._batch AND {same(others, 'f', 'e')} AND {close}"
        rows = (
            f"SELECT {listed([*columns, '_batch'], 'e')} FROM {quoted(table)} e WHERE NOT EXISTS ({pairs}) LIMIT {MOST_SHOWN}"
        )
        found, expected = self._tables.count("found"), self._tables.count(table)
        wrong = [f"{found} rows, expected {expected}"] if found != expected else []
        missing = self._tables.texts(rows)
        return wrong + [f"batch {row[-1]}: nothing is near {shown(dict(zip(columns, row, strict=False)))}" for row in missing]

    # --- sources and watermarks ---

    def _add_source(self, name: str) -> None:
        """The rows of a source after select and where, each batch's by those of its version, and event times before where."""
        parts, times = [], []
        for batch in self._batches:
            source = source_of(batch, name)
            if source is None:
                continue
            raw, select = f"{name} {batch.number}", f"{', '.join(source.select)}" if source.select else "*"
            self._tables.copy(raw, batch.rows.get(name, source.schema.empty_table()))
            where = f" WHERE {source.where}" if source.where else ""
            parts.append(f"SELECT {batch.number}::BIGINT AS _batch, {select} FROM {quoted(raw)}{where}")
            if source.time:
                rows = f"(SELECT {select} FROM {quoted(raw)})"
                times.append(f"SELECT {batch.number}::BIGINT AS _batch, {quoted(source.time)} FROM {rows}")
        self._tables.make(name, " UNION ALL ".join(parts))
        if times:
            self._tables.make(f"{name} times", " UNION ALL ".join(times))

    def _add_marks(self) -> None:
        """Watermarks by the rule for sources without partitions: none is idle, the slowest counts, none goes back."""
        newest: dict[str, int] = {}
        watermark: int | None = None
        closed, since = BEGINNING, dict[str, int]()
        marks, flushes = list[tuple[int, int, int]](), list[tuple[str, int, int]]()
        for batch in self._batches:
            watermark = _moved(watermark, newest, batch.version)  # at once by a delay that an edit changed
            closes = END if batch.final else BEGINNING if watermark is None else watermark
            marks.append((batch.number, closed, closes))
            for spec in batch.version.operators:
                name = spec["name"]
                if not is_split(spec) or batch.final or batch.number % spec.get("aggregateEvery", 1) == 0:
                    flushes.append((name, since.get(name, -1), batch.number))
                    since[name] = batch.number
            closed = closes
            for source in filter(lambda source: source.time, batch.version.sources):
                seen = self._newest(source, batch.number)
                if seen is not None:
                    newest[source.name] = max(seen, newest.get(source.name, seen))
            watermark = _moved(watermark, newest, batch.version)
            self.watermarks[batch.number] = watermark
        self._tables.copy("marks", _table(marks, {"_batch": pa.int64(), "closed": pa.int64(), "closes": pa.int64()}))
        self._tables.copy("flushes", _table(flushes, {"operator": pa.string(), "since": pa.int64(), "_batch": pa.int64()}))

    def _newest(self, source: Source, number: int) -> int | None:
        """The newest event time of a batch that may move the watermark, be it of a row that where drops."""
        table = f"{source.name} times"
        time = self._tables.event_time(table, source.time)
        latest = (self._case.now + MAX_AHEAD) * MICROS
        seen = f"SELECT max({time}) FILTER ({time} <= {latest}) FROM {quoted(table)} WHERE _batch = {number}"
        return self._tables.rows(seen)[0][0]


def _moved(watermark: int | None, newest: Mapping[str, int], version: Version) -> int | None:
    """The watermark (microseconds) by the newest event times of the sources; it does not go back."""
    marked = [source for source in version.sources if source.time]
    if not marked or any(source.name not in newest for source in marked):
        return watermark
    held = min(newest[source.name] - source.delay * MICROS for source in marked)
    return max(held, FIRST_SECOND * MICROS, BEGINNING if watermark is None else watermark)


def _near(found: str, expected: str, near: float, resolution: float) -> str:
    """SQL: a quantile is within relative `near` of the exact one; magnitudes below `resolution` count as 0."""
    equal = f"{found} IS NOT DISTINCT FROM {expected}"
    within = f"abs({found} - {expected}) <= {near * (1 + 1e-9)} * abs({expected})"
    return f"({equal} OR {within} OR ({found} = 0 AND abs({expected}) < {resolution}))"


def _table(rows: Sequence[tuple[Any, ...]], columns: Mapping[str, pa.DataType]) -> pa.Table:
    schema = pa.schema(list(columns.items()))
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)
