"""SQL expressions over Arrow batches, evaluated by DuckDB inside the Python worker.

The connection can reach nothing but the batch at hand: no files, no network, no extensions, no Python variables.
"""

from __future__ import annotations

import json
import os
import re
import reprlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from streamtopology.contract.errors import InvalidInput
from streamtopology.jobs.columnar.empty import empty_table
from streamtopology.jobs.columnar.spark_functions import in_place_of
from streamtopology.jobs.columnar.sql_casts import MACROS, NOT_UTF8, OF_UNKNOWN_TYPE, bytes_as_text, with_casts_of_spark
from streamtopology.jobs.columnar.sql_times import check_of_intervals, finding_of_inputs, finding_of_results, finer_columns
from streamtopology.jobs.errors import shown_reason

# The name of the table that expressions see: one that no column has, as `a.b` would be the table's before the column's.
_TABLE = "the tuples at hand"
_SETTINGS = (
    "SET threads = 1",
    "SET TimeZone = 'UTC'",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
_ACROSS_ROWS = ("AGGREGATE", "GROUP_BY", "WINDOW", "LIMIT", "TOP_N", "ORDER_BY", "SAMPLE")
_HUGE = pa.decimal128(38)
# Types whose values DuckDB gives Arrow as others: large numbers as negative, bits with their padding, variants as their bytes,
# times without a zone. Their names and those to cast them to.
_UNLIKE_ARROWS = {
    "uhugeint": ("UHUGEINT", "HUGEINT, DOUBLE or VARCHAR"),
    "bit": ("BIT", "VARCHAR"),
    "time with time zone": ("TIMETZ", "TIME or VARCHAR"),
    "variant": ("VARIANT", "JSON or VARCHAR"),
    "bignum": ("BIGNUM", "HUGEINT, DOUBLE or VARCHAR"),
}
_NESTED = ("struct", "list", "array", "map", "union")
# The letters that DuckDB takes for one another in names.
_FOLDED = str.maketrans(ascii_uppercase, ascii_lowercase)
_LAST_NAME = re.compile(r'\sas\s+(\w+|"[^"]+")\s*$')
_ALL_COLUMNS = re.compile(r"(^|,|\.)\s*\*|columns\s*\(")
_OTHER_TABLES = ("JOIN", "CROSS_PRODUCT")


class ExpressionError(InvalidInput):
    """A SQL expression that does not parse, fit its input, or hold for a value in it; names the expression.

    about: the text of the expression, where it is one of several.
    """

    def __init__(self, message: str, about: str | None = None) -> None:
        super().__init__(message)
        self.about = about


class _Engine:
    """One in-memory database; used by one thread at a time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.connection = duckdb.connect(":memory:")
        for setting in (*MACROS, *_SETTINGS):
            self.connection.execute(setting)


_engines: dict[int, _Engine] = {}


def _engine() -> _Engine:
    """This process's engine, made on first use: a connection does not survive the fork of a worker."""
    pid = os.getpid()
    if pid not in _engines:
        _engines.setdefault(pid, _Engine())
    return _engines[pid]


def quoted(name: str) -> str:
    """The identifier `name` as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def project(batch: pa.RecordBatch, select: Sequence[str] = (), where: str | None = None) -> pa.RecordBatch:
    """The columns `select` (SQL, none: all as they are) of those rows of `batch` for which `where` is true.

    Expressions see one row at a time; `unnest` may make several of one. Without `select` columns keep their Arrow
    types; else they have the types of `output_schema`. Raises ExpressionError.
    """
    if not select:
        return batch if where is None else batch.filter(_mask(batch, where))
    _refuse_one_name_twice(batch.schema, select)
    _refuse_finer_values(batch, [*select, *([] if where is None else [where])])
    try:
        found = _query(batch, _sql(select, where))
    except duckdb.Error as error:
        raise _named(batch, select, where, error) from error
    _refuse_values_unlike_arrows({_TABLE: batch}, found, _sql(select, where), _shown(select, where))
    return found


def output_schema(schema: pa.Schema, select: Sequence[str] = (), where: str | None = None) -> pa.Schema:
    """The schema of `project` for batches of `schema`. Raises ExpressionError, also for aggregates and the like."""
    return _output_schema(schema, tuple(select), where)


@lru_cache(maxsize=256)
def _output_schema(schema: pa.Schema, select: tuple[str, ...], where: str | None) -> pa.Schema:
    if not select and where is None:
        return schema
    empty = empty_table(schema)
    for text in [*select, *([] if where is None else [where])]:
        if not isinstance(text, str) or not text.strip():
            raise ExpressionError(f"expression {text!r} is not a SQL text")
    _refuse_one_name_twice(schema, [*select, *([] if where is None else [where])])
    _refuse_finer_types(schema, [*select, *([] if where is None else [where])])
    try:
        _check_row_by_row(empty, select, where)
        for one, condition in _alone(select, where):
            _refuse_bytes_as_text({_TABLE: empty}, _sql(one, condition), _shown(one, condition))
        if not select:
            return schema
        _refuse_types_unlike_arrows({_TABLE: empty}, _sql(select, where), _shown(select, where))
        found = _run({_TABLE: empty}, _sql(select, where)).schema
    except duckdb.Error as error:
        raise _named(empty, select, where, error) from error
    twice = [name for name in found.names if found.names.count(name) > 1]
    if twice:
        raise ExpressionError(f"two expressions of {list(select)} give a column {twice[0]!r}; name them with AS")
    return found


def left_out(batch: pa.RecordBatch, select: Sequence[str], where: str, columns: Sequence[str]) -> pa.RecordBatch:
    """`columns` of the result that `project` would have of the rows that `where` leaves out; NULL where that fails.

    The other expressions of `select` are not evaluated. Raises ExpressionError.
    """
    others = f"NOT COALESCE(CAST(({where}\n) AS BOOLEAN), FALSE)"
    try:
        return _query(batch, f"SELECT {', '.join(map(quoted, columns))}\nFROM ({_sql(select, others)})")
    except duckdb.Error as error:
        tried = [_tried(select, name) for name in columns]  # which works on an expression, not on a column of a subquery
        if _fault(batch, tried, others) is not None:
            raise _named(batch, select, others, error) from error
        return _query(batch, _sql(tried, others))


def _tried(select: Sequence[str], column: str) -> str:
    """The expression of `select` that gives `column`, with NULL for what it cannot give; the column where no text says."""
    for text in select:
        name = _LAST_NAME.search(text.translate(_FOLDED))
        if name is not None and name[1].strip('"') == column.translate(_FOLDED):
            return f"TRY({text[: name.start()]}\n) AS {quoted(column)}"
    return quoted(column)


def query(tables: Mapping[str, pa.Table | pa.RecordBatch], sql: str) -> pa.Table:
    """The result of one SELECT over `tables`, for operators that join. Raises ExpressionError."""
    for table in tables.values():
        _refuse_one_name_twice(table.schema, [sql])
        _refuse_finer_values(table, [sql])
    try:
        found = _run(tables, sql)
    except duckdb.Error as error:
        raise ExpressionError(f"{_first_line(error)} in {sql}") from error
    _refuse_values_unlike_arrows(tables, found, sql, sql)
    return found


def query_schema(inputs: Mapping[str, pa.Schema], sql: str) -> pa.Schema:
    """The schema of `query` over tables of `inputs`; refuses aggregates and the like, too. Raises ExpressionError."""
    return _query_schema(tuple(inputs.items()), sql)


@lru_cache(maxsize=256)
def _query_schema(inputs: tuple[tuple[str, pa.Schema], ...], sql: str) -> pa.Schema:
    for _, schema in inputs:
        _refuse_one_name_twice(schema, [sql])
        _refuse_finer_types(schema, [sql])
    empty = {name: empty_table(schema) for name, schema in inputs}
    try:
        mixing = _mixing_steps(empty, sql, _ACROSS_ROWS)
        if mixing:
            raise ExpressionError(f"{sql} looks at several results at once ({mixing[0]}); let a later operator do so")
        _refuse_bytes_as_text(empty, sql, sql)
        _refuse_types_unlike_arrows(empty, sql, sql)
        return _run(empty, sql).schema
    except duckdb.Error as error:
        raise ExpressionError(f"{_first_line(error)} in {sql}") from error


def _refuse_one_name_twice(schema: pa.Schema, expressions: Sequence[str]) -> None:
    """Raises ExpressionError if one of the expressions names a column whose name another one has in another case."""
    by_name: dict[str, list[str]] = {}
    for name in schema.names:
        by_name.setdefault(name.translate(_FOLDED), []).append(name)
    if len(by_name) == len(schema.names):
        return
    for text in expressions:
        for name, alike in by_name.items():
            if len(alike) > 1 and _names(text, name):
                raise ExpressionError(
                    f"expression {text!r}: the columns {' and '.join(map(repr, alike))} differ in upper and lower case only, "
                    "which SQL takes for one; declare only one of them, or give them other names before",
                    text,
                )


def _names(expression: str, name: str) -> bool:
    """True if an expression reads the column whose folded name is `name`, as far as its text shows."""
    named = _LAST_NAME.sub("", expression.translate(_FOLDED))
    return _ALL_COLUMNS.search(named) is not None or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", named) is not None


def _refuse_finer_types(schema: pa.Schema, expressions: Sequence[str]) -> None:
    """Raises ExpressionError if an expression reads a column of nanoseconds that SQL would cut off."""
    for name, finding in finer_columns(schema):
        for text in expressions:
            if _names(text, name.translate(_FOLDED)):
                raise ExpressionError(f"expression {text!r}: {finding}", text)


def _refuse_finer_values(rows: pa.RecordBatch | pa.Table, expressions: Sequence[str]) -> None:
    """Raises ExpressionError if an expression reads an interval that SQL would cut off."""
    for field in rows.schema:
        if pa.types.is_interval(field.type):
            finding = finding_of_inputs(rows.select([field.name]))
            for text in expressions if finding else ():
                if _names(text, field.name.translate(_FOLDED)):
                    raise ExpressionError(f"expression {text!r}: {finding}", text)


def _refuse_values_unlike_arrows(
    tables: Mapping[str, pa.Table | pa.RecordBatch], found: pa.RecordBatch | pa.Table, sql: str, shown: str
) -> None:
    """Raises ExpressionError for values of SQL that are others in `found`, or that it has not."""
    _refuse_more_digits(found, shown)
    finding = finding_of_results(found)
    check = check_of_intervals(found.schema, sql)
    if finding is None and check is not None and _run(tables, check).column("found")[0].as_py():
        finding = "an interval has more than 292 years in its hours, which Arrow has not; cast it to VARCHAR, or to numbers"
    if finding is not None:
        raise ExpressionError(f"{shown}: {finding}")


def _refuse_more_digits(found: pa.RecordBatch | pa.Table, shown: str) -> None:
    """Raises ExpressionError if a HUGEINT has 39 digits, as the largest do; a decimal, which it becomes, has 38."""
    for name, column in zip(found.schema.names, found.columns, strict=True):
        try:
            column.validate(full=column.type == _HUGE)
        except pa.ArrowInvalid as error:
            sentence = f"a number in {name!r} has more than 38 digits; cast it to DOUBLE or VARCHAR"
            raise ExpressionError(f"{shown}: {sentence}") from error


def _refuse_types_unlike_arrows(tables: Mapping[str, pa.Table], sql: str, shown: str) -> None:
    """Raises ExpressionError for a column that holds a type of `_UNLIKE_ARROWS`, at any depth."""
    for name, kind in _types(tables, sql):
        for held in _held(kind):
            if held in _UNLIKE_ARROWS:
                type_, others = _UNLIKE_ARROWS[held]
                raise ExpressionError(f"{shown}: {name!r} is a {type_}; cast it to {others}")


def _refuse_bytes_as_text(tables: Mapping[str, pa.Table], sql: str, shown: str) -> None:
    """Raises ExpressionError if bytes become text without a cast that reads them as UTF-8."""
    finding = bytes_as_text(_engine().connection, tables, with_casts_of_spark(sql))
    if finding is not None:
        raise ExpressionError(f"{shown}: {finding}")


def _types(tables: Mapping[str, pa.Table], sql: str) -> list[tuple[str, DuckDBPyType]]:
    with _with_tables(tables) as connection:
        relation = connection.sql(with_casts_of_spark(sql))
        return list(zip(relation.columns, relation.types, strict=True))


def _held(kind: DuckDBPyType) -> Iterator[str]:
    """The name of a type, and of those in it."""
    yield kind.id
    for _, child in kind.children if kind.id in _NESTED else ():
        if isinstance(child, DuckDBPyType):  # an array has its size, too
            yield from _held(child)


def _sql(select: Sequence[str], where: str | None) -> str:
    columns = "\n, ".join(select) if select else "*"
    return f"SELECT {columns}\nFROM {quoted(_TABLE)}" + ("" if where is None else f"\nWHERE ({where}\n)")


def _query(batch: pa.RecordBatch, sql: str) -> pa.RecordBatch:
    found = _run({_TABLE: batch}, sql)
    chunks = found.combine_chunks().to_batches()
    return chunks[0] if chunks else pa.RecordBatch.from_pylist([], schema=found.schema)


def _mask(batch: pa.RecordBatch, where: str) -> pa.Array:
    _refuse_one_name_twice(batch.schema, [where])
    _refuse_finer_values(batch, [where])
    try:
        table = _run({_TABLE: batch}, f"SELECT CAST(({where}\n) AS BOOLEAN) AS kept\nFROM {quoted(_TABLE)}")
    except duckdb.Error as error:
        raise _named(batch, (), where, error) from error
    return table.column(0).combine_chunks()


def _run(tables: Mapping[str, pa.Table | pa.RecordBatch], sql: str) -> pa.Table:
    with _with_tables(tables) as connection:
        try:
            if len(connection.extract_statements(sql)) != 1:
                raise duckdb.ParserException("an expression cannot hold several statements")
            return connection.sql(with_casts_of_spark(sql)).to_arrow_table()
        except duckdb.OutOfMemoryException as error:  # no fault of the expression or of a row
            raise MemoryError(f"{_first_line(error)} in {sql}") from error


@contextmanager
def _with_tables(tables: Mapping[str, pa.Table | pa.RecordBatch]) -> Iterator[duckdb.DuckDBPyConnection]:
    engine = _engine()
    with engine.lock:
        for name, table in tables.items():
            engine.connection.register(name, table)
        try:
            yield engine.connection
        finally:
            for name in tables:
                engine.connection.unregister(name)


def _check_row_by_row(empty: pa.Table, select: Sequence[str], where: str | None) -> None:
    for text in [*select, *([] if where is None else [f"({where}\n)"])]:
        mixing = _mixing_steps({_TABLE: empty}, _sql([text], None), _ACROSS_ROWS + _OTHER_TABLES)
        if mixing:
            about = text if text in select else where
            raise ExpressionError(
                f"expression {about!r} looks at several rows at once ({mixing[0]}), and an expression sees one tuple at a "
                "time: name here what is added up, and let an operator with run: aggregate or window-aggregate sum that column",
                about,
            )


def _mixing_steps(tables: Mapping[str, pa.Table], sql: str, kinds: Sequence[str]) -> list[str]:
    """The steps of DuckDB's plan for `sql` that are of one of `kinds`."""
    plan = _run(tables, f"EXPLAIN (FORMAT JSON) {with_casts_of_spark(sql)}").column("explain_value")[0].as_py()
    steps = [step for step in _steps(json.loads(plan)) if any(kind in step for kind in kinds)]
    return [step.lower().replace("_", " ") for step in steps]


def _steps(plan: list[dict[str, Any]]) -> Iterator[str]:
    for step in plan:
        yield step["name"]
        yield from _steps(step.get("children", []))


def _named(rows: pa.RecordBatch | pa.Table, select: Sequence[str], where: str | None, error: duckdb.Error) -> ExpressionError:
    """Say which expression it was: the one that fails alone, too, on the rows that `where` lets through, or all of them."""
    for text, one in [*([] if where is None else [(where, ["1"])]), *((text, [text]) for text in select)]:
        again = _fault(rows, one, where)
        if again is not None:
            row = f", in the row {_first_at_fault(rows, one, where)}" if NOT_UTF8 in str(again) else ""
            columns = ", ".join(rows.schema.names)
            why = _word_of_sql(rows, one, where, again) or in_place_of(text, again) or f"{_first_line(again)}{row}"
            return ExpressionError(f"expression {text!r}: {why} (columns: {columns})", text)
    return ExpressionError(f"{_shown(select, where)}: {_first_line(error)}")


def _word_of_sql(rows: pa.RecordBatch | pa.Table, select: Sequence[str], where: str | None, error: duckdb.Error) -> str | None:
    """The remedy where an expression does not parse only because a column has the name of a word of SQL, such as `at`."""
    for name in rows.schema.names if isinstance(error, duckdb.ParserException) else ():
        bare = re.compile(rf"""(?<![\w"'.]){re.escape(name)}(?![\w"'(])""", re.IGNORECASE)
        one, condition = [bare.sub(quoted(name), text) for text in select], where and bare.sub(quoted(name), where)
        if not isinstance(_fault(rows, one, condition), duckdb.ParserException):
            return f"{name} is a word of SQL, too: write the column as {quoted(name)}"
    return None


def _alone(select: Sequence[str], where: str | None) -> list[tuple[list[str], str | None]]:
    """Each expression as a `select` and a `where` of its own."""
    return [*(([text], None) for text in select), *([] if where is None else [(["1"], where)])]


def _fault(rows: pa.RecordBatch | pa.Table, select: Sequence[str], where: str | None) -> duckdb.Error | None:
    try:
        _run({_TABLE: rows}, _sql(select, where))
    except duckdb.Error as error:
        return error
    return None


def _first_at_fault(rows: pa.RecordBatch | pa.Table, select: Sequence[str], where: str | None) -> str:
    """The first of the rows on which the expression fails, by halves; for people."""
    while rows.num_rows > 1:
        half = rows.num_rows // 2
        first = rows.slice(0, half)
        rows = rows.slice(half) if _fault(first, select, where) is None else first
    return reprlib.repr(rows.to_pylist()[0])


def _shown(select: Sequence[str], where: str | None) -> str:
    parts = [*select, *([] if where is None else [f"where {where}"])]
    return "expression " + "; ".join(repr(part) for part in parts)


def _first_line(error: duckdb.Error) -> str:
    if OF_UNKNOWN_TYPE in str(error):
        return "what `unnest` gives has no type to cast yet: cast inside, unnest(list_transform(l, lambda x: CAST(x AS INT)))"
    if "lambda arrow" in str(error):  # its remedy is a setting, and settings are locked
        return "a lambda is written with a colon here: list_transform(l, lambda x: x + 1) in place of x -> x + 1"
    return shown_reason(str(error).split("\n\n")[0].replace("\n", " "))
