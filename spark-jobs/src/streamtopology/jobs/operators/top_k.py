"""top-k: per key the k ids with the largest values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.operators.base import BadTuple, Rows, field_values
from streamtopology.jobs.operators.columns import countable, numbers, require_number, values_of_state
from streamtopology.jobs.operators.keyed_aggregate import KeyedAggregate
from streamtopology.jobs.operators.options import OptionError, require_column
from streamtopology.jobs.state import Field, KeyedState

if TYPE_CHECKING:
    from streamtopology.jobs.operators import kernels
else:
    kernels = LazyModule("streamtopology.jobs.operators.kernels")

MOST = 1000
# The end of an id that ends with a zero byte, as those are what an id is filled up with; no text has this byte.
_MARK = b"\xff"


class TopK(KeyedAggregate):
    """Emits two lists per key, best first: the ids under the name of the `id` column, their values under that of `by`.

    An id is there once, with the largest value it ever had; among equal values the smaller id goes first (strings by
    their bytes). Tuples whose value or id is NULL, or whose value is NaN, are left out. Ids are integers or strings of
    at most `idBytes` bytes.
    """

    def __init__(self, by: str, id: str, k: int = 10, idBytes: int = 32, **common: Any) -> None:  # noqa: N803
        super().__init__(**common)
        self.by, self.id = by, id
        self.k = _whole(k, "k", MOST)
        self.id_bytes = _whole(idBytes, "idBytes", MOST)

    def fields_for(self, inputs: Mapping[str, pa.Schema]) -> tuple[Field, ...]:
        by = {require_number(inputs, self.by, alias) for alias in inputs}
        ids = {require_column(inputs, self.id, alias).type for alias in inputs}
        if len(by) > 1 or len(ids) > 1:
            raise OptionError(
                f"{self.by!r} and {self.id!r} have other types in different inputs; cast them in a map", about=self.by
            )
        self._by_type, self._id_type = by.pop(), ids.pop()
        self._ids_are_text = pa.types.is_string(self._id_type) or pa.types.is_large_string(self._id_type)
        if not (self._ids_are_text or pa.types.is_integer(self._id_type)):
            raise OptionError(f"id column {self.id!r} is {self._id_type}; allowed: an integer or a string", about=self.id)
        value = np.dtype(np.float64 if pa.types.is_floating(self._by_type) else np.int64)
        id_field = (
            Field("top_ids", np.dtype(np.uint8), shape=(self.k, self.id_bytes), means=self.id)
            if self._ids_are_text
            else Field("top_ids", np.dtype(np.int64), shape=(self.k, 1), means=self.id)
        )
        return (Field("top_values", value, shape=(self.k,), means=self.by), id_field, Field("top_used", np.dtype(np.int64)))

    def result_schema(self) -> pa.Schema:
        return pa.schema([(self.id, pa.list_(self._id_type)), (self.by, pa.list_(self._by_type))])

    def fold(self, rows: Rows, slots: np.ndarray, state: KeyedState) -> None:
        values, counts = numbers(rows.column(self.by))
        names = rows.column(self.id)
        named = countable(names)
        if named is not None:
            counts = named if counts is None else counts & named
        if counts is not None:
            kept = np.flatnonzero(counts)
            values, slots, names = values[kept], slots[kept], names.take(pa.array(kept))
        self._keep(state, slots, values, self._encoded(names))

    def combine(self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch) -> None:
        values_field, ids_field, used_field = self.fields_of_state()
        values, ids = field_values(partial, values_field), field_values(partial, ids_field)
        row, place = np.nonzero(np.arange(self.k) < field_values(partial, used_field)[:, None])
        self._keep(state, slots[row], values[row, place], ids[row, place])
        self.groups.mark(slots)

    def results(self, slots: np.ndarray, state: KeyedState) -> list[pa.Array]:
        used = state.column("top_used")[slots]
        filled = np.arange(self.k) < used[:, None]
        offsets = pa.array(np.concatenate([[0], np.cumsum(used)]), pa.int32())
        ids = self._decoded(state.column("top_ids")[slots][filled])
        with values_of_state(self.by, self._by_type):
            values = pa.array(state.column("top_values")[slots][filled]).cast(self._by_type)
        return [pa.ListArray.from_arrays(offsets, ids), pa.ListArray.from_arrays(offsets, values)]

    def _keep(self, state: KeyedState, slots: np.ndarray, values: np.ndarray, ids: np.ndarray) -> None:
        kept_values, kept_ids, used = (state.column(name) for name in ("top_values", "top_ids", "top_used"))
        kernels.keep_largest(kept_values, kept_ids, used, slots, values, np.ascontiguousarray(ids))

    def _encoded(self, names: pa.Array) -> np.ndarray:
        """int64[n, 1], or uint8[n, idBytes] filled up with zero bytes; a text that ends with one is marked."""
        if not self._ids_are_text:
            return numbers(names)[0][:, None]
        texts = _marked(names.cast(pa.large_binary()))
        long = np.flatnonzero(pc.call_function("binary_length", [texts]).to_numpy() > self.id_bytes)
        if len(long):
            raise BadTuple(long, f"the id {names[int(long[0])].as_py()!r} is longer than idBytes: {self.id_bytes}")
        padded = np.zeros((len(names), self.id_bytes), np.uint8)
        if len(names):
            ids = np.array(texts.to_numpy(zero_copy_only=False), dtype=f"S{self.id_bytes}")
            padded[:] = ids.view(np.uint8).reshape(len(names), self.id_bytes)
        return padded

    def _decoded(self, ids: np.ndarray) -> pa.Array:
        if not self._ids_are_text:
            with values_of_state(self.id, self._id_type):
                return pa.array(ids[:, 0]).cast(self._id_type)
        texts = np.ascontiguousarray(ids).view(f"S{self.id_bytes}").reshape(-1).tolist()
        if (ids == _MARK[0]).any():
            texts = [text.removesuffix(_MARK) for text in texts]
        return pa.array(texts, pa.binary()).cast(self._id_type)


def _marked(texts: pa.Array) -> pa.Array:
    ending = pc.call_function("ends_with", [texts], pc.MatchSubstringOptions("\0"))
    if not pc.call_function("any", [ending]).as_py():
        return texts
    mark = pa.scalar(_MARK, pa.large_binary())
    marked = pc.call_function("binary_join_element_wise", [texts, mark, pa.scalar(b"", pa.large_binary())])
    return pc.call_function("if_else", [ending, marked, texts])


def _whole(value: Any, option: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise OptionError(f"option {option!r} is {value!r}; allowed: a whole number from 1 to {most:,}", about=option)
    return value
