"""Fields of structs in parquet files are found by name, as columns are; a missing one is NULL, as Spark reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.streams import only_file, rows_of, spec

from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError, conform
from streamtopology.jobs.connectors.sources.schema.ddl import ddl_to_arrow

PAIRS = pa.array([{"a": 1, "b": 2}, None, {"a": 3, "b": None}])
LISTS = pa.array([[{"a": 1, "b": 2}, None], None, []])
MAPS = pa.array([[("k", {"a": 1, "b": 2})], None, []], pa.map_(pa.string(), pa.struct([("a", pa.int64()), ("b", pa.int64())])))


def read(folder: Path, values: pa.Array, ddl: str) -> list[Any]:
    (folder / "in").mkdir()
    pq.write_table(pa.table({"s": values}), folder / "in" / "a.parquet")
    source = spec(folder / "in", "parquet", f"s {ddl}")
    return [row["s"] for row in rows_of([only_file(folder / "in", source)], source)]


@pytest.mark.parametrize(
    ("values", "ddl", "expected"),
    [
        (PAIRS, "STRUCT<b: BIGINT, a: BIGINT>", [{"b": 2, "a": 1}, None, {"b": None, "a": 3}]),
        (PAIRS, "STRUCT<b: BIGINT, c: STRING>", [{"b": 2, "c": None}, None, {"b": None, "c": None}]),
        (PAIRS, "STRUCT<c: STRUCT<d: INT>>", [{"c": None}, None, {"c": None}]),
        (PAIRS, "STRUCT<b: BIGINT, a: BIGINT NOT NULL>", [{"b": 2, "a": 1}, None, {"b": None, "a": 3}]),
        (LISTS, "ARRAY<STRUCT<c: STRING, b: BIGINT>>", [[{"c": None, "b": 2}, None], None, []]),
        (MAPS, "MAP<STRING, STRUCT<c: STRING, b: BIGINT>>", [[("k", {"c": None, "b": 2})], None, []]),
    ],
)
def test_fields_are_found_by_name_as_spark_does(tmp_path: Path, values: pa.Array, ddl: str, expected: list[Any]) -> None:
    """The rows are those of Spark 4.3."""
    assert read(tmp_path, values, ddl) == expected


@pytest.mark.parametrize(
    ("values", "ddl", "complaint"),
    [
        (PAIRS, "STRUCT<A: BIGINT>", "'s' holds struct<a: int64, b: int64> but is declared struct<A: int64>"),
        (PAIRS, "STRUCT<a: BIGINT, c: INT NOT NULL>", "but is declared struct<a: int64, c: int32 not null>"),
        (PAIRS, "STRUCT<a: INT>", "but is declared struct<a: int32>"),
        (PAIRS, "STRUCT<b: BIGINT NOT NULL>", "column 's' has the field 'b', declared NOT NULL, which holds NULL"),
        (pa.array([[PAIRS[2].as_py()]]), "ARRAY<STRUCT<b: BIGINT NOT NULL>>", "has the field 'b', declared NOT NULL"),
        (pa.array([{"x": {"y": None}}]), "STRUCT<x: STRUCT<y: INT NOT NULL>>", "has the field 'x.y', declared NOT NULL"),
    ],
)
def test_field_that_does_not_fit_is_refused(tmp_path: Path, values: pa.Array, ddl: str, complaint: str) -> None:
    with pytest.raises(SchemaMismatchError) as refused:
        read(tmp_path, values, ddl)
    assert complaint in str(refused.value)


def test_fields_of_one_name_are_refused() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(SchemaMismatchError, match="holds struct<a: int64, a: int64>"):
        conform(pa.table({"s": twice}), ddl_to_arrow("s STRUCT<a: BIGINT>"), "here")


NAMES = ["a", "b", "c", "d"]


@given(
    rows=st.lists(st.none() | st.lists(st.none() | st.fixed_dictionaries(dict.fromkeys("abc", st.none() | st.integers(0, 9))))),
    names=st.permutations(NAMES),
    count=st.integers(1, 4),
    start=st.integers(0, 3),
)
def test_any_choice_of_fields_is_that_of_the_rows(rows: list[Any], names: list[str], count: int, start: int) -> None:
    found = pa.array(rows, pa.list_(pa.struct([(name, pa.int32()) for name in "abc"]))).slice(start)
    declared = ddl_to_arrow(f"s ARRAY<STRUCT<{', '.join(f'{name}: BIGINT' for name in names[:count])}>>")
    expected = [
        items and [item and {name: item.get(name) for name in names[:count]} for item in items] for items in rows[start:]
    ]
    assert conform(pa.table({"s": found}), declared, "here").column("s").to_pylist() == expected
