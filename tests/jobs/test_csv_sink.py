"""A csv sink's files are read back as the rows that they were, by a csv source, DuckDB and Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.connectors import stage
from support.streams import rows_of, spec

from streamtopology import topology
from streamtopology.jobs.connectors.sinks import Writer, check, open_sink
from streamtopology.jobs.connectors.sinks.registry import proof, takes
from streamtopology.jobs.connectors.sources.descriptors import Descriptor

WRITER = Writer(topology="flights", run="run-1")
ROWS = pa.schema(
    [
        ("n", pa.int64()), ("x", pa.float64()), ("ok", pa.bool_()), ("money", pa.decimal128(12, 2)), ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")), ("a, \"text\"", pa.string()),
    ]
)  # fmt: skip
DDL = 'n BIGINT, x DOUBLE, ok BOOLEAN, money DECIMAL(12, 2), day DATE, at TIMESTAMP, `a, "text"` STRING'
_days = st.dates(date(1, 1, 1), date(9999, 12, 31))
_moments = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))
_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
_columns = (
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans(),
    st.integers(-(10**11), 10**11).map(lambda cents: Decimal(cents).scaleb(-2)), _days, _moments,
    _texts | st.sampled_from(["", " a ", "\"", "a,b", "a\nb", "\r", "\ufeff", "NULL", "\\", "a\\\"b"]),
)  # fmt: skip
_rows = st.tuples(*(st.none() | values for values in _columns))


def sink_at(folder: Path, **options: str) -> topology.Sink:
    return topology.Sink("out", "counts", "csv", {"path": str(folder / "out"), **options})


def written(folder: Path, rows: pa.Table, **options: str) -> Path:
    sink = sink_at(folder, **options)
    stage(folder / "staged.arrow", rows.schema, rows.to_batches())
    proof([sink], rows.schema).check(rows.to_batches())
    for _ in range(2):
        open_sink(sink, WRITER).publish(7, [folder / "staged.arrow"], "end")
    return folder / "out/batch-000000007.csv"


def table(rows: list[tuple[Any, ...]], schema: pa.Schema = ROWS) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def read_by_source(path: Path, ddl: str, **options: str) -> list[tuple[Any, ...]]:
    source = spec(path.parent, "csv", ddl, **options)
    return [tuple(row.values()) for row in rows_of([Descriptor("s", "csv", str(path), 0, 0, path.stat().st_size, 1)], source)]


@settings(max_examples=60)
@given(rows=st.lists(_rows, min_size=1, max_size=5))
@example(rows=[(None,) * 7])
def test_rows_are_read_back_by_a_source_and_by_duckdb(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple]) -> None:
    path = written(tmp_path_factory.mktemp("rows"), table(rows), header="true")
    expected = [(*row[:-1], row[-1] or None) for row in rows]  # readers take "" for NULL
    assert read_by_source(path, DDL, header="true", escape='"') == expected
    types = "{'n': BIGINT, 'x': DOUBLE, 'ok': BOOLEAN, 'money': 'DECIMAL(12, 2)', 'day': DATE, 'at': TIMESTAMP, 'a': VARCHAR}"
    options = "header = true, quote = '\"', escape = '\"', delim = ',', new_line = '\\n', auto_detect = false"
    found = duckdb.connect().sql(f"SELECT * FROM read_csv('{path}', columns = {types}, {options})").fetchall()
    naive = [(*row[:5], row[5] and row[5].replace(tzinfo=None), row[6]) for row in expected]
    assert [(*row[:6], row[6] or None) for row in found] == naive


def test_without_a_header_the_first_line_is_a_row(tmp_path: Path) -> None:
    one = pa.schema([("a", pa.string())])
    path = written(tmp_path, table([(None,), ("x",), ("",), ("NaN",), ('say "hi"',)], one))
    assert path.read_text() == '""\nx\n""\nNaN\n"say ""hi"""\n'
    assert read_by_source(path, "a STRING") == [(None,), ("x",), (None,), ("NaN",), ('say "hi"',)]


def test_numbers_and_times_are_spelt_as_in_json(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "x": [float("nan"), float("-inf"), 1e20],
            "at": pa.array([datetime(2024, 1, 31, 10)] * 3, pa.timestamp("us", "Europe/Berlin")),
            "word": pa.array(["a,b", "c", None]).dictionary_encode(),
            "none": pa.nulls(3),
        }
    )
    assert written(tmp_path, rows, header="true").read_text().splitlines() == [
        "x,at,word,none",
        'NaN,2024-01-31T10:00:00.000000Z,"a,b",',
        "-Infinity,2024-01-31T10:00:00.000000Z,c,",
        "1e+20,2024-01-31T10:00:00.000000Z,,",
    ]


def test_partitions_and_a_header(tmp_path: Path) -> None:
    rows = pa.table({"day": ["mon", "tue"], "n": [1, 2]})
    written(tmp_path, rows, header="true", partitionBy="day")
    assert (tmp_path / "out/day=tue/batch-000000007.csv").read_text() == "n\n2\n"
    found = duckdb.connect().sql(f"SELECT day, n FROM read_csv('{tmp_path}/out/*/*.csv', hive_partitioning = true) ORDER BY n")
    assert found.fetchall() == [("mon", 1), ("tue", 2)]


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        (pa.list_(pa.int64()), "cannot write column 'v' of type list<item: int64>: there is no csv for it"),
        (pa.struct([("a", pa.int64())]), "there is no csv for it"),
        (pa.binary(), "there is no csv for it; cast it in a map, or write it to another format"),
        (pa.dictionary(pa.int32(), pa.binary()), "there is no csv for it"),
        (pa.month_day_nano_interval(), "there is no csv for it"),
    ],
)
def test_types_without_a_text_are_refused(tmp_path: Path, kind: pa.DataType, finding: str) -> None:
    schema = pa.schema([("v", kind)])
    (found,) = takes(sink_at(tmp_path), schema).refusals(schema)
    assert finding in found


def test_rows_without_columns_and_a_wrong_header_are_refused(tmp_path: Path) -> None:
    empty = pa.schema([])
    (found,) = takes(sink_at(tmp_path), empty).refusals(empty)
    assert "cannot write rows without any column: a csv file would lose their number" in found
    (problem,) = check(sink_at(tmp_path, header="yes"), tmp_path)
    assert "option header must be true or false, not 'yes'" in problem.message


@pytest.mark.clusters
def test_spark_reads_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    at = datetime(2024, 1, 31, 10, 0, 0, 500_000, tzinfo=UTC)
    rows = [
        (1, 1.5, True, Decimal("1.50"), date(2024, 1, 31), at, 'say "hi", she said'),
        (-(2**63), float("inf"), False, Decimal("-0.01"), date(1970, 1, 1), at, " a\nb\\"),
        (None, None, None, None, None, None, None),
    ]
    written(tmp_path, table(rows), header="true")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    reader = spark.read.schema(DDL).options(header=True, escape='"', multiLine=True, positiveInf="Infinity")
    found = reader.csv(str(tmp_path / "out")).toArrow().to_pylist()
    assert [tuple(row.values()) for row in found] == rows
