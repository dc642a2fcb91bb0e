"""State fields of any Arrow type: what is given is what is found, whatever happens between, in bounded memory."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stages import Flow, manifest

from streamtopology.api import Field, KeyColumns, KeyedState, KeyedStateSchema, Rows, StateError, TupleOperator
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS
from streamtopology.jobs.operators.state_objects import StateObjects
from streamtopology.jobs.state.arrow_values import ArrowValues
from streamtopology.jobs.state.encoding import decode, encode

KEY = pa.schema({"k": pa.int64()})
LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=5),
    pa.large_string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.binary(2): st.binary(min_size=2, max_size=2),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda cents: Decimal(cents).scaleb(-2)),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.duration("us"): st.timedeltas(datetime.timedelta(-(10**5)), datetime.timedelta(10**5)),
}
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def nested(parts: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    lists = parts.map(lambda part: (pa.list_(part[0]), st.lists(st.none() | part[1], max_size=3)))
    large = parts.map(lambda part: (pa.large_list(part[0]), st.lists(part[1], max_size=3)))
    fixed = parts.map(lambda part: (pa.list_(part[0], 2), st.lists(st.none() | part[1], min_size=2, max_size=2)))
    maps = parts.map(lambda part: (pa.map_(pa.string(), part[0]), st.dictionaries(st.text(max_size=3), part[1], max_size=3)))
    return lists | large | fixed | maps | st.tuples(parts, parts).map(struct)


def struct(parts: tuple[Typed, ...]) -> Typed:
    names = [f"f{number}" for number in range(len(parts))]
    kind = pa.struct([(name, part[0]) for name, part in zip(names, parts, strict=True)])
    return kind, st.fixed_dictionaries({name: st.none() | part[1] for name, part in zip(names, parts, strict=True)})


TYPED = st.recursive(st.sampled_from(sorted(LEAVES.items(), key=str)), nested, max_leaves=4)


def slots_of(state: KeyedState, keys: list[int]) -> np.ndarray:
    return state.slots(KeyColumns.from_arrow(pa.record_batch({"k": pa.array(keys, pa.int64())}), ["k"]))


def held(state: KeyedState, kind: pa.DataType) -> dict[int, Any]:
    """By key, as a class of users reads it."""
    slots = state.live()
    objects = StateObjects(state, slots)
    keys = state.keys(slots)[0].to_pylist()
    assert state.read("x", slots).type == kind
    return {key: objects.get("x", slot) for key, slot in zip(keys, slots.tolist(), strict=True)}


@given(data=st.data())
def test_values_of_every_type_outlast_batches_files_and_moves(data: st.DataObject) -> None:
    kind, values = data.draw(TYPED)
    schema = KeyedStateSchema((Field.of("x", kind),), KEY)
    state, replica = KeyedState(schema), KeyedState(schema)
    model: dict[int, Any] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        given_ = data.draw(st.dictionaries(st.integers(0, 5), st.none() | values, max_size=4))
        slots = slots_of(state, list(given_))
        objects = StateObjects(state, slots)
        for slot, value in zip(slots.tolist(), given_.values(), strict=True):
            objects.set("x", slot, value)
        objects.tuple_done()
        objects.write_back()
        if data.draw(st.booleans()):
            state.rollback()
            continue
        model |= given_
        replica.apply(decode(encode(state.delta()), "a delta"))
        state.commit()
    restored, moved = KeyedState(schema), KeyedState(schema)
    for part in state.parts(20_000):
        restored.extend(decode(encode(part), "a snapshot"))
    moved.insert(state.snapshot())
    assert all(held(each, kind) == model for each in (state, replica, restored, moved))


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.null()), pa.uuid()])
def test_type_that_state_cannot_hold_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(StateError, match=r"field 'x': state holds numbers, texts, .* is not among them"):
        Field.of("x", kind)


def test_wrong_declarations_are_refused() -> None:
    with pytest.raises(StateError, match=r"Field.of\('x', <class 'str'>\): give it a name and an Arrow type"):
        Field.of("x", str)  # pyright: ignore[reportArgumentType]
    with pytest.raises(StateError, match="a struct has the field 'a' twice"):
        Field.of("x", pa.struct([("a", pa.int8()), ("a", pa.int8())]))
    with pytest.raises(StateError, match="two underscores"):
        Field.of("__x", pa.string())
    state = KeyedState(KeyedStateSchema((Field.of("x", pa.string()),), KEY))
    with pytest.raises(StateError, match=r"'x' has no numpy column; call state.read\('x', slots\)"):
        state.column("x")
    with pytest.raises(StateError, match="no field 'y'; its fields are x"):
        state.read("y", state.live())
    with pytest.raises(StateError, match="'x' holds string, one value a slot; 1 values of type int64 for 1 slots"):
        state.write("x", slots_of(state, [1]), pa.array([1]))


OLD = pa.struct([("page", pa.string()), ("n", pa.int32())])


@pytest.mark.parametrize(
    ("before", "now", "goes_on"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.int64(), pa.float64(), False),
        (pa.float32(), pa.float64(), True),
        (pa.string(), pa.large_string(), True),
        (pa.string(), pa.binary(), False),
        (pa.decimal128(9, 2), pa.decimal128(12, 4), True),
        (pa.decimal128(9, 2), pa.decimal128(9, 4), False),
        (pa.timestamp("us"), pa.timestamp("ns"), False),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (OLD, pa.struct([("n", pa.int64()), ("page", pa.string()), ("at", pa.date32())]), True),
        (OLD, pa.struct([("url", pa.string()), ("n", pa.int32())]), False),
        (OLD, pa.struct([("page", pa.string())]), False),
        (pa.list_(OLD), pa.list_(pa.struct([*OLD, pa.field("at", pa.date32())])), True),
        (pa.list_(OLD), pa.list_(pa.struct([("page", pa.string())])), False),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int16(), 2), True),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3), False),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int8()), False),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int64()), True),
        (pa.map_(pa.int8(), pa.int8()), pa.map_(pa.int64(), pa.int8()), False),
    ],
)
def test_later_version_takes_over_what_loses_nothing(before: pa.DataType, now: pa.DataType, goes_on: bool) -> None:
    """A renamed field of a struct would be NULL without a word."""
    state = KeyedState(KeyedStateSchema((Field.of("x", before),), KEY))
    slots_of(state, [1])
    later = KeyedStateSchema((Field("n", np.dtype(np.int64), added=True), Field.of("x", now)), KEY)
    if not goes_on:
        with pytest.raises(StateError, match="do not fit state of"):
            later.fitted(state.snapshot())
        return
    taken = KeyedState(later)
    taken.restore(later.fitted(state.snapshot()))
    assert taken.snapshot().to_pylist() == [{"k": 1, "n": 0, "x": None}]


def test_values_are_the_same_in_a_wider_type() -> None:
    before, now = pa.list_(OLD), pa.list_(pa.struct([("at", pa.date32()), ("page", pa.string()), ("n", pa.int64())]))
    state = KeyedState(KeyedStateSchema((Field.of("x", before),), KEY))
    state.write("x", slots_of(state, [1, 2]), pa.array([[{"page": "a", "n": 1}, None], []], before))
    later = KeyedStateSchema((Field.of("x", now),), KEY)
    taken = KeyedState(later)
    taken.restore(later.fitted(state.snapshot()))
    assert taken.snapshot().to_pylist() == [{"k": 1, "x": [{"at": None, "page": "a", "n": 1}, None]}, {"k": 2, "x": []}]


def test_field_that_is_new_is_null_and_one_that_is_gone_is_refused() -> None:
    state = KeyedState(KeyedStateSchema((Field.of("page", pa.string()),), KEY))
    slots_of(state, [1])
    both = KeyedStateSchema((Field.of("page", pa.string()), Field.of("last", pa.date32())), KEY)
    assert both.fitted(state.snapshot()).to_pylist() == [{"k": 1, "page": None, "last": None}]
    with pytest.raises(StateError, match="do not fit"):
        KeyedStateSchema((Field.of("url", pa.string()),), KEY).fitted(state.snapshot())


@pytest.mark.parametrize(("keys", "hot", "size"), [(20_000, 4_000, 200), (2_000, 100, 2_000), (20_000, 5, 100_000)])
def test_memory_stays_near_that_of_the_values(keys: int, hot: int, size: int) -> None:
    """Hot keys get larger values over and over, among others that stay."""
    rng = np.random.default_rng(1)
    values = ArrowValues(pa.string())
    places = values.append(pa.array(["x" * 100] * keys))
    values.commit()
    for _ in range(60):
        touched = rng.permutation(hot)
        places[touched] = values.append(pa.array([f"{key:0{size}d}" for key in touched]))
        values.commit()
        if values.wants_sweep:
            places = values.sweep(places)
    alive = values.take(places)
    assert alive.to_pylist() == [f"{key:0{size}d}" if key < hot else "x" * 100 for key in range(keys)]
    assert values.nbytes <= 1.5 * alive.nbytes + hot * size + (1 << 20)


def test_sweep_copies_a_bounded_part_of_a_large_state() -> None:
    values = ArrowValues(pa.binary())
    parts = [values.append(pa.array([bytes(1 << 18)] * 40)) for _ in range(12)]
    places = np.concatenate(parts)
    values.commit()
    living = places.copy()
    while len(living) > 200:
        living = np.delete(living, np.arange(0, len(living), 3))
    before = values.nbytes
    now = values.sweep(living)
    moved = (now != living).sum() * (1 << 18)
    assert 0 < moved <= 4 * before
    assert values.take(now).equals(pa.array([bytes(1 << 18)] * len(living)))


class Pages(TupleOperator):
    """The pages of a key, by name and in their order."""

    fields = (
        Field("n", np.dtype(np.int64)),
        Field.of("pages", pa.list_(pa.string())),
        Field.of("counts", pa.map_(pa.string(), pa.int64())),
        Field.of("last", pa.struct([("page", pa.string()), ("n", pa.int8())])),
    )
    output = pa.schema([("k", pa.int64()), ("pages", pa.list_(pa.string())), ("n", pa.int64())])

    def process_tuple(self, row: dict[str, Any], state: Any) -> dict[str, Any]:
        page, state["n"] = row["page"], state["n"] + 1
        if state["pages"] is None:
            state["pages"], state["counts"] = [], {}
        state["pages"].append(page)
        state["counts"][page] = state["counts"].get(page, 0) + 1
        state["last"] = {"page": page, "n": state["n"] if page != "far" else 300}
        if page == "bad":
            raise ValueError("a bad page")
        if page == "number":
            state["pages"].append(5)
        return {"k": row["k"], "pages": state["pages"], "n": state["counts"][page]}


def operated(pages: list[tuple[int, str]], dead_letter: bool = True) -> tuple[Pages, KeyedState, list[dict[str, Any]]]:
    operator = Pages()
    batch = pa.record_batch({"k": pa.array([key for key, _ in pages]), "page": pa.array([page for _, page in pages])})
    operator.prepare({"s": batch.schema}, ("k",))
    assert isinstance(operator.state, KeyedStateSchema)
    state = KeyedState(operator.state)
    rows = operator.accept(Rows.of(batch, "s", ("k",)), state, dead_letter)
    return operator, state, [] if rows is None else rows.to_pylist()


def test_lists_and_maps_of_the_state_are_changed_in_place() -> None:
    _, state, emitted = operated([(1, "a"), (2, "b"), (1, "a")])
    assert [row["pages"] for row in emitted] == [["a"], ["b"], ["a", "a"]]
    assert state.snapshot().to_pylist() == [
        {"k": 1, "n": 2, "pages": ["a", "a"], "counts": [("a", 2)], "last": {"page": "a", "n": 2}},
        {"k": 2, "n": 1, "pages": ["b"], "counts": [("b", 1)], "last": {"page": "b", "n": 1}},
    ]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("bad", "Pages raised ValueError: a bad page on key k=1"),
        ("number", "state field 'pages' holds list<item: string>, which cannot be ['a', 'number', 5] of type list: "),
        (
            "far",
            "state field 'last' holds struct<page: string, n: int8>, which cannot be {'page': 'far', 'n': 300} of type dict",
        ),
    ],
)
def test_failed_tuple_leaves_lists_and_maps_as_they_were(page: str, why: str) -> None:
    operator, state, _ = operated([(1, "a"), (1, page), (2, page)])
    assert why in operator.set_aside[0].reason
    assert len(operator.set_aside) == 2
    assert state.snapshot().to_pylist() == [
        {"k": 1, "n": 1, "pages": ["a"], "counts": [("a", 1)], "last": {"page": "a", "n": 1}}
    ]


@pytest.mark.parametrize("key", [pa.struct([("n", pa.int64())]), pa.time64("us")])
def test_map_is_a_dict_where_a_dict_can_have_its_keys(key: pa.DataType) -> None:
    kind = pa.map_(key, pa.map_(pa.string(), pa.time64("us")))
    state = KeyedState(KeyedStateSchema((Field.of("x", kind),), KEY))
    slots = slots_of(state, [1])
    name: Any = {"n": 1} if pa.types.is_struct(key) else datetime.time(1)
    state.write("x", slots, pa.array([[(name, [("a", datetime.time(2))])]], kind))
    inner = {"a": datetime.time(2)}
    objects = StateObjects(state, slots)
    assert objects.get("x", int(slots[0])) == ([(name, inner)] if pa.types.is_struct(key) else {name: inner})


def test_untouched_values_are_not_written_again() -> None:
    """They may be such as Python cannot hold, as a time after the year 9999."""
    state = KeyedState(KeyedStateSchema((Field.of("x", pa.list_(pa.timestamp("us"))),), KEY))
    slots = slots_of(state, [1])
    far = pa.array([[2**62]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us")))
    state.write("x", slots, far)
    objects = StateObjects(state, slots)
    assert objects.get("x", int(slots[0]))[0].startswith("1")
    objects.tuple_done()
    objects.write_back()
    assert state.read("x", slots).equals(far)


def test_typed_state_goes_through_a_topology(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    own = {"name": "own", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "own.py:Last"}
    given_ = manifest([own], {"s": "k BIGINT, page STRING"}, onBadTuple="deadLetter")
    flow = Flow(tmp_path, given_)
    flow.batch(s=pa.table({"k": [1, 2, 1], "page": ["a", "b", "c"]}))
    flow.batch(s=pa.table({"k": [1, 2], "page": ["d", "x"]}))
    flow.start(given_)
    flow.batch(s=pa.table({"k": [1], "page": ["e"]}))
    published = [(row["k"], row["pages"]) for row in flow.published("own").to_pylist()]
    assert sorted(published) == [(1, "a"), (1, "a c"), (1, "a c d"), (1, "a c d e"), (2, "b")]
    (letter,) = flow.published(DEAD_LETTERS).to_pylist()
    assert "'pages' holds list<item: string>, which cannot be ['b', b'x']" in letter["reason"]


OWN = """
import pyarrow as pa
from streamtopology.api import Field, TupleOperator

class Last(TupleOperator):
    fields = (Field.of("pages", pa.list_(pa.string())),)
    output = pa.schema([("k", pa.int64()), ("pages", pa.string())])

    def process_tuple(self, row, state):
        page = row["page"]
        state["pages"] = [*(state["pages"] or []), page if page != "x" else b"x"]
        return {"k": row["k"], "pages": " ".join(state["pages"])}
"""
