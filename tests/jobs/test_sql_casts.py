"""Casts of bytes, numbers and times in SQL are Spark's, and bytes never become text without one."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from streamtopology.jobs.columnar.expressions import ExpressionError, output_schema, project, query, query_schema

EXAMPLES = Path(__file__).parents[2] / "examples"
BYTES = pa.schema([("value", pa.binary()), ("parts", pa.list_(pa.binary())), ("x", pa.float64())])


def rows(*values: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"value": value, "parts": [value], "x": 2.7} for value in values], BYTES)


def result(expression: str, batch: pa.RecordBatch) -> list[Any]:
    select = [f"{expression} AS r"]
    found = project(batch, select)
    assert found.schema == output_schema(batch.schema, select)
    return found.column("r").to_pylist()


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_bytes_cast_to_text_are_utf8(texts: list[str | None]) -> None:
    batch = rows(*(None if text is None else text.encode() for text in texts))
    for cast in ("CAST(value AS STRING)", "value::VARCHAR", "CAST(value AS TEXT)", "TRY_CAST(value AS STRING)"):
        assert result(cast, batch) == texts


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("upper(CAST(value AS STRING))", "ZÜRICH"),
        ("CASE WHEN x > 1 THEN value::TEXT ELSE 'none' END", "Zürich"),
        ("concat(CAST(value AS STRING), '!')", "Zürich!"),
        ("value::TEXT || parts[1]::TEXT", "ZürichZürich"),
        ("CAST(value[1:1] AS STRING)", "Z"),
        ("list_transform(parts, lambda part: part::TEXT)", ["Zürich"]),
        ("unnest(list_transform(parts, lambda x: CAST(x AS TEXT)))", "Zürich"),
        ("coalesce(TRY_CAST(value AS TEXT), 'none')", "Zürich"),
        ("CAST(x AS INT)::STRING", "2"),
        ("CAST('\\x41' AS BINARY)", rb"\x41"),
        ("CAST(CAST('2024-01-01 05:30:00.5+05:30' AS TIMESTAMP) AS STRING)", "2024-01-01 00:00:00.5"),
    ],
)
def test_casts_hold_anywhere_in_an_expression(expression: str, expected: object) -> None:
    assert result(expression, rows("Zürich".encode())) == [expected]


@pytest.mark.parametrize(
    "kind", ["TINYINT", "INT", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"]
)
def test_numbers_are_cut_off_to_any_integer(kind: str) -> None:
    for number, expected in ((2.7, 2), (2.5, 2), (-0.9, 0)):
        batch = pa.record_batch({"x": [number]})
        assert result(f"CAST(x AS {kind})::VARCHAR", batch) == [str(expected)]
        assert result(f"TRY_CAST(x AS {kind})::VARCHAR", batch) == [str(expected)]


@pytest.mark.parametrize("cast", ["unnest(parts)::TEXT", "unnest([x])::INT", "(unnest([x]) + 1)::INT"])
def test_a_cast_of_unknown_type_says_how_to_write_it(cast: str) -> None:
    with pytest.raises(ExpressionError, match=r"has no type to cast yet: cast inside, unnest\(list_transform\("):
        result(cast, rows("Zürich".encode()))


def test_a_cast_in_where_and_in_a_query_is_utf8_too() -> None:
    batch = rows("Zürich".encode(), b"Bern")
    assert project(batch, (), "CAST(value AS STRING) = 'Zürich'").num_rows == 1
    sql = "SELECT value::TEXT AS town FROM t"
    assert query({"t": batch}, sql).column("town").to_pylist() == ["Zürich", "Bern"]
    assert query_schema({"t": BYTES}, sql).types == [pa.string()]


def test_bytes_that_are_no_utf8_name_expression_and_row() -> None:
    batch = rows(b"a", b"b", b"\xff\xfe", b"c")
    with pytest.raises(ExpressionError, match=r"'CAST\(value AS STRING\) AS r'.*no text in UTF-8: FFFE, in the row .*xff"):
        project(batch, ["CAST(value AS STRING) AS r"])
    with pytest.raises(ExpressionError, match="in the row"):
        project(batch, (), "value::TEXT = 'a'")
    assert result("TRY_CAST(value AS STRING)", batch) == ["a", "b", None, "c"]


@pytest.mark.parametrize(
    "expression",
    [
        *("value || 'x'", "concat(value, 'x')", "format('{}', value)", "json_extract_string(value, '$.a')", "value::JSON"),
        *("to_json(value)", "to_json({'a': value})", "parts::TEXT", "parts::TEXT[]", "unnest(parts) || 'x'"),
        "array_to_string(parts, ',')",
    ],
)
def test_bytes_taken_for_text_without_a_cast_are_refused(expression: str) -> None:
    with pytest.raises(ExpressionError, match=r"takes bytes for text.*CAST\(\.\.\. AS STRING\)"):
        output_schema(BYTES, [f"{expression} AS r"])


@pytest.mark.parametrize("expression", ["value = 'Bern'", "hex(value)", "md5(value)", "to_base64(value)", "len(parts)"])
def test_bytes_that_stay_bytes_are_no_mistake(expression: str) -> None:
    assert len(result(expression, rows(b"Bern"))) == 1


def test_integers_are_cut_off_and_exact() -> None:
    batch = rows(b"")
    for text, expected in [("x", 2), ("-x", -2), ("9007199254740993", 2**53 + 1), ("2.70::DECIMAL(38,2)", 2), ("true", 1)]:
        assert result(f"CAST({text} AS BIGINT)", batch) == [expected]
    assert result("CAST(NULL AS INT)", batch) == result("TRY_CAST('2.7' AS INT)", batch) == [None]
    with pytest.raises(ExpressionError, match=r"'2\.7' is no whole number"):
        project(batch, ["CAST('2.7' AS INT) AS r"])


def test_an_offset_in_a_text_is_kept() -> None:
    for kind in ("TIMESTAMP", "TIMESTAMP_MS"):
        found = result(f"CAST('2024-01-01T05:30:00+02:00' AS {kind})", rows(b""))
        assert found == [datetime.datetime(2024, 1, 1, 3, 30)]


def test_a_column_without_a_name_keeps_the_name_of_its_text() -> None:
    assert output_schema(BYTES, ["CAST(x AS INT)"]).names == ["CAST(x AS INTEGER)"]


@pytest.mark.parametrize("name", ["gang.yaml", "pod-settings.yaml"])
def test_examples_that_cast_bytes_take_umlauts(name: str) -> None:
    sources = [source for part in yaml.safe_load_all((EXAMPLES / name).read_text()) for source in part["spec"]["sources"]]
    value = '{"shop": "Café Zürich"}'
    for source in sources:
        found = project(rows(value.encode()), source["select"])
        assert found.column(0).to_pylist() in (["Café Zürich"], [value])
