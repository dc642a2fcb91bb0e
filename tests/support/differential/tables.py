"""Tables of one DuckDB database, and the SQL that is common to all operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from support.differential.values import FIRST_SECOND, LAST_SECOND

FLOATS = ("DOUBLE", "FLOAT")


class Tables:
    """Tables by name; `_batch` is the batch of a row."""

    def __init__(self) -> None:
        self.db = duckdb.connect(":memory:")
        self.db.execute("SET TimeZone = 'UTC'; SET threads = 1")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.db.execute(sql).fetchall()

    def texts(self, sql: str) -> list[tuple[str | None, ...]]:
        """The rows as texts: not every value of SQL is one of Python."""
        return self.rows(f"SELECT COLUMNS(*)::VARCHAR FROM ({sql})")

    def count(self, name: str) -> int:
        return self.rows(f"SELECT count(*) FROM {quoted(name)}")[0][0]

    def make(self, name: str, sql: str) -> None:
        self.db.execute(f"CREATE OR REPLACE TABLE {quoted(name)} AS {sql}")

    def copy(self, name: str, table: pa.Table) -> None:
        self.db.register("copied", table)
        self.make(name, "SELECT * FROM copied")
        self.db.unregister("copied")

    def names(self) -> list[str]:
        return [name for (name,) in self.rows("SELECT table_name FROM duckdb_tables()")]

    def types(self, name: str) -> dict[str, str]:
        """The SQL type of each column but `_batch`."""
        table = self.db.table(quoted(name))
        return {column: str(kind) for column, kind in zip(table.columns, table.types, strict=True) if column != "_batch"}

    def event_time(self, table: str, column: str) -> str:
        """SQL for a column's microseconds since 1970; NULL for what is no event time."""
        name, kind = quoted(column), self.types(table)[column]
        first, last = FIRST_SECOND * 1_000_000, LAST_SECOND * 1_000_000 + 999_999
        if kind == "DOUBLE":
            return f"CASE WHEN {name} >= {FIRST_SECOND} AND {name} < {LAST_SECOND + 1} THEN floor({name} * 1e6)::BIGINT END"
        if kind.startswith(("TIMESTAMP", "DATE")):
            micros = f"epoch_us({name}::TIMESTAMP)" if kind == "DATE" else f"epoch_us({name})"
            return f"CASE WHEN {micros} BETWEEN {first} AND {last} THEN {micros} END"
        return f"CASE WHEN {name} BETWEEN {FIRST_SECOND} AND {LAST_SECOND} THEN {name}::BIGINT * 1000000 END"

    def value(self, table: str, column: str) -> str:
        """SQL for a column of `r`, NULL where it is NaN."""
        name = f"r.{quoted(column)}"
        return f"CASE WHEN NOT isnan({name}) THEN {name} END" if self.types(table)[column] in FLOATS else name


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def listed(columns: Sequence[str], table: str = "") -> str:
    """The columns as SQL lists them."""
    return ", ".join((f"{table}." if table else "") + quoted(column) for column in columns)


def same(columns: Sequence[str], one: str, other: str) -> str:
    """SQL: the columns are equal in both tables; NULL equals NULL."""
    return " AND ".join(f"{one}.{quoted(column)} IS NOT DISTINCT FROM {other}.{quoted(column)}" for column in columns)


def shown(row: Mapping[str, Any]) -> str:
    """A row on one line, long texts cut short."""
    return "{" + ", ".join(f"{name}: {_short(value)}" for name, value in row.items()) + "}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:80]}... ({len(text)} characters)"
