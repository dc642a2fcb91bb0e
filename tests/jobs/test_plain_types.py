"""Arrow's other layouts of texts, bytes and lists are read as the plain ones."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.connectors import read
from support.streams import only_file, spec

from streamtopology.jobs.columnar.plain_types import plain, plain_type
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.topology import Source

IDS = [uuid.UUID(int=7), None, uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")]
UUIDS = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([None if i is None else i.bytes for i in IDS], pa.binary(16)))
TEXTS = [None if i is None else str(i) for i in IDS]
BYTES = [None if i is None else i.bytes for i in IDS]
CASES: list[tuple[pa.Array, str, list[Any]]] = [
    (pa.array(["a", None, "ü"], pa.string_view()), "STRING", ["a", None, "ü"]),
    (pa.array([b"a", None, b"\xff"], pa.binary_view()), "BINARY", [b"a", None, b"\xff"]),
    (pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2)), "ARRAY<BIGINT>", [[1, 2], None, [3, None]]),
    (pa.array([["a"], None, ["b", None]], pa.list_view(pa.string())), "ARRAY<STRING>", [["a"], None, ["b", None]]),
    (pa.array([["a"], None, []], pa.large_list_view(pa.string_view())), "ARRAY<STRING>", [["a"], None, []]),
    (pa.array(['{"a": 1}', None, "2"], pa.json_()), "STRING", ['{"a": 1}', None, "2"]),
    (UUIDS, "STRING", TEXTS),
    (UUIDS, "BINARY", BYTES),
    (pa.StructArray.from_arrays([UUIDS], ["u"]), "STRUCT<u: STRING>", [{"u": text} for text in TEXTS]),
    (pa.StructArray.from_arrays([UUIDS], ["u"]), "STRUCT<u: BINARY>", [{"u": value} for value in BYTES]),
    (pa.ListArray.from_arrays([0, 1, 3], UUIDS), "ARRAY<BINARY>", [BYTES[:1], BYTES[1:]]),
    (pa.MapArray.from_arrays([0, 1, 3], pa.array(["a", "b", "c"]), UUIDS), "MAP<STRING, STRING>",
     [[("a", TEXTS[0])], [("b", TEXTS[1]), ("c", TEXTS[2])]]),
]  # fmt: skip


@pytest.mark.parametrize(("values", "ddl", "expected"), CASES)
def test_parquet_column_of_another_layout_is_read(tmp_path: Path, values: pa.Array, ddl: str, expected: list[Any]) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"v": values}), tmp_path / "in/a.parquet")
    source = spec(tmp_path / "in", schema=f"v {ddl}")
    assert not check(Source("s", "parquet", f"v {ddl}", {"path": str(tmp_path / "in")})).findings
    assert [v for batch in read(only_file(tmp_path / "in", source), source) for v in batch.column("v").to_pylist()] == expected


@pytest.mark.parametrize(("values", "ddl", "expected"), CASES)
@pytest.mark.parametrize("start", [0, 1, 3])
def test_slices_are_plain_too(values: pa.Array, ddl: str, expected: list[Any], start: int) -> None:
    if "BINARY" not in ddl or ddl == "BINARY":
        found = plain(values.slice(start), pa.binary() if ddl == "BINARY" else None)
        found.validate(full=True)
        assert found.to_pylist() == expected[start:]
        assert plain_type(found.type) == found.type


@given(st.lists(st.none() | st.uuids(), max_size=9), st.integers(0, 9))
@settings(max_examples=25)
def test_uuid_is_the_text_of_python(ids: list[uuid.UUID | None], start: int) -> None:
    storage = pa.array([None if one is None else one.bytes for one in ids], pa.binary(16))
    found = plain(pa.ExtensionArray.from_storage(pa.uuid(), storage).slice(start))
    assert found.to_pylist() == [None if one is None else str(one) for one in ids[start:]]


def test_plain_types_stay_as_they_are() -> None:
    for kind in (pa.int8(), pa.large_string(), pa.large_list(pa.int8()), pa.map_(pa.string(), pa.int8()), pa.time64("us")):
        values = pa.nulls(2, kind)
        assert plain(values) is values


def test_run_ends_are_their_values() -> None:
    values = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None]))
    assert plain(values).to_pylist() == ["a", "a", None]


@pytest.mark.parametrize(
    ("values", "ddl", "complaint"),
    [
        (pa.array([1], pa.time64("us")), "STRING", "holds time64.us. but is declared string; write it as another type"),
        (pa.array([1], pa.duration("us")), "BIGINT", "write it as another type, such as a text"),
        (
            pa.array([{"a b": 1}]),
            "STRING",
            "holds struct<a b: int64> but is declared string; declare it STRUCT<`a b`: BIGINT>$",
        ),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), "STRING", "declare it MAP<STRING, TINYINT>$"),
        (UUIDS, "BIGINT", "holds extension<arrow.uuid> but is declared int64; declare it STRING$"),
        (pa.array([["a"]], pa.list_(pa.string(), 1)), "STRING", "; declare it ARRAY<STRING>$"),
    ],
)
def test_other_type_is_refused_with_its_remedy(tmp_path: Path, values: pa.Array, ddl: str, complaint: str) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"v": values}), tmp_path / "in/a.parquet")
    source = spec(tmp_path / "in", schema=f"v {ddl}")
    with pytest.raises(SchemaMismatchError, match=complaint):
        list(read(only_file(tmp_path / "in", source), source))
