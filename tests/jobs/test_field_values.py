"""Users' writes to the state through numpy: a field holds the value that plain Python computes, or OverflowError names it."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.stages import Flow, manifest

from streamtopology.api import Field, KeyedState, KeyedStateSchema, TupleState
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS
from streamtopology.jobs.operators.state_objects import StateObjects
from streamtopology.jobs.state.field_values import FieldValues

INTEGERS = ("i1", "u1", "i2", "i4", "u4", "i8", "u8")
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda one, other: one + other,
    "subtract": lambda one, other: one - other,
    "multiply": lambda one, other: one * other,
}


def near_the_ends(dtype: str) -> st.SearchStrategy[int]:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return st.sampled_from([low, low + 1, 0, 1, high // 2, high - 1, high]) | st.integers(low, high)


def case_of(dtype: str) -> st.SearchStrategy[tuple[str, list[int], list[int]]]:
    values = st.lists(near_the_ends(dtype), min_size=4, max_size=4)
    return st.tuples(st.just(dtype), values, st.lists(near_the_ends(dtype) | st.integers(0, 3), min_size=4, max_size=4))


CASE = st.sampled_from(INTEGERS).flatmap(case_of)


def written(dtype: str, before: list[int], write: Callable[[FieldValues], Any]) -> list[int] | None:
    """The values after `write`; None if it was refused, which changes none."""
    values = np.array(before, dtype)
    try:
        write(FieldValues.of(values, "n"))
    except OverflowError:
        refused = values.tolist()
    else:
        return values.tolist()
    assert refused == before
    return None


def held(dtype: str, values: list[int]) -> list[int] | None:
    bounds = np.iinfo(dtype)
    return values if all(int(bounds.min) <= value <= int(bounds.max) for value in values) else None


@given(CASE, st.sampled_from(list(OPERATIONS)), st.booleans())
def test_arithmetic_in_place_is_pythons_or_refused(
    case: tuple[str, list[int], list[int]], operation: str, is_assigned: bool
) -> None:
    dtype, before, operands = case
    right = [OPERATIONS[operation](one, other) for one, other in zip(before, operands, strict=True)]

    def write(values: FieldValues) -> None:
        ufunc, other = getattr(np, operation), np.array(operands, dtype)
        if is_assigned:
            values[:] = ufunc(values[np.arange(4)], other)
        else:
            ufunc(values, other, out=values)

    assert written(dtype, before, write) == held(dtype, right)


@given(CASE, st.lists(st.integers(0, 3), min_size=4, max_size=4), st.sampled_from(["add", "subtract"]))
def test_sums_at_places_are_pythons_or_refused(
    case: tuple[str, list[int], list[int]], places: list[int], operation: str
) -> None:
    dtype, before, operands = case
    right = list(before)
    for place, operand in zip(places, operands, strict=True):
        right[place] = OPERATIONS[operation](right[place], operand)
    made = written(dtype, before, lambda values: getattr(np, operation).at(values, places, np.array(operands, dtype)))
    assert made == held(dtype, right)


@given(st.sampled_from([*INTEGERS, "?"]), st.sampled_from([*INTEGERS, "f8"]), st.data())
def test_assigned_values_are_kept_or_refused(dtype: str, given_as: str, data: st.DataObject) -> None:
    few = st.floats() | st.integers(-3, 300).map(float) if given_as == "f8" else near_the_ends(given_as)
    values = np.array(data.draw(st.lists(few, min_size=2, max_size=2)), given_as)
    column = np.zeros(2, dtype)
    try:
        FieldValues.of(column, "n")[:] = values
    except OverflowError:
        with np.errstate(all="ignore"):
            assert values.astype(dtype).tolist() != values.tolist()
    else:
        assert column.tolist() == values.tolist()


Write = Callable[[Any], Any]


def augmented(code: str) -> Write:
    return lambda values: exec(code, {"v": values, "np": np, "D": Decimal, "inf": math.inf})


@pytest.mark.parametrize(
    ("dtype", "code"),
    [
        ("i1", "v[0] += 100"), ("i1", "v += 100"), ("i1", "v[[0, 0]] += 28"), ("i1", "v.fill(300)"), 
        ("i1", "v.put([0], [300])"),
        ("i1", "np.put(v, [0], [300])"), ("i1", "np.copyto(v, np.array([1, 300]))"), ("i1", "np.putmask(v, v > 0, [300])"),
        ("i1", "v[0] = D('1.5')"), ("i1", "v[0] = 2**70"), ("i1", "v[:] = [1, 300]"), ("i1", "np.maximum.at(v, [0], 300)"),
        ("i8", "v[0] = float('nan')"), ("i8", "v[0] = inf"), ("i8", "v[0] = 2.0**63"), ("i8", "v[0] = '5'"),
        ("i1", "v |= np.array([256, 1])"), ("i1", "np.maximum(v, [1, 300], out=v)"),
        ("i1", "np.sum([[200, 0]], axis=0, out=v)"),
        ("i1", "np.add.reduce([[200, 0]], axis=0, out=v)"), ("i1", "v[0] = -128; v //= -1"),
        ("u8", "v -= 101"), ("u8", "np.add.at(v, [0, 0], np.uint64(2**63))"), ("?", "v[0] = 2"), ("?", "v[0] = 0.5"),
        ("f4", "v[0] = 1e300"), ("f4", "v[:] = [1.0, -1e300]"), ("f4", "v[0] *= 1e300"), ("f4", "v *= 1e300"),
        ("f4", "v *= np.full(2, 1e300)"), ("f4", "np.add.at(v, [0, 1], 1e300)"), ("f2", "v[0] = 10**6"), ("f8", "v[0] = None"),
        ("f8", "v[0] = 10**400"),
        ("u8", "v[0] -= 101"), ("u8", "v[0] -= np.uint64(101)"), ("u8", "v[0] = np.uint64(1) - v[0]"), ("i8", "v[0] **= 40"),
        ("i8", "v[0] += np.int64(2**63 - 1)"), ("i1", "v[0] = v[0] + np.int8(27) + np.int8(1)"), ("i1", "v[0] = v.max() + 28"),
        ("i1", "v[0] = v.take(0) + 28"),
        ("u8", "v[:] = np.ones(2, np.uint64) - v[0]"), ("i8", "v[:] = v[0] * np.full(2, 2**60)"),
        ("i1", "v[0] = np.take(v, 0) + 28"), ("i1", "v[:] = (v + 27) + 1"),
        ("i1", "np.copyto(dst=v, src=np.array([300, 1]), casting='unsafe')"), ("i1", "v.flat[0] = np.int64(300)"),
        ("i1", "v.flat = [300, 1]"), ("i1", "np.take([300, 1], [0, 0], out=v)"), ("i1", "v <<= 1"),
        ("i1", "np.left_shift.at(v, [0], 1)"), ("i8", "v <<= 2**40"), ("i1", "np.lcm(v, 99, out=v)"),
        ("i1", "v[0] = -128; v[:] = divmod(v, -1)[0]"), ("i1", "v[0] = v @ v"), ("i1", "v[0] = np.dot(v, v)"),
        ("i1", "v[0] = v.dot(v)"), ("i1", "v[:] = np.convolve(v, v, 'same')"), ("i1", "v[:] = np.einsum('i,i->i', v, v)"),
        ("i1", "v[:] = np.outer(v, v)[0]"), ("i1", "v[:] = np.multiply.outer(v, v)[0]"), ("i1", "v[0] = np.ptp(v) + 128"),
        ("i8", "v[:] = 2**62; v[0] = v.sum()"), ("i8", "v[:] = 2**62; v[:] = v.cumsum()"), ("i8", "v[0] = np.prod(v ** 5)"),
        ("i8", "v[:] = 2**32; v[0] = v @ v"), ("i8", "v[:] = 2**62; v[0] = sum(v)"), ("i1", "np.vecdot(v, v, out=v[0, ...])"),
        ("f4", "v[:] = 3e38; v[0] = v.sum()"), ("f4", "v[:] = 3e38; v[:] = v.cumsum()"), ("f2", "v[0] = np.dot(v, v * 10)"),
    ],
)  # fmt: skip
def test_value_that_a_field_cannot_hold_is_refused(dtype: str, code: str) -> None:
    with pytest.raises(
        OverflowError, match=r"state field '(n|\(read singly\))'( is|: ).* cannot hold.*; declare another dtype"
    ):
        augmented(code)(FieldValues.of(np.array([1 if dtype == "?" else 100] * 2, dtype), "n"))


@pytest.mark.parametrize(
    ("dtype", "code", "right"),
    [
        ("i1", "v[0] += 27", [127, 100]), ("i1", "v[:] = [1.0, -128]", [1, -128]), ("i1", "v[0] = D(5)", [5, 100]),
        ("i1", "np.add.at(v, [0, 0, 0], [100, -100, 3])", [103, 100]), ("i1", "v //= 3", [33, 33]),
        ("i1", "v &= np.array([3, 255])", [0, 100]), ("i1", "np.minimum(v, [1, 300], out=v)", [1, 100]),
        ("i1", "np.maximum(v, [1, 300], out=v, where=[True, False])", [100, 100]),
        ("i1", "np.add(v, 100, out=v, where=[False, False])", [100, 100]), ("u1", "v <<= 1", [200, 200]),
        ("?", "v[0] = 0", [False, True]), ("?", "v &= False", [False, False]), ("f4", "v[0] = inf", [math.inf, 100.0]),
        ("f8", "v[0] = D('0.5')", [0.5, 100.0]), ("f8", "v *= 1e307", [1e309, 1e309]),
        ("i8", "v += np.array([1, 2])", [101, 102]),
        ("i8", "v[:] = [v.sum(), v.prod()]", [200, 10_000]), ("i1", "v[:] = v.cumsum() - 100", [0, 100]),
        ("i1", "v[:] = [v @ [0, 1], np.dot(v, [1, 0])]", [100, 100]),
        ("u8", "v[0] = np.uint64(2**64 - 1) - v[0]", [2**64 - 101, 100]),
        ("i1", "v[:] = np.full(2, 3) - v[0]", [-97, -97]), ("i1", "v.flat[0] = 5", [5, 100]),
        ("i1", "v[v == v[0]] = 7", [7, 7]),
        ("f4", "v[0] = v.sum() / 3", [np.float32(200 / 3), 100.0]), ("i1", "v[:] = divmod(v, 7)[1]", [2, 2]),
        ("u1", "v[:] = (v.astype(np.uint8) * np.uint8(3))", [44, 44]),  # converted values may wrap
    ],
)  # fmt: skip
def test_value_that_a_field_holds_is_written(dtype: str, code: str, right: list[Any]) -> None:
    values = np.array([1 if dtype == "?" else 100] * 2, dtype)
    with np.errstate(over="ignore"):
        augmented(code)(FieldValues.of(values, "n"))
    assert values.tolist() == right


def test_reading_is_numpys() -> None:
    values = FieldValues.of(np.array([3, 1, 2], "i1"), "n")
    assert (values.sum(), values.max(), values[values > 1].tolist()) == (6, 3, [3, 2])
    assert type(values > 1) is type(values / 2) is type(np.asarray(values)) is type(values.astype(np.int64)) is np.ndarray
    assert (np.argsort(values).tolist(), pa.array(values[[0, 1]]).to_pylist()) == ([1, 2, 0], [3, 1])
    assert (values[0].item(), json.dumps(values[0]), f"{values[0]:03d}", {3: 5}[values[0]]) == (3, "3", "003", 5)
    assert (np.log2(values[1]), values[0] / 2, 2.5 * values[0], np.float32(0.5) + values[0]) == (0, 1.5, 7.5, 3.5)
    assert values[0] * np.timedelta64(2, "s") == np.timedelta64(6, "s")
    assert (pow(values[0], 2, 5), values[0] * [7], [5] * values[1], -values[0], 2 ** values[0]) == (4, [7] * 3, [5], -3, 8)
    assert (values.mean(), values.std(), np.median(values), np.bincount(values).tolist()) == (
        2, np.std([3, 1, 2]), 2, [0, 1, 1, 1]
    )  # fmt: skip


SCALARS = {"add", "sub", "mul", "floordiv", "mod", "lt", "le", "eq", "ne", "and_", "or_", "xor"}


@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.sampled_from(sorted(SCALARS)), st.booleans(), st.data())
def test_single_integers_are_pythons_next_to_any_of_numpys(
    dtype: str, other: str, operation: str, is_swapped: bool, data: st.DataObject
) -> None:
    one, two = data.draw(near_the_ends(dtype)), data.draw(near_the_ends(other))
    run = getattr(operator, operation)
    read, given_ = FieldValues.of(np.array([one], dtype), "n")[0], np.dtype(other).type(two)
    pair, plain = ((given_, read), (two, one)) if is_swapped else ((read, given_), (one, two))
    assume(operation not in ("floordiv", "mod") or plain[1])
    assert run(*pair) == run(*plain)


def test_fields_of_one_key_are_checked_whatever_their_shape() -> None:
    fields = tuple(
        Field(name, np.dtype(name), shape) for name, shape in (("i1", (2,)), ("?", ()), ("f4", ()), ("f8", ()), ("i8", ()))
    )
    state = KeyedState(KeyedStateSchema(fields, pa.schema([("k", pa.int64())])))
    one = TupleState(state, 0, StateObjects(state, np.array([0])))
    for field, value in [("i1", [1, 300]), ("?", 2), ("f4", 1e300), ("f8", "5"), ("i8", 0.5), ("i8", "5")]:
        with pytest.raises(OverflowError, match="cannot hold"):
            one[field] = value
    one.update({"i1": [1, 2], "?": 1, "f4": math.inf, "f8": Decimal("0.5"), "i8": 5.0})
    assert [one[name] if name != "i1" else one[name].tolist() for name in one.values()] == [[1, 2], True, math.inf, 0.5, 5]


OWN = """
import numpy as np
import pyarrow as pa
from streamtopology.api import Field, Operator, TupleOperator

COUNTED = pa.schema([("k", pa.int64()), ("n", pa.int64())])


class Shaped(TupleOperator):
    fields = (Field("n", np.int8, shape=2),)
    output = COUNTED

    def process_tuple(self, row, state):
        state["n"] += row["v"]
        return {"k": row["k"], "n": state["n"][1]}


class Vectors(Operator):
    fields = (Field("n", np.int8),)
    output = COUNTED

    def process(self, rows, state):
        slots = state.slots(rows.keys)
        np.add.at(state.column("n"), slots, rows.column("v").to_numpy())
        return pa.record_batch({"k": rows.column("k"), "n": pa.array(state.column("n")[slots])})


class OneByOne(Operator):
    fields = (Field("n", np.int8),)
    output = COUNTED

    def process(self, rows, state):
        slots = state.slots(rows.keys)
        for slot, value in zip(slots, rows.column("v").to_numpy().astype(np.int8)):
            state.column("n")[slot] += value
        return pa.record_batch({"k": rows.column("k"), "n": pa.array(state.column("n")[slots])})
"""


@pytest.mark.parametrize("cls", ["Shaped", "Vectors", "OneByOne"])
def test_tuple_that_a_field_cannot_hold_is_set_aside(tmp_path: Path, cls: str) -> None:
    (tmp_path / "own.py").write_text(OWN)
    own = {"name": "own", "inputs": ["s"], "grouping": {"policy": "fields", "key": "k"}, "run": f"own.py:{cls}"}
    flow = Flow(tmp_path, manifest([own], {"s": "k BIGINT, v BIGINT"}, onBadTuple="deadLetter"))
    flow.batch(s=pa.table({"k": [1, 2, 1], "v": [100, 1, 28]}))
    flow.batch(s=pa.table({"k": [1], "v": [27]}))
    assert sorted((row["k"], row["n"]) for row in flow.published("own").to_pylist()) == [(1, 100), (1, 127), (2, 1)]
    (letter,) = flow.published(DEAD_LETTERS).to_pylist()
    assert "state field 'n' is int8 and cannot hold 128; declare another dtype" in letter["reason"]
    assert '"v": 28' in letter["tuple"] or '"v":28' in letter["tuple"]
