"""The least and greatest values of any ordered type, one a group: texts, bytes and decimals in state of any type."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.state import KeyedState

if TYPE_CHECKING:
    from streamtopology.jobs.operators import kernels
else:
    kernels = LazyModule("streamtopology.jobs.operators.kernels")

_ORDERED = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_decimal128)


def has_extremes(kind: pa.DataType) -> bool:
    """True for texts, bytes and decimals. Texts are ordered by their bytes, as in Spark."""
    return any(is_kind(kind) for is_kind in _ORDERED)


def is_ordered(kind: pa.DataType) -> bool:
    """True for types whose values `places_in_order` orders."""
    if pa.types.is_struct(kind):
        return all(is_ordered(field.type) for field in kind)
    number = pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
    time = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    return number or time or pa.types.is_boolean(kind) or has_extremes(kind)


def places_in_order(values: pa.Array) -> np.ndarray:
    """int64[n]: the same for equal values, greater for greater ones. As in Spark: NULL is the least, NaN the greatest number.

    Structs are ordered by their first fields that differ.
    """
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(values.type):
        parts = np.stack([valid.astype(np.int64), *map(places_in_order, values.flatten())], axis=1)
        return np.unique(parts, axis=0, return_inverse=True)[1].reshape(-1)
    places = pc.rank(values, "ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return np.where(valid, places, 0)


def keep_extremes(state: KeyedState, field: str, slots: np.ndarray, values: pa.Array, which: Literal["min", "max"]) -> None:
    """Keep in slot slots[i] (touched, may repeat) the least or greatest of what `field` has there and values[i].

    NULL in the state is no value; `values` has none.
    """
    if not len(values):
        return
    coded = values.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    places, group = np.unique(slots, return_inverse=True)
    best = np.full(len(places), len(order) if which == "min" else -1)
    kernels.combine_into(best, group, ranks[coded.indices.to_numpy()], which)
    found, held = coded.dictionary.take(pa.array(order[best])), state.read(field, places)
    is_better = pc.less(found, held) if which == "min" else pc.greater(found, held)
    better = np.flatnonzero(is_better.fill_null(True).to_numpy(zero_copy_only=False))
    if len(better):
        state.write(field, places[better], found.take(pa.array(better)))
