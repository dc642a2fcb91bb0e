"""Rows as PySpark gives them to a processor and takes them from it, made and read a column at a time."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import _create_converter_to_pandas, from_arrow_type
from pyspark.sql.types import Row

from streamtopology.jobs.state.value_types import parts_of


@lru_cache(256)
def row_class(names: tuple[str, ...]) -> type[Row]:
    """A Row of these names. It is made of a tuple in 0.1 us, and a field is read in a tenth of what `Row` itself needs."""
    places = {name: place for place, name in reversed(list(enumerate(names)))}

    def by_name(self: Row, item: Any, get: Any = tuple.__getitem__, places: Mapping[str, int] = places) -> Any:
        if item.__class__ is str:
            try:
                return get(self, places[item])
            except KeyError:
                raise ValueError(item) from None  # as Row does
        return get(self, item)

    getters = vars(namedtuple("Fields", [f"f{place}" for place in range(len(names))]))  # they pass __getitem__ by
    fields = {name: getters[f"f{place}"] for name, place in places.items() if not hasattr(Row, name)}
    return type("Row", (Row,), {**fields, "__fields__": list(names), "__getitem__": by_name})


def spark_rows(columns: Sequence[list[Any]], names: Sequence[str]) -> list[Row]:
    """Rows of these columns."""
    return list(map(tuple.__new__, repeat(row_class(tuple(names))), zip(*columns, strict=True)))


def widened(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with numbers of 64 bits, as Spark's transformWithStateInPandas makes its frames of Python's numbers."""
    return rows.cast(pa.schema([field.with_type(_widened(field.type)) for field in rows.schema]))


def _widened(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_signed_integer(kind):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(kind) else kind


def pandas_frames(rows: pa.RecordBatch, zone: str) -> Callable[[int, int], Iterator[Any]]:
    """Makes, of the rows from one place to another, an iterator of one frame, whose times have no zone, as Spark's.

    Of the values with parts as Spark makes them: maps are dicts, integers beside NULLs stay integers.
    """
    frame = pa.Table.from_batches([rows]).to_pandas(coerce_temporal_nanoseconds=True)
    for name, kind in zip(rows.schema.names, rows.schema.types, strict=True):
        if parts_of(kind):
            made = _create_converter_to_pandas(from_arrow_type(kind), timezone=zone, struct_in_pandas="dict")
            frame[name] = made(rows[name].to_pandas(coerce_temporal_nanoseconds=True, integer_object_nulls=True))
        elif pa.types.is_timestamp(kind) and kind.tz is not None:
            frame[name] = frame[name].dt.tz_localize(None)
    return lambda start, end: iter((frame.iloc[start:end].reset_index(drop=True),))


def have_names(rows: Sequence[Row], names: list[str]) -> bool:
    """True if each of the rows has exactly these fields in this order."""
    return all(map(names.__eq__, map(attrgetter("__fields__"), rows)))
