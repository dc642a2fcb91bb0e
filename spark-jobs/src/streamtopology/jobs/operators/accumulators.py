"""Functions of `aggregate` whose state is more than a sum or an extreme: spread, first and last, extremes, lists,
distinct values.

Each keeps its own fields for a column. The count of the column's values is kept for all of them, by `Aggregates`.
"""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.columnar.layouts import is_number
from streamtopology.jobs.operators import distinct
from streamtopology.jobs.operators.columns import NUMBERS
from streamtopology.jobs.operators.extremes import is_ordered, places_in_order
from streamtopology.jobs.state import Field, KeyedState

_WITHOUT_PARTS = "any type but lists, maps and structs"


class Accumulator(ABC):
    """What is kept of a column of type `kind` for each group, so that functions of it can be told.

    prefix: begins the names of its fields. name: part of that, so part of the state's format. allowed: what it takes, in words.
    """

    name: ClassVar[str]
    allowed: ClassVar[str] = "any type"

    def __init__(self, prefix: str, kind: pa.DataType) -> None:
        self.kind = kind
        self.fields = self.fields_for(prefix)

    @staticmethod
    def takes(kind: pa.DataType) -> bool:
        """True for a type whose values it can keep."""
        return True

    @abstractmethod
    def fields_for(self, prefix: str) -> tuple[Field, ...]:
        """The fields of one group."""

    @abstractmethod
    def result_type(self, function: str) -> pa.DataType:
        """The type of what a function gives."""

    @abstractmethod
    def fold(self, state: KeyedState, slots: np.ndarray, values: pa.Array, counted: np.ndarray) -> None:
        """Add values[i], none of them NULL, to slot slots[i].

        counted: int64[capacity], the values of each slot before.
        """

    @abstractmethod
    def combine(
        self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch, counts: np.ndarray, counted: np.ndarray
    ) -> None:
        """Add row i of `partial`, a column per field, which stands for counts[i] values, to slot slots[i].

        counted: as in `fold`.
        """

    @abstractmethod
    def results(self, function: str, state: KeyedState, slots: np.ndarray, counted: np.ndarray) -> pa.Array:
        """What a function gives for `slots`, of counted[i] values each."""


class Moments(Accumulator):
    """Mean and sum of squared differences from it: Chan, Golub, LeVeque 1979, as in Spark's CentralMomentAgg."""

    name = "moments"
    allowed = f"{NUMBERS}, or a decimal"

    @staticmethod
    def takes(kind: pa.DataType) -> bool:
        return is_number(kind)

    def fields_for(self, prefix: str) -> tuple[Field, ...]:
        self._mean, self._squares = f"{prefix}_mean", f"{prefix}_squares"
        return Field(self._mean, np.dtype(np.float64)), Field(self._squares, np.dtype(np.float64))

    def result_type(self, function: str) -> pa.DataType:
        return pa.float64()

    def fold(self, state: KeyedState, slots: np.ndarray, values: pa.Array, counted: np.ndarray) -> None:
        numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        self._add(state, slots, np.ones(len(slots)), numbers, np.zeros(len(slots)), counted)

    def combine(
        self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch, counts: np.ndarray, counted: np.ndarray
    ) -> None:
        means, squares = (partial.column(name).to_numpy() for name in (self._mean, self._squares))
        some = counts > 0
        self._add(state, slots[some], counts[some].astype(np.float64), means[some], squares[some], counted)

    def _add(
        self, state: KeyedState, slots: np.ndarray, n: np.ndarray, means: np.ndarray, squares: np.ndarray, counted: np.ndarray
    ) -> None:
        """Add sets of n[i] values with means[i] and squares[i] to slots[i], those of one slot together first."""
        places, group = np.unique(slots, return_inverse=True)
        held_means, held_squares, held = state.column(self._mean), state.column(self._squares), counted[places]
        with np.errstate(invalid="ignore", over="ignore"):
            count = np.bincount(group, n)
            mean = np.bincount(group, n * means) / count
            spread = np.bincount(group, squares + n * (means - mean[group]) ** 2)
            apart = mean - held_means[places]
            total = held + count
            held_squares[places] += spread + apart * apart * (held * count / total)
            held_means[places] += apart * (count / total)

    def results(self, function: str, state: KeyedState, slots: np.ndarray, counted: np.ndarray) -> pa.Array:
        freedom = counted if function.endswith("_pop") else counted - 1
        variances = state.column(self._squares)[slots] / np.maximum(freedom, 1)
        return pa.array(np.sqrt(variances) if function.startswith("stddev") else variances, mask=freedom < 1)


class OneOf(Accumulator):
    """One of the values that came. part: ends the name of its field."""

    part: ClassVar[str] = "value"

    def fields_for(self, prefix: str) -> tuple[Field, ...]:
        self._value = f"{prefix}_{self.part}"
        return (_of_all(self._value, self.kind),)

    def result_type(self, function: str) -> pa.DataType:
        return self.kind

    def combine(
        self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch, counts: np.ndarray, counted: np.ndarray
    ) -> None:
        some = np.flatnonzero(counts)
        self.fold(state, slots[some], partial.column(self._value).take(pa.array(some)), counted)

    def results(self, function: str, state: KeyedState, slots: np.ndarray, counted: np.ndarray) -> pa.Array:
        return state.read(self._value, slots)


class First(OneOf):
    name = "first"

    def fold(self, state: KeyedState, slots: np.ndarray, values: pa.Array, counted: np.ndarray) -> None:
        places, at = np.unique(slots, return_index=True)
        new = counted[places] == 0
        state.write(self._value, places[new], values.take(pa.array(at[new])))


class Last(OneOf):
    name = "last"

    def fold(self, state: KeyedState, slots: np.ndarray, values: pa.Array, counted: np.ndarray) -> None:
        places, from_the_end = np.unique(slots[::-1], return_index=True)
        state.write(self._value, places, values.take(pa.array(len(slots) - 1 - from_the_end)))


class ArgMax(OneOf):
    """The struct whose first field is the greatest; of several the newest."""

    name = "arg_max"
    allowed = "a struct whose first field can be ordered"
    part = "held"
    sign: ClassVar[int] = 1

    @staticmethod
    def takes(kind: pa.DataType) -> bool:
        return pa.types.is_struct(kind) and kind.num_fields > 0 and is_ordered(kind.field(0).type)

    def fold(self, state: KeyedState, slots: np.ndarray, values: pa.Array, counted: np.ndarray) -> None:
        places, group = np.unique(slots, return_inverse=True)
        known = np.flatnonzero(counted[places])
        together = pa.concat_arrays([state.read(self._value, places[known]), values])
        owners = np.concatenate([known, group])
        order = np.lexsort((self.sign * places_in_order(together.flatten()[0]), owners))
        best = order[np.cumsum(np.bincount(owners, minlength=len(places))) - 1]
        new = best >= len(known)
        state.write(self._value, places[new], together.take(pa.array(best[new])))


class ArgMin(ArgMax):
    """The struct whose first field is the least; of several the newest."""

    name = "arg_min"
    sign = -1


class ListOf(Accumulator):
    """Every value. The whole list of a group is written again in each batch that brings it values."""

    name = "list"

    def fields_for(self, prefix: str) -> tuple[Field, ...]:
        self._values = f"{prefix}_values"
        return (_of_all(self._values, pa.list_(self.kind)),)

    def result_type(self, function: str) -> pa.DataType:
        return pa.list_(self.kind)

    def fold(self, state: KeyedState, slots: np.ndarray, values: pa.Array, counted: np.ndarray) -> None:
        places, group = np.unique(slots, return_inverse=True)
        held = state.read(self._values, places)
        owners = np.concatenate([np.repeat(np.arange(len(places)), _lengths(held)), group])
        together = pa.concat_arrays([held.flatten(), values])
        order = np.argsort(owners, kind="stable")
        kept = order[self.kept(owners[order], together.take(pa.array(order)))]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owners[kept], minlength=len(places)))])
        state.write(
            self._values, places, pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), together.take(pa.array(kept)))
        )

    def kept(self, owners: np.ndarray, values: pa.Array) -> np.ndarray:
        """int64[]: the places of those values that stay in their owner's list, in their order."""
        return np.arange(len(owners))

    def combine(
        self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch, counts: np.ndarray, counted: np.ndarray
    ) -> None:
        lists = partial.column(self._values)
        self.fold(state, np.repeat(slots, _lengths(lists)), lists.flatten(), counted)

    def results(self, function: str, state: KeyedState, slots: np.ndarray, counted: np.ndarray) -> pa.Array:
        lists = state.read(self._values, slots)
        offsets = np.concatenate([[0], np.cumsum(_lengths(lists))])
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), lists.flatten())


class TopOf(ListOf):
    """The `most` structs whose first fields are the greatest (`sign` 1) or the least (-1), of equal ones the newest."""

    def __init__(self, prefix: str, kind: pa.DataType, most: int, sign: int) -> None:
        self._most, self._sign = most, sign
        super().__init__(f"{prefix}_{most}", kind)

    def kept(self, owners: np.ndarray, values: pa.Array) -> np.ndarray:
        return np.sort(self._best_first(owners, values)[1])

    def results(self, function: str, state: KeyedState, slots: np.ndarray, counted: np.ndarray) -> pa.Array:
        lists = super().results(function, state, slots, counted)
        owners = np.repeat(np.arange(len(slots)), _lengths(lists))
        order = self._best_first(owners, lists.flatten())[1]
        return pa.ListArray.from_arrays(lists.offsets, lists.flatten().take(pa.array(order)))

    def _best_first(self, owners: np.ndarray, values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """(owners, places) of the values that stay, by owner, the best first."""
        newest, best = -np.arange(len(owners)), -self._sign * places_in_order(values.flatten()[0])
        order = np.lexsort((newest, best, owners))
        sorted_owners = owners[order]
        first = np.flatnonzero(np.diff(sorted_owners, prepend=-1))
        place = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
        stays = place < self._most
        return sorted_owners[stays], order[stays]


class SetOf(ListOf):
    """Every value once, in the order in which they came first."""

    name = "set"
    allowed = _WITHOUT_PARTS

    @staticmethod
    def takes(kind: pa.DataType) -> bool:
        return not pa.types.is_nested(kind)

    def fold(self, state: KeyedState, slots: np.ndarray, values: pa.Array, counted: np.ndarray) -> None:
        # -0.0 is 0.0, as in keys
        super().fold(
            state, slots, pc.add(values, pa.scalar(0, values.type)) if pa.types.is_floating(values.type) else values, counted
        )

    def result_type(self, function: str) -> pa.DataType:
        return pa.int64() if function == "count_distinct" else super().result_type(function)

    def results(self, function: str, state: KeyedState, slots: np.ndarray, counted: np.ndarray) -> pa.Array:
        if function == "count_distinct":
            return pa.array(_lengths(state.read(self._values, slots)))
        return super().results(function, state, slots, counted)

    def kept(self, owners: np.ndarray, values: pa.Array) -> np.ndarray:
        coded = values.dictionary_encode()
        pairs = owners * max(1, len(coded.dictionary)) + coded.indices.to_numpy()
        return np.sort(np.unique(pairs, return_index=True)[1])


class Sketch(Accumulator):
    """How many different values there are, about."""

    name = "distinct"
    allowed = _WITHOUT_PARTS

    @staticmethod
    def takes(kind: pa.DataType) -> bool:
        return not pa.types.is_nested(kind)

    def fields_for(self, prefix: str) -> tuple[Field, ...]:
        self._registers = f"{prefix}_registers"
        return (Field(self._registers, np.dtype(np.uint8), shape=(distinct.REGISTERS,), merge="max"),)

    def result_type(self, function: str) -> pa.DataType:
        return pa.int64()

    def fold(self, state: KeyedState, slots: np.ndarray, values: pa.Array, counted: np.ndarray) -> None:
        registers, ranks = distinct.registers_of(KeyColumns.from_arrays([values], ["value"], len(values)).hashes)
        np.maximum.at(state.column(self._registers), (slots, registers), ranks)

    def combine(
        self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch, counts: np.ndarray, counted: np.ndarray
    ) -> None:
        (field,) = self.fields
        np.maximum.at(state.column(self._registers), slots, field.to_numpy(partial.column(self._registers)))

    def results(self, function: str, state: KeyedState, slots: np.ndarray, counted: np.ndarray) -> pa.Array:
        return pa.array(np.rint(distinct.estimates(state.column(self._registers)[slots])).astype(np.int64))


ACCUMULATORS: Mapping[str, type[Accumulator]] = {
    "stddev": Moments,
    "stddev_pop": Moments,
    "variance": Moments,
    "var_pop": Moments,
    "first": First,
    "last": Last,
    "arg_max": ArgMax,
    "arg_min": ArgMin,
    "collect_list": ListOf,
    "collect_set": SetOf,
    "count_distinct": SetOf,
    "approx_count_distinct": Sketch,
}


def _of_all(name: str, kind: pa.DataType) -> Field:
    """A field that cannot be added later: it would tell of the values since then alone."""
    return replace(Field.of(name, kind), added=False)


def _lengths(lists: pa.Array) -> np.ndarray:
    """int64[n]: the values in each list; none in NULL."""
    return pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
