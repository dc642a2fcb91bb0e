"""Arrow columns of one type as those of another, where every value keeps its meaning, at any depth."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.columnar.layouts import is_bytes, is_list, is_number, is_text

_EXACT_IN_A_DOUBLE = 2.0**53
# Digits of Arrow's widest decimal, which holds every integer of 64 bits with any usual scale.
_MOST_DIGITS = 76
_DECIMALS = (pa.Decimal32Type, pa.Decimal64Type, pa.Decimal128Type, pa.Decimal256Type)


def may_become(found: pa.DataType, declared: pa.DataType) -> bool:
    """True where a value of type `found` has one meaning as `declared`: numbers, texts, bytes, times of one clock."""
    if found.equals(declared) or pa.types.is_null(found):
        return True
    if isinstance(found, (pa.DictionaryType, pa.RunEndEncodedType)):
        return may_become(found.value_type, declared)
    if isinstance(declared, pa.DictionaryType):
        return may_become(found, declared.value_type)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(declared):
        return (found.tz is None) == (declared.tz is None)
    if pa.types.is_struct(found) and pa.types.is_struct(declared):
        names = [field.name for field in found] == [field.name for field in declared]
        return names and all(may_become(mine.type, its.type) for mine, its in zip(found, declared, strict=True))
    if is_list(found) and is_list(declared):
        return may_become(found.value_type, declared.value_type)
    if pa.types.is_map(found) and pa.types.is_map(declared):
        return may_become(found.key_type, declared.key_type) and may_become(found.item_type, declared.item_type)
    kinds = (is_number, is_text, is_bytes, pa.types.is_date, pa.types.is_time, pa.types.is_duration)
    return any(kind(found) and kind(declared) for kind in kinds)


def fitted(values: pa.Array, declared: pa.DataType) -> pa.Array | None:
    """The values as `declared`, to which their type `may_become`; None where one would change. Raises pa.ArrowException."""
    if isinstance(values, pa.RunEndEncodedArray):
        values = pc.run_end_decode(values)
    known = values.cast(_leaf_by_leaf(values.type, declared, _known))
    wide = known.cast(_leaf_by_leaf(known.type, declared, _widest))
    made = _encoded(wide, declared) if isinstance(declared, pa.DictionaryType) else wide.cast(declared)
    return made if _equal(made.cast(wide.type), wide, declared) else None


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the same values whose rows can be taken one by one: Arrow cannot take those of views and run-ends."""
    if isinstance(kind, pa.RunEndEncodedType):
        return plain_type(kind.value_type)
    return _leaf_by_leaf(kind, kind, _plain_leaf)


def _plain_leaf(kind: pa.DataType, _: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.DictionaryType):
        return pa.dictionary(kind.index_type, _plain_leaf(kind.value_type, kind), kind.ordered)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def can_take_rows(kind: pa.DataType) -> bool:
    """True if Arrow can take single rows of a column of this type."""
    try:
        pa.nulls(0, kind).take(pa.array([], pa.int64()))
    except pa.ArrowNotImplementedError:
        return False
    return True


def _encoded(values: pa.Array, declared: pa.DictionaryType) -> pa.Array:
    """The values as a dictionary, which Arrow's cast makes of texts only."""
    found = values.cast(declared.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(found.indices.cast(declared.index_type), found.dictionary, ordered=declared.ordered)


def _known(found: pa.DataType, declared: pa.DataType) -> pa.DataType:
    """`declared` for values that are all NULL, or that are none at all; for dictionaries the type of their values."""
    if isinstance(found, pa.DictionaryType):
        return found.value_type
    return declared if pa.types.is_null(found) else found


def _widest(found: pa.DataType, declared: pa.DataType) -> pa.DataType:
    """Between integers and decimals: a decimal that holds both, since Arrow judges by types and not by values."""
    for one, other in ((found, declared), (declared, found)):
        if pa.types.is_integer(one) and isinstance(other, _DECIMALS) and other.scale >= 0:
            return pa.decimal256(_MOST_DIGITS, other.scale)
    return found


def _leaf_by_leaf(
    found: pa.DataType, declared: pa.DataType, leaf: Callable[[pa.DataType, pa.DataType], pa.DataType]
) -> pa.DataType:
    """`found`, with `leaf` in the place of each type that holds no other."""

    def each(mine: pa.Field, its: pa.DataType) -> pa.Field:
        return mine.with_type(_leaf_by_leaf(mine.type, its, leaf))

    if pa.types.is_struct(found) and pa.types.is_struct(declared):
        return pa.struct([each(mine, its.type) for mine, its in zip(found, declared, strict=True)])
    if is_list(found) and is_list(declared):
        item = each(found.value_field, declared.value_type)
        if pa.types.is_fixed_size_list(found):
            return pa.list_(item, found.list_size)
        return pa.large_list(item) if pa.types.is_large_list(found) else pa.list_(item)
    if pa.types.is_map(found) and pa.types.is_map(declared):
        return pa.map_(each(found.key_field, declared.key_type), each(found.item_field, declared.item_type))
    return leaf(found, declared)


def _equal(one: pa.Array, other: pa.Array, declared: pa.DataType) -> bool:
    """True if both have the same values; doubles that are to be integers stand for no other integer."""
    if pa.types.is_struct(one.type) and pa.types.is_struct(declared):
        parts = zip(one.flatten(), other.flatten(), declared, strict=True)
        return _same_nulls(one, other) and all(_equal(mine, its, field.type) for mine, its, field in parts)
    if is_list(one.type) and is_list(declared):
        lengths = one.value_lengths().equals(other.value_lengths()) if hasattr(one, "value_lengths") else True
        return _same_nulls(one, other) and lengths and _equal(one.flatten(), other.flatten(), declared.value_type)
    if not pa.types.is_floating(one.type):
        return one.equals(other)
    if not _same_nulls(one, other):
        return False
    mine, its = (each.drop_null().to_numpy(zero_copy_only=False) for each in (one, other))
    beyond = pa.types.is_integer(declared) and bool((np.abs(its) > _EXACT_IN_A_DOUBLE).any())
    return np.array_equal(mine, its, equal_nan=True) and not beyond


def _same_nulls(one: pa.Array, other: pa.Array) -> bool:
    return one.is_null().equals(other.is_null())
