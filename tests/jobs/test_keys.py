"""Canonical keys: what is equal, what is not, and that the original columns come back."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.jobs.columnar.keys import KeyColumns, KeyTypeError, key_kind, key_types

COLUMN_TYPES = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "float32": (pa.float32(), st.floats(width=32)),
    "float64": (pa.float64(), st.floats()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))),
    "string": (pa.string(), st.text(max_size=5)),
    "large_string": (pa.large_string(), st.text(max_size=5)),
    "string_view": (pa.string_view(), st.text(max_size=20)),
    "binary": (pa.binary(), st.binary(max_size=5)),
    "fixed_binary": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "decimal": (pa.decimal128(9, 2), st.integers(-(10**8), 10**8).map(lambda n: Decimal(n).scaleb(-2))),
    "null": (pa.null(), st.none()),
}


@st.composite
def key_batches(draw: st.DrawFn) -> pa.RecordBatch:
    """One to three key columns of any type with NULLs, some of them slices of longer arrays."""
    rows = draw(st.integers(0, 12))
    arrays = []
    for _ in range(draw(st.integers(1, 3))):
        type_, values = COLUMN_TYPES[draw(st.sampled_from(sorted(COLUMN_TYPES)))]
        before, after = draw(st.integers(0, 9)), draw(st.integers(0, 2))
        total = before + rows + after
        column = draw(st.lists(st.one_of(st.none(), values), min_size=total, max_size=total))
        arrays.append(pa.array(column, type=type_).slice(before, rows))
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])


def canonical_row(row: tuple[object, ...]) -> tuple[object, ...]:
    """Python's idea of the key: floats with one NaN and one zero, everything else as it is."""

    def canonical(value: object) -> object:
        if isinstance(value, float):
            return "NaN" if math.isnan(value) else value + 0.0
        return value

    return tuple(canonical(value) for value in row)


def rows_of(columns: list[pa.Array]) -> list[tuple[object, ...]]:
    return [canonical_row(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


def canonical_bytes(keys: KeyColumns) -> list[bytes | int | None]:
    valid = np.ones(len(keys), np.bool_) if keys.valid is None else keys.valid
    if keys.kind == "int64":
        return [int(value) if ok else None for value, ok in zip(keys.values, valid, strict=True)]
    spans = zip(keys.offsets[:-1], keys.offsets[1:], valid, strict=True)
    return [bytes(keys.data[start:end]) if ok else None for start, end, ok in spans]


@settings(max_examples=150)
@given(key_batches())
def test_keys_are_equal_as_their_values_are_and_decode_to_them(batch: pa.RecordBatch) -> None:
    keys = KeyColumns.from_arrow(batch, batch.schema.names)
    decoded = keys.decode()
    assert [array.type for array in decoded] == batch.schema.types
    for array in decoded:
        array.validate(full=True)
    rows = rows_of(batch.columns)
    assert rows_of(decoded) == rows

    canonical = canonical_bytes(keys)
    for i in range(len(rows)):
        for j in range(i):
            assert (canonical[i] == canonical[j]) == (rows[i] == rows[j])
            if rows[i] == rows[j]:
                assert keys.hashes[i] == keys.hashes[j]


@settings(max_examples=60)
@given(key_batches(), st.data())
def test_take_is_that_of_the_rows(batch: pa.RecordBatch, data: st.DataObject) -> None:
    keys = KeyColumns.from_arrow(batch, batch.schema.names)
    indices = data.draw(st.lists(st.integers(0, len(keys) - 1), max_size=8) if len(keys) else st.just([]))
    taken = keys.take(np.array(indices, dtype=np.int64))
    assert canonical_bytes(taken) == [canonical_bytes(keys)[i] for i in indices]
    cut = data.draw(st.integers(0, len(keys)))
    parts = [KeyColumns.from_arrow(part, batch.schema.names) for part in (batch.slice(0, cut), batch.slice(cut))]
    assert [*canonical_bytes(parts[0]), *canonical_bytes(parts[1])] == canonical_bytes(keys), "slices begin where they begin"
    assert np.concatenate([part.hashes for part in parts]).tolist() == keys.hashes.tolist()


def keys_of(values: list[object], type_: pa.DataType) -> KeyColumns:
    return KeyColumns.from_arrow(pa.record_batch({"k": pa.array(values, type=type_)}), ["k"])


def test_an_integer_is_the_same_key_whatever_its_width() -> None:
    wide, narrow = keys_of([5, -1, None], pa.int64()), keys_of([5, -1, None], pa.int8())
    assert wide.hashes.tolist() == narrow.hashes.tolist()
    assert canonical_bytes(wide) == canonical_bytes(narrow)


def test_composite_integers_are_the_same_key_whatever_their_width() -> None:
    def pair(type_: pa.DataType) -> KeyColumns:
        column = pa.array([1, None, 3], type=type_)
        return KeyColumns.from_arrow(pa.record_batch({"a": column, "b": column}), ["a", "b"])

    assert canonical_bytes(pair(pa.int16())) == canonical_bytes(pair(pa.int64()))


def test_null_is_neither_empty_nor_zero() -> None:
    strings = keys_of(["", None, "", None], pa.string())
    assert canonical_bytes(strings) == [b"", None, b"", None]
    assert strings.hashes[0] != strings.hashes[1]
    numbers = keys_of([0, None], pa.int64())
    assert numbers.hashes[0] != numbers.hashes[1]
    assert numbers.hashes[1] == strings.hashes[1]


def test_columns_do_not_run_into_each_other() -> None:
    batch = pa.record_batch({"a": ["ab", "a", "", None], "b": ["", "b", "ab", "ab"]})
    assert len(set(canonical_bytes(KeyColumns.from_arrow(batch, ["a", "b"])))) == 4


def test_dictionaries_are_their_values() -> None:
    plain = pa.array(["x", "y", None, "x"])
    encoded = KeyColumns.from_arrow(pa.record_batch({"k": plain.dictionary_encode()}), ["k"])
    assert canonical_bytes(encoded) == [b"x", b"y", None, b"x"]
    assert encoded.decode()[0].equals(plain)


def test_no_key_column_is_one_key_for_every_row() -> None:
    keys = KeyColumns.from_arrow(pa.record_batch({"v": [1, 2, 3]}), [])
    assert len(keys) == 3
    assert canonical_bytes(keys) == [b"", b"", b""]
    assert keys.decode() == []


def test_column_that_cannot_be_a_key_is_named() -> None:
    batch = pa.record_batch({"tags": pa.array([["a"]]), "n": [1]})
    with pytest.raises(KeyTypeError, match=r"'tags' of type list.* cannot be a key"):
        KeyColumns.from_arrow(batch, ["tags"])
    with pytest.raises(KeyTypeError, match=r"'m' is not among the columns tags, n"):
        KeyColumns.from_arrow(batch, ["m"])


def test_kind_and_types_of_a_schema() -> None:
    schema = pa.schema({"d": pa.dictionary(pa.int8(), pa.string()), "n": pa.int32()})
    assert key_types(schema, ["d"]) == pa.schema({"d": pa.string()})
    assert key_kind(key_types(schema, ["d"])) == "bytes"
    assert key_kind(key_types(schema, ["n"])) == "int64"
    assert key_kind(key_types(schema, ["d", "n"])) == "bytes"
