"""Random operators of a user's own: schemas of all types, and values of which some do not fit."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

Draw = Callable[[random.Random], Any]
DAY = dt.datetime(2020, 2, 29, 12)
BY_TUPLE = """
from support.differential.own_values import case_of
from streamtopology.api import Operator, TupleOperator


class Tuples(TupleOperator):
    def prepare(self, inputs, key):
        super().prepare(inputs, key)
        case = case_of({SEED})
        self.output, self.values = case.output, case.values
        return self.output

    def process_tuple(self, row, state):
        return {"k": row["k"], **self.values[row["k"]]}
"""
BY_BATCH = """
import pyarrow as pa


class Batches(Operator):
    def prepare(self, inputs, key):
        case = case_of({SEED})
        self.output, self.values = case.output, case.values
        return self.output

    def process(self, rows, state):
        keys = rows.column("k").to_pylist()
        columns = [rows.column("k")]
        for field in list(self.output)[1:]:
            column = pa.array([self.values[k][field.name] for k in keys], field.type)
            is_text = pa.types.is_string(field.type) or pa.types.is_integer(field.type)
            columns.append(column.dictionary_encode() if is_text else column)
        return pa.record_batch(columns, names=self.output.names)


class Next(Operator):
    def prepare(self, inputs, key):
        (self.output,) = inputs.values()
        return self.output

    def process(self, rows, state):
        return rows.batch
"""
MODULE = BY_TUPLE + BY_BATCH


def _times(unit: int) -> Draw:
    return lambda rng: DAY + dt.timedelta(microseconds=rng.randint(-(10**9), 10**9) * unit)


LEAVES: list[tuple[pa.DataType, Draw, list[Any]]] = [
    *[(kind, lambda rng, bits=kind.bit_width: rng.choice([0, 1, 2 ** (bits - 1) - 1]), [1.5, "1", True, -(2**63) - 1, 2**64])
      for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64())],
    (pa.float16(), lambda rng: rng.randint(-2048, 2048) / 2, [2049, 10**5, 1e6, "1"]),
    (pa.float32(), lambda rng: rng.randint(-(2**20), 2**20) / 4, [2**24 + 1, 1e300, "1"]),
    (pa.float64(), lambda rng: rng.random() * 1e300, [2**53 + 1, "1", True]),
    (pa.bool_(), lambda rng: rng.random() < 0.5, [1, "true"]),
    (pa.decimal128(9, 2), lambda rng: Decimal(rng.randint(-999, 999)).scaleb(-2), [Decimal("0.001"), 10**9, "1"]),
    *[(kind, lambda rng: rng.choice(["", "é", "b", "a" * 40, "\0"]), [b"x", 1, "\ud800"])
      for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()),
                   pa.run_end_encoded(pa.int32(), pa.string()))],
    *[(kind, lambda rng: rng.choice([b"", b"\0", b"\xff" * 20]), ["x", 1]) for kind in (pa.binary(), pa.binary_view())],
    (pa.binary(2), lambda rng: rng.choice([b"ab", b"\0\0"]), [b"x", "xy"]),
    (pa.date32(), lambda rng: (DAY + dt.timedelta(days=rng.randint(-9999, 9999))).date(), [DAY, "2020-01-01", 5]),
    (pa.timestamp("us"), _times(1), [DAY.date(), DAY.replace(tzinfo=dt.UTC), "2020-01-01", 5]),
    (pa.timestamp("ms"), _times(1000), [DAY.replace(microsecond=1), DAY.date()]),
    (pa.time64("us"), lambda rng: _times(1)(rng).time(), ["24:00:00", 5, dt.time(1, tzinfo=dt.UTC)]),
    (pa.time32("s"), lambda rng: _times(10**6)(rng).time().replace(microsecond=0), [dt.time(1, 2, 3, 4)]),
    (pa.duration("us"), lambda rng: dt.timedelta(microseconds=rng.randint(-(10**12), 10**12)), [5, "5"]),
    (pa.month_day_nano_interval(), lambda rng: pa.MonthDayNano([rng.randint(0, 9), 2, 1]), [dt.timedelta(1), 5]),
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """The `output` and the rows (by their k) of an operator; `unfit`: the column with a value that it cannot hold, or None."""

    output: pa.Schema
    values: dict[int, dict[str, Any]]
    unfit: str | None


def case_of(seed: int) -> Case:
    """The case of this seed, the same everywhere."""
    rng = random.Random(seed)
    columns = {f"c{number}": _column(rng) for number in range(rng.randint(1, 4))}
    schema = pa.schema([("k", pa.int64()), *((name, kind) for name, (kind, _, _) in columns.items())])
    rows = {
        k: {name: None if rng.random() < 0.2 else draw(rng) for name, (_, draw, _) in columns.items()}
        for k in range(rng.randint(1, 8))
    }
    unfit = rng.choice([None, None, *columns])
    if unfit is not None:
        rows[rng.choice(list(rows))][unfit] = rng.choice(columns[unfit][2])
    return Case(schema, rows, unfit)


def _column(rng: random.Random) -> tuple[pa.DataType, Draw, list[Any]]:
    """A type, the draw of its values, and values that it cannot hold."""
    kind, draw, unfit = rng.choice(LEAVES)
    if isinstance(kind, pa.RunEndEncodedType):
        return kind, draw, unfit
    match rng.randrange(5):
        case 0:
            return pa.list_(kind), lambda rng: [draw(rng), None][: rng.randint(0, 2)], [[each] for each in unfit]
        case 1:
            return pa.struct({"a": kind}), lambda rng: {"a": draw(rng)}, [*({"a": each} for each in unfit), {"b": 1}]
        case 2:
            pairs = pa.map_(pa.string(), kind)
            return pairs, lambda rng: [("x", draw(rng))][: rng.randint(0, 1)], [{"x": each} for each in unfit]
        case _:
            return kind, draw, unfit
