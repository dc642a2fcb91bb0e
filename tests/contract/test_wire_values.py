"""The codec of records: what is written comes back, and what is wrong is named by its path."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopology.contract.wire_values import SPARSE, AnyFloat, Form, WireError, from_wire, named, to_wire


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Size(Enum):
    SMALL = "s"


@dataclass(frozen=True)
class Pair:
    """A class with a form of its own."""

    left: int
    right: int

    def to_wire(self) -> list[int]:
        return [self.left, self.right]

    @staticmethod
    def from_wire(wire: Sequence[int]) -> Pair:
        left, right = wire
        return Pair(left, right)


@dataclass(frozen=True)
class Point:
    x: float
    name: str = ""

    def __post_init__(self) -> None:
        if self.x == 13:
            raise ValueError("13 is no place")


@dataclass(frozen=True)
class Exact:
    EXACT: ClassVar[bool] = True

    x: int


@dataclass(frozen=True)
class Everything:
    flag: bool
    whole: int
    number: float
    text: str
    colour: Colour
    size: Size
    mode: Literal["Clone", "Own"]
    maybe: int | None
    point: Point
    points: tuple[Point, ...]
    two: tuple[str, int]
    some: Sequence[float]
    listed: list[float]
    by_name: Mapping[str, Point]
    by_number: Mapping[int, tuple[str, ...]]
    anything: Mapping[str, Any]
    pair: Pair
    exact: Exact
    time: AnyFloat
    hexadecimal: Annotated[int, Form(hex, lambda text: int(text, 16), str)]
    class_name: str
    phase: str = field(metadata=named("state"))
    rare: tuple[Point, ...] = field(default=(), metadata=SPARSE)
    rarer: Mapping[str, int] = field(default_factory=dict[str, int], metadata=SPARSE)


EVERYTHING = Everything(
    flag=True, whole=3, number=0.5, text="é", colour=Colour.RED, size=Size.SMALL, mode="Own", maybe=None, point=Point(1.0, "a"),
    points=(Point(2.0),), two=("a", 1), some=(1.0, 2.0), listed=[3.0], by_name={"a": Point(4.0)}, by_number={7: ("x", "y")},
    anything={"a": [1, {"b": None}]}, pair=Pair(1, 2), exact=Exact(1), time=float("-inf"), hexadecimal=255, class_name="large",
    phase="running",
)  # fmt: skip


def sent(record: object) -> Any:
    return json.loads(json.dumps(to_wire(record)))


def test_record_comes_back_from_json() -> None:
    assert from_wire(Everything, sent(EVERYTHING)) == EVERYTHING
    full = replace(EVERYTHING, maybe=4, rare=(Point(1.0),), rarer={"a": 1})
    assert from_wire(Everything, sent(full)) == full


def test_fields_have_their_names_and_forms_in_json() -> None:
    wire = sent(EVERYTHING)
    assert (wire["class"], wire["state"], wire["colour"], wire["size"], wire["pair"]) == (
        "large",
        "running",
        "red",
        "s",
        [1, 2],
    )
    assert (wire["by_number"], wire["hexadecimal"]) == ({"7": ["x", "y"]}, "0xff")
    assert not {"rare", "rarer"} & wire.keys()


def test_field_left_out_has_its_default_and_a_field_of_tomorrow_is_passed_over() -> None:
    assert from_wire(Everything, {**sent(EVERYTHING), "rare": None, "tomorrow": 1}) == EVERYTHING


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"flag": 1}, "flag is 1, not true or false"),
        ({"whole": True}, "whole is True, not a whole number of at most 64 bits"),
        ({"whole": 3.0}, "whole is 3.0, not a whole number of at most 64 bits"),
        ({"whole": -(2**63) - 1}, "whole is -9223372036854775809, not a whole number of at most 64 bits"),
        ({"number": "0.5"}, "number is '0.5', not a finite number"),
        ({"number": float("nan")}, "number is nan, not a finite number"),
        ({"number": 2**63}, "number is 9223372036854775808, not a finite number"),
        ({"text": None}, "text is None, not a text"),
        ({"colour": "green"}, "colour is 'green', not one of red, blue"),
        ({"colour": ["red"]}, "colour is ['red'], not one of red, blue"),
        ({"mode": "Lend"}, "mode is 'Lend', not one of Clone, Own"),
        ({"point": []}, "point is [], not a JSON object"),
        ({"point": {"name": ""}}, "point.x is missing"),
        ({"point": {"x": 13, "name": ""}}, "point does not hold: 13 is no place"),
        ({"points": [{"x": 1, "name": ""}, {"x": 1, "name": 2}]}, "points[1].name is 2, not a text"),
        ({"points": {}}, "points is {}, not a list"),
        ({"two": ["a"]}, "two is ['a'], not a list of 2"),
        ({"by_name": {"a": {"x": "b", "name": ""}}}, "by_name.a.x is 'b', not a finite number"),
        ({"by_number": {"a": []}}, "by_number.a is no whole number, as names here are"),
        ({"by_number": {"7": ["x", 1]}}, "by_number.7[1] is 1, not a text"),
        ({"pair": [1]}, "pair does not hold: not enough values to unpack (expected 2, got 1)"),
        ({"exact": {"x": 1, "y": 2}}, "exact has the fields ['x', 'y'], it should have ['x']"),
        ({"hexadecimal": 255}, "hexadecimal is 255, not a text"),
        ({"hexadecimal": "zz"}, "hexadecimal does not hold: invalid literal for int() with base 16: 'zz'"),
        ({"text": "x" * 100, "maybe": "y" * 100}, f"maybe is '{'y' * 59}, not a whole number of at most 64 bits"),
    ],
)
def test_wrong_value_is_named_by_its_path(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(WireError) as refused:
        from_wire(Everything, {**sent(EVERYTHING), **change})
    assert str(refused.value) == problem


@pytest.mark.parametrize("name", sent(EVERYTHING))
def test_missing_field_is_named(name: str) -> None:
    with pytest.raises(WireError, match=rf"^{name} is missing$"):
        from_wire(Everything, {key: value for key, value in sent(EVERYTHING).items() if key != name})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(name=st.sampled_from(sorted(sent(EVERYTHING))), value=JSON)
def test_any_json_is_read_or_refused(name: str, value: Any) -> None:
    refused = ""
    try:
        from_wire(Everything, {**sent(EVERYTHING), name: value})
    except WireError as wrong:
        refused = str(wrong)
    assert not refused or refused.startswith(name)
