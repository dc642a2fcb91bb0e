"""Column types and their values: ordinary ones, and those that ordinary data has now and then."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

Family = Literal["integer", "float", "text", "time", "other", "nested"]

# A moment (epoch seconds) around which times lie.
NOON = 1_800_000_000
# The years 1 to 9999, as event times can be.
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
# Characters of a long text.
LONG = 100_000


@dataclass(frozen=True)
class Kind:
    """A type: its Spark DDL, its Arrow type, how a value is drawn, and the types a file may hold it in.

    adds_up: no sum of its values leaves 64 bits, or depends on their order.
    """

    ddl: str
    arrow: pa.DataType
    family: Family
    draw: Callable[[Random], Any]
    stored: tuple[pa.DataType, ...] = ()
    adds_up: bool = True

    @property
    def is_number(self) -> bool:
        return self.family in ("integer", "float")

    @property
    def can_be_key(self) -> bool:
        return self.family != "nested"


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind


def _one_of(*values: Any) -> Callable[[Random], Any]:
    return lambda random: random.choice(values)


def _integer(bits: int) -> Callable[[Random], int]:
    """Small ones, so that sums fit, and now and then an extreme; those of 64 bits stay small enough to be added up."""
    extremes = (-(2 ** min(bits - 1, 56)), 2 ** min(bits - 1, 56) - 1)
    return lambda random: random.choice(extremes) if random.random() < 0.1 else random.randint(-100, 100)


ODD_FLOATS = (math.nan, math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0)


def _float(random: Random) -> float:
    """Multiples of 1/8, whose sums are exact in any order, and what is no number."""
    return random.choice(ODD_FLOATS) if random.random() < 0.3 else random.randint(-1000, 1000) / 8


_SHORT = ("", "", " ", "a", "A", "ä", "名", "🙂", "NULL", "a\0", "'", '"', "x" * 31, "x" * 33)


def _any_float(random: Random) -> float:
    return random.choice((*ODD_FLOATS, 1.7e308, -1.7e308, 5e-324, 0.1, random.uniform(-200, 200), random.uniform(-1e9, 1e9)))


def _text(random: Random) -> str:
    if random.random() < 0.02:
        return random.choice("xy") * LONG
    return random.choice(_SHORT) if random.random() < 0.4 else f"t{random.randint(0, 30)}"


def _day(random: Random) -> int:
    """Days since 1970; of the years 1, 9999, and of some that Python and ISO 8601 do not know."""
    return random.choice((-719_162, -1, 2_932_896, -800_000, 4_000_000, 20_541 + random.randint(-3, 3)))


def _moment(random: Random) -> int:
    """Microseconds since 1970, with the same extremes."""
    if random.random() < 0.1:
        return random.choice((FIRST_SECOND * 10**6, -1, LAST_SECOND * 10**6 + 999_999, -(10**17), 3 * 10**17))
    return NOON * 10**6 + random.randint(-(10**8), 10**8)


def _decimal(digits: int, scale: int) -> Callable[[Random], Decimal]:
    most = 10**digits - 1
    return lambda random: _scaled(random.choice((0, 1, -1, 15, most, -most, random.randint(-999, 999))), scale)


def _scaled(value: int, scale: int) -> Decimal:
    """Exact, whatever the precision of the context."""
    return Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -scale))


_INT, _TEXT = pa.int32(), pa.string()
_ZONED, _PLAIN = pa.timestamp("us", "UTC"), pa.timestamp("us")

BIGINT = Kind("BIGINT", pa.int64(), "integer", _integer(64), (pa.int64(), pa.int32(), pa.uint16()))
DOUBLE = Kind("DOUBLE", pa.float64(), "float", _float, (pa.float64(), pa.float32()))
STRING = Kind("STRING", _TEXT, "text", _text, (_TEXT, pa.large_string(), pa.dictionary(pa.int32(), _TEXT)))
# Texts short enough for top-k.
SHORT = Kind("STRING", _TEXT, "text", lambda random: random.choice((*_SHORT, f"t{random.randint(0, 30)}")), (_TEXT,))
WIDE = Kind("BIGINT", pa.int64(), "integer", lambda random: random.getrandbits(64) - (1 << 63), adds_up=False)
ANY_DOUBLE = Kind("DOUBLE", pa.float64(), "float", _any_float, adds_up=False)
BOOLEAN = Kind("BOOLEAN", pa.bool_(), "other", _one_of(True, False))
TIMESTAMP = Kind("TIMESTAMP", _ZONED, "time", _moment, (_ZONED, pa.timestamp("us", "Europe/Berlin"), _PLAIN))
TIMESTAMP_NTZ = Kind("TIMESTAMP_NTZ", _PLAIN, "time", _moment)
DATE = Kind("DATE", pa.date32(), "time", _day)

TINYINT = Kind("TINYINT", pa.int8(), "integer", _integer(8))
SMALLINT = Kind("SMALLINT", pa.int16(), "integer", _integer(16), (pa.int16(), pa.uint8()))
INT = Kind("INT", _INT, "integer", _integer(32), (_INT, pa.int8()))
FLOAT = Kind("FLOAT", pa.float32(), "float", _float)
DECIMAL_6_2 = Kind("DECIMAL(6,2)", pa.decimal128(6, 2), "other", _decimal(6, 2), (pa.decimal128(6, 2), pa.decimal128(4, 1)))
KINDS: tuple[Kind, ...] = (
    BIGINT,
    DOUBLE,
    STRING,
    SHORT,
    BOOLEAN,
    WIDE,
    ANY_DOUBLE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DATE,
    TINYINT,
    SMALLINT,
    INT,
    FLOAT,
    Kind("BINARY", pa.binary(), "other", _one_of(b"", b"\0", b"\0\0", b"\xff", b"abc"), (pa.binary(), pa.large_binary())),
    DECIMAL_6_2,
    Kind("DECIMAL(38,10)", pa.decimal128(38, 10), "other", _decimal(38, 10)),
    Kind("ARRAY<INT>", pa.list_(_INT), "nested", _one_of([], [None], [1], [1, 2, None])),
    Kind("ARRAY<STRING>", pa.list_(_TEXT), "nested", _one_of([], [""], ["a", None], ["x" * LONG])),
    Kind("MAP<STRING, BIGINT>", pa.map_(_TEXT, pa.int64()), "nested", _one_of([], [("a", 1)], [("a", None), ("", 2)])),
    Kind(
        "STRUCT<a: BIGINT, b: ARRAY<STRUCT<c: DOUBLE, d: DATE>>>",
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.float64()), ("d", pa.date32())])))]),
        "nested",
        _one_of({"a": None, "b": None}, {"a": 1, "b": []}, {"a": 2, "b": [{"c": 0.5, "d": date(2026, 1, 1)}, None]}),
    ),
)


DECIMAL_12_2 = Kind("DECIMAL(12,2)", pa.decimal128(12, 2), "other", _decimal(12, 2))
_MEETINGS = {
    frozenset((INT, BIGINT)): BIGINT,
    frozenset((SMALLINT, BIGINT)): BIGINT,
    frozenset((TINYINT, INT)): INT,
    frozenset((FLOAT, DOUBLE)): DOUBLE,
    frozenset((INT, DOUBLE)): DOUBLE,
    frozenset((SMALLINT, FLOAT)): FLOAT,
    frozenset((INT, DECIMAL_6_2)): DECIMAL_12_2,
}


def meeting(one: Kind, other: Kind) -> Kind | None:
    """The type in which keys of two types meet; None: not among those drawn."""
    return one if one is other else _MEETINGS.get(frozenset((one, other)))


def partners(kind: Kind) -> list[Kind]:
    """The types whose keys meet those of `kind`."""
    return [other for pair in _MEETINGS if kind in pair for other in pair if other is not kind]


def stored(values: pa.Array, random: Random) -> pa.Array:
    """The values in one of the types that a file may hold them in, if they all fit."""
    kind = next((kind for kind in KINDS if kind.arrow == values.type), None)
    choices = () if kind is None else kind.stored
    if not choices:
        return values
    return _cast(values, random.choice(choices))


def _cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        if pa.types.is_dictionary(wanted):
            return values.dictionary_encode()
        there = values.cast(wanted)
        back = there.cast(values.type)
    except pa.ArrowInvalid:
        return values
    return there if _same(back, values) else values


def _same(values: pa.Array, others: pa.Array) -> bool:
    if pa.types.is_floating(values.type):  # NaN differs from itself
        both = pc.call_function("or", [pc.call_function("is_nan", [values]), pc.call_function("equal", [values, others])])
        return bool(pc.call_function("all", [both]).as_py() in (True, None))
    return values.equals(others)


def drawn(kind: Kind, pool: Sequence[Any], rows: int, random: Random) -> pa.Array:
    """`rows` values: of `pool`, if there is one, its first most often; one in ten is NULL where the pool has none."""
    if pool:
        return pa.array([pool[min(int(random.expovariate(0.6)), len(pool) - 1)] for _ in range(rows)], kind.arrow)
    return pa.array([None if random.random() < 0.1 else kind.draw(random) for _ in range(rows)], kind.arrow)
