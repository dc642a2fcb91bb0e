"""Keys of several inputs that name or type them otherwise: equal keys meet, or the manifest is refused."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stages import Flow, manifest

from streamtopology.jobs.columnar.key_widening import common_type, keeps_keys
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.connectors.sources.schema.ddl import ddl_to_arrow
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.topology import ManifestError, Problem, parse

KEYS = range(20)
OPERATORS: dict[str, dict[str, Any]] = {
    "counts": {"run": "count"},
    "split": {"run": "count", "grouping": {"policy": "partial-key", "key": "k"}},
    "windows": {"run": "window-aggregate", "with": {"time": "at", "size": "10s", "aggregates": {"n": "count()"}}},
    "pairs": {"run": "window-join", "with": {"time": "at", "within": "5s", "select": ["a.k AS k", "b.id AS id"]}},
}


def meeting(left: str, right: str, *names: str) -> dict[str, Any]:
    """Operators over `a`, whose key is `k` of type `left`, and `b`, whose key is `id` of type `right`."""
    common = {"inputs": ["a", {"from": "b", "key": "id"}], "grouping": {"policy": "mixed", "key": "k"}}
    sources = {"a": f"k {left}, at BIGINT", "b": f"id {right}, at BIGINT"}
    marks = {name: {"column": "at", "delay": "1h"} for name in sources}
    return manifest([{"name": name} | common | OPERATORS[name] for name in names], sources, watermarks=marks)


def keys_as(ddl_type: str, name: str, offset: int = 0) -> pa.Table:
    """The keys, each once, as a column of that type."""
    type_ = ddl_to_arrow(f"x {ddl_type}").field(0).type
    values = [
        Decimal(key) if pa.types.is_decimal(type_) else float(key) if pa.types.is_floating(type_) else key + offset
        for key in KEYS
    ]
    return pa.table({name: pa.array(values, type_), "at": pa.array([1] * len(KEYS))})


def refusal(given: dict[str, Any], folder: Path) -> Problem:
    """The problem of its operator; the sources have no data."""
    with pytest.raises(ManifestError) as refused:
        check_before_start(parse(given), folder)
    (problem,) = (found for found in refused.value.problems if found.path.startswith("spec.operators"))
    return problem


def test_keys_of_two_columns_may_have_one_under_another_name(tmp_path: Path) -> None:
    """A key column of one name in both inputs made the other one's seem to be missing."""
    common = {"inputs": ["a", {"from": "b", "key": ["id", "day"]}], "grouping": {"key": ["k", "day"]}}
    sources = {"a": "k STRING, day BIGINT, at BIGINT", "b": "id STRING, day BIGINT, at BIGINT"}
    marks = {name: {"column": "at", "delay": "1h"} for name in sources}
    pairs = {"run": "window-join", "with": {"time": "at", "within": "5s"}}
    operators = [{"name": "counts", "run": "count"} | common, {"name": "pairs"} | pairs | common]
    flow = Flow(tmp_path, manifest(operators, sources, watermarks=marks))
    left, right = {"day": [1, 1], "at": [1, 1]}, {"day": [1, 2], "at": [2, 2]}
    flow.batch(a=pa.table({"k": ["x", "y"], **left}), b=pa.table({"id": ["x", "y"], **right}))
    counted = {(row["k"], row["day"]): row["count"] for row in flow.published("counts").to_pylist()}
    assert counted == {("x", 1): 2, ("y", 1): 1, ("y", 2): 1}
    assert flow.published("pairs").to_pylist() == [{"k": "x", "day": 1, "a_at": 1, "b_id": "x", "b_at": 2}]


@pytest.mark.parametrize("own", ["STRING", "BIGINT"])
@pytest.mark.parametrize("first", ["a", "b"])
def test_column_named_as_the_key_of_another_input_is_one_like_others(tmp_path: Path, own: str, first: str) -> None:
    """`b` has its key in `id`, and a column `k` of its own: its type was compared with the key's, and it was left out."""
    inputs = ["a", {"from": "b", "key": "id"}] if first == "a" else [{"from": "b", "key": "id"}, "a"]
    common = {"inputs": inputs, "grouping": {"key": "k"}}
    sources = {"a": "k STRING, at BIGINT", "b": f"id STRING, k {own}, at BIGINT"}
    marks = {name: {"column": "at", "delay": "1h"} for name in sources}
    pairs = {"name": "pairs", "run": "window-join", "with": {"time": "at", "within": "5s"}}
    operators = [{"name": "counts", "run": "count"} | common, pairs | common]
    flow = Flow(tmp_path, manifest(operators, sources, watermarks=marks))
    value: Any = "mine" if own == "STRING" else 7
    flow.batch(a=pa.table({"k": ["x"], "at": [1]}), b=pa.table({"id": ["x"], "k": [value], "at": [2]}))
    assert {row["k"]: row["count"] for row in flow.published("counts").to_pylist()} == {"x": 2}
    assert flow.published("pairs").to_pylist() == [{"k": "x", "a_at": 1, "b_id": "x", "b_k": value, "b_at": 2}]


@pytest.mark.parametrize(
    ("left", "right", "met"),
    [
        ("INT", "BIGINT", pa.int64()),
        ("BIGINT", "SMALLINT", pa.int64()),
        ("INT", "DOUBLE", pa.float64()),
        ("FLOAT", "INT", pa.float64()),
        ("SMALLINT", "FLOAT", pa.float32()),
        ("DECIMAL(6,1)", "DECIMAL(6,2)", pa.decimal128(7, 2)),
        ("BIGINT", "DECIMAL(6,2)", pa.decimal128(21, 2)),
    ],
)
def test_equal_keys_of_different_types_meet(left: str, right: str, met: pa.DataType, tmp_path: Path) -> None:
    flow = Flow(tmp_path, meeting(left, right, *OPERATORS))
    flow.batch(a=keys_as(left, "k"), b=keys_as(right, "id"))
    flow.batch(b=keys_as(right, "id"))
    flow.drain()
    for name, counted in (("counts", "count"), ("split", "count"), ("windows", "n")):
        assert {row["k"]: row[counted] for row in flow.published(name).to_pylist()} == dict.fromkeys(KEYS, 3), name
        assert flow.published(name).schema.field("k").type == met
    pairs = Counter((row["k"], row["id"]) for row in flow.published("pairs").to_pylist())
    assert pairs == {(key, key): 2 for key in KEYS}


def test_large_keys_keep_all_their_bits_where_others_are_narrower(tmp_path: Path) -> None:
    flow = Flow(tmp_path, meeting("INT", "BIGINT", "counts"))
    flow.batch(a=keys_as("INT", "k"), b=keys_as("BIGINT", "id", 2**32))
    assert {row["k"] for row in flow.state("counts")} == {*KEYS, *(2**32 + key for key in KEYS)}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("BIGINT", "DOUBLE"),
        ("BOOLEAN", "BIGINT"),
        ("STRING", "BIGINT"),
        ("STRING", "BINARY"),
        ("DATE", "TIMESTAMP"),
        ("TIMESTAMP", "TIMESTAMP_NTZ"),
        ("DECIMAL(38,0)", "DECIMAL(6,2)"),
        ("DOUBLE", "DECIMAL(6,2)"),
    ],
)
@pytest.mark.parametrize("name", OPERATORS)
def test_keys_that_cannot_meet_exactly_are_refused_with_both_types(left: str, right: str, name: str, tmp_path: Path) -> None:
    shown = [type_.replace(",", ", ") for type_ in (left, right)]
    problem = refusal(meeting(left, right, name), tmp_path)
    assert problem.path == "spec.operators[0].inputs[1].key"
    assert problem.message == (
        f"operator '{name}': key column 'k' of input 'a' is {shown[0]}, 'id' of input 'b' is {shown[1]}: no type holds the "
        "values of both exactly, so equal keys would not meet; cast one of them in the select of its source, or in a map"
    )


def test_keys_of_one_name_that_cannot_meet_are_refused_with_both_types(tmp_path: Path) -> None:
    operator = {"name": "n", "inputs": ["a", "b"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    problem = refusal(manifest([operator], {"a": "k BIGINT", "b": "k DOUBLE"}), tmp_path)
    assert problem.path == "spec.operators[0].grouping.key"
    assert "key column 'k' of input 'a' is BIGINT, 'k' of input 'b' is DOUBLE" in problem.message


def test_keys_of_an_operator_without_state_may_be_of_any_type(tmp_path: Path) -> None:
    operator = {
        "name": "n", "inputs": ["a", {"from": "b", "key": "id"}], "grouping": {"policy": "fields", "key": "k"}, "run": "map",
        "with": {"select": ['"at"']},
    }  # fmt: skip
    flow = Flow(tmp_path, manifest([operator], {"a": "k BIGINT, at BIGINT", "b": "id STRING, at BIGINT"}))
    flow.batch(a=keys_as("BIGINT", "k"), b=pa.table({"id": ["x"], "at": [2]}))
    assert flow.published("n").num_rows == len(KEYS) + 1


@pytest.mark.parametrize(("before", "after"), [("INT", "BIGINT"), ("FLOAT", "DOUBLE"), ("DECIMAL(6,1)", "DECIMAL(9,1)")])
def test_state_continues_when_its_keys_are_widened_without_change(before: str, after: str, tmp_path: Path) -> None:
    """So do the checkpoints of versions that kept the narrower of two integer types."""
    flow = Flow(tmp_path, meeting(before, before, *OPERATORS))
    flow.batch(a=keys_as(before, "k"))
    flow.start(meeting(before, after, *OPERATORS))
    flow.batch(b=keys_as(after, "id"))
    flow.drain()
    assert {row["k"]: row["count"] for row in flow.state("counts")} == dict.fromkeys(KEYS, 2)
    assert {row["k"]: row["n"] for row in flow.published("windows").to_pylist()} == dict.fromkeys(KEYS, 2)
    assert {(row["k"], row["id"]) for row in flow.published("pairs").to_pylist()} == {(key, key) for key in KEYS}


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
NUMBERS = [*INTEGERS, pa.float32(), pa.float64(), pa.decimal128(6, 1), pa.decimal128(6, 2), pa.decimal128(20, 0)]
OTHERS = [pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")]
NUMERALS = [0, 1, -1, 127, 255, 2**31 - 1, 2**32, 2**53 + 1, 2**63 - 1, 0.5, 12345.6, 12.34]


def held(type_: pa.DataType) -> list[Any]:
    """The values of `NUMERALS` that the type holds exactly."""
    values = []
    for numeral in NUMERALS:
        value = Decimal(str(numeral)) if pa.types.is_decimal(type_) else numeral
        try:
            kept = pa.array([value]).cast(type_) if isinstance(value, Decimal) else pa.array([value], type_)
        except (pa.ArrowInvalid, OverflowError, TypeError):
            continue
        if kept[0].as_py() == numeral or (pa.types.is_decimal(type_) and kept[0].as_py() == value):
            values.append(value)
    return values


@settings(max_examples=300)
@given(one=st.sampled_from(NUMBERS), other=st.sampled_from(NUMBERS))
def test_values_are_equal_in_a_common_type_if_and_only_if_they_were(one: pa.DataType, other: pa.DataType) -> None:
    met = common_type(one, other)
    assert met == common_type(other, one)
    if met is None:
        return
    left, right = pa.array(held(one), one), pa.array(held(other), other)
    hashes = [KeyColumns.from_arrays([part.cast(met)], ["k"], len(part)).hashes for part in (left, right)]
    for i, a in enumerate(left.to_pylist()):
        for j, b in enumerate(right.to_pylist()):
            assert (a == b) == (hashes[0][i] == hashes[1][j])
    if keeps_keys(one, met):
        assert KeyColumns.from_arrays([left], ["k"], len(left)).hashes.tolist() == hashes[0].tolist()


@pytest.mark.parametrize("one", [*NUMBERS, *OTHERS], ids=str)
def test_other_types_meet_only_themselves(one: pa.DataType) -> None:
    assert common_type(one, one) == one
    for other in OTHERS:
        texts = {one, other} == {pa.string(), pa.large_string()}
        assert one == other or common_type(one, other) == (pa.large_string() if texts else None)
