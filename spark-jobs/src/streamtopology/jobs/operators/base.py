"""What a person writes to put work into a topology.

An operator gets the tuples of its keys as Arrow batches (`process`), keeps what it must remember in keyed state, and
speaks once more when the batch has ended (`finish`). `TupleOperator` is the same one tuple at a time.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
import pyarrow as pa

from streamtopology.jobs import work
from streamtopology.jobs.keys import KeyColumns
from streamtopology.jobs.operators.kernels import combine_into
from streamtopology.jobs.operators.options import OptionError, key_schema, seconds_of
from streamtopology.jobs.state import Field, KeyedState, KeyedStateSchema, StateSchema

Output: TypeAlias = pa.RecordBatch | pa.Table | None

COMMON_OPTIONS = ("costPerTuple",)


class BadTuple(Exception):
    """Some tuples cannot be processed. Raise it before touching the state, so that the others can go on.

    `rows` are their places within the Rows at hand (int64[b]).
    """

    def __init__(self, rows: int | Sequence[int] | np.ndarray, reason: str) -> None:
        super().__init__(reason)
        self.rows = np.atleast_1d(np.asarray(rows, np.int64))
        self.reason = reason


@dataclass(frozen=True)
class Rows:
    """Tuples of one input for one instance. `keys` is None when the operator has no key."""

    batch: pa.RecordBatch
    input: str
    keys: KeyColumns | None = None

    def __len__(self) -> int:
        return self.batch.num_rows

    def column(self, name: str) -> pa.Array:
        return self.batch.column(self.batch.schema.get_field_index(name))

    def take(self, places: np.ndarray) -> Rows:
        """The rows at `places` (int64[m])."""
        keys = None if self.keys is None else self.keys.take(places)
        return Rows(self.batch.take(pa.array(places)), self.input, keys)


@dataclass(frozen=True)
class BatchInfo:
    """The micro-batch at work.

    `watermark`: epoch seconds; tuples with an event time at or below it are late. None: no event time seen yet.
    `final`: the input has ended for good, every window closes.  `flush`: partial operators hand over what they gathered.
    """

    number: int
    watermark: float | None = None
    final: bool = False
    flush: bool = True


@dataclass(frozen=True)
class SetAside:
    """Tuples that an operator could not process, and why."""

    batch: pa.RecordBatch
    input: str
    reason: str


class _OptionChecking(type):
    """Makes a forgotten option an OptionError instead of Python's TypeError about arguments."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        try:
            inspect.signature(cls.__init__).bind(None, *args, **options)
        except TypeError as error:
            raise OptionError(f"{error} (allowed: {', '.join(option_names(cls))})") from None
        return super().__call__(*args, **options)


class Operator(metaclass=_OptionChecking):
    """Override `process`, and whatever else of this class you need.

    The manifest's `with` arrives as keyword arguments: `def __init__(self, limit=3, **common)`, then
    `super().__init__(**common)`. Objects are made anew in each worker, so remember things between batches only in the
    state; what you keep on `self` during a batch, reset in `begin` (a failed batch is tried again).
    """

    fields: tuple[Field, ...] = ()
    """What is remembered per key; override `prepare` when it depends on options or columns."""
    output: pa.Schema | None = None
    """What `process` and `finish` return, both; None: nothing."""
    combinable: ClassVar[bool] = False
    """True: a key's state may be gathered in parts and combined, so a grouping may split keys over instances."""
    drops_late_rows: ClassVar[bool] = False
    """True: rows whose event time the watermark has passed are left out."""
    emits_behind_watermark: ClassVar[bool] = False
    """True: rows are emitted when the watermark has passed them, too late for an operator that leaves out late rows."""
    state: StateSchema | None = None
    base_dir: Path = Path()
    """The manifest's folder, for files that options name; set before `prepare`."""

    def __init__(self, **options: Any) -> None:
        unknown = sorted(set(options) - set(COMMON_OPTIONS))
        if unknown:
            allowed = ", ".join(option_names(type(self)))
            raise OptionError(f"unknown option {unknown[0]!r} of {type(self).__name__}; allowed: {allowed}")
        self.cost_per_tuple = seconds_of(options.get("costPerTuple", 0), "costPerTuple")
        self.iterations_per_second = 0.0
        self.batch = BatchInfo(-1)
        self.late_rows = 0
        self.set_aside: list[SetAside] = []
        self.last_tuple_seconds: np.ndarray | None = None

    # What an operator may override ------------------------------------------------------------------------------------

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        """Check columns, set `self.state`, return the schema of what is emitted. Raises OptionError."""
        if self.fields:
            self.state = KeyedStateSchema(self.fields, key_schema(inputs, key), self.upgrade)
        return self.output

    def begin(self, batch: BatchInfo) -> None:
        """Before the first tuple of every attempt at a batch."""
        self.batch = batch
        self.late_rows = 0
        self.set_aside = []

    def process(self, rows: Rows, state: Any) -> Output:
        """Work on tuples of one input; called any number of times per batch."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to process tuples")

    def finish(self, batch: BatchInfo, state: Any) -> Output:
        """Once after the last tuple of a batch."""
        return None

    def combine(self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch) -> None:
        """Fold `partial` (one column per field, row i for state slot `slots[i]`) into the state.

        The default follows the fields' `merge`: sum, min or max.
        """
        for field in _keyed(self.state).fields:
            if field.merge is None:
                raise TypeError(f"field {field.name!r} of {type(self).__name__} has no merge; override combine()")
            combine_into(state.column(field.name), slots, field_values(partial, field), field.merge)

    def upgrade(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """State that a former version of this class wrote (key columns, its fields; a row a key) as this version has it.

        Called only for files whose columns are not those of `fields`. What is returned may still lack fields that are
        `added`, or have narrower numbers. Whoever sets `self.state` says `KeyedStateSchema(..., upgrade=self.upgrade)`.
        """
        return rows

    def tuple_weights(self, rows: Rows) -> np.ndarray | None:
        """float64[n]: how much of the work each tuple caused, relative to the others; None: all the same."""
        return None

    # What the runtime calls -------------------------------------------------------------------------------------------

    def declare_cost(self, iterations_per_second: float) -> None:
        """Turn declared CPU seconds into loop turns, the same on every executor; see `work.iterations_for(1.0)`."""
        self.iterations_per_second = iterations_per_second

    @property
    def iterations_per_tuple(self) -> int:
        return round(self.cost_per_tuple * self.iterations_per_second)

    def accept(self, rows: Rows, state: Any, dead_letter: bool = False) -> Output:
        """Do the declared work, then `process`; sets `last_tuple_seconds` (float64[n]) where tuples differ in cost.

        A BadTuple ends the batch, or, with `dead_letter`, goes to `self.set_aside` and the others are processed.
        """
        self.last_tuple_seconds = None
        started = time.perf_counter()
        work.burn(len(rows), self.iterations_per_tuple)
        try:
            emitted = self.process(rows, state)
        except BadTuple as bad:
            good = np.setdiff1d(np.arange(len(rows)), bad.rows)
            if not dead_letter or len(good) == len(rows):
                raise
            self._put_aside(rows, bad.rows, bad.reason)
            return self.process(rows.take(good), state) if len(good) else None
        weights = self.tuple_weights(rows)
        if weights is not None and len(rows):
            share = weights / weights.sum() if weights.sum() > 0 else np.full(len(rows), 1 / len(rows))
            self.last_tuple_seconds = share * (time.perf_counter() - started)
        return emitted

    def _put_aside(self, rows: Rows, places: np.ndarray, reason: str) -> None:
        self.set_aside.append(SetAside(rows.batch.take(pa.array(places)), rows.input, reason))


class TupleState:
    """The fields of one key: `state["count"] += 1`; a field with a shape is a numpy view, changed in place."""

    def __init__(self, state: KeyedState, slot: int) -> None:
        self._state = state
        self._slot = slot

    def __getitem__(self, field: str) -> Any:
        value = self._state.column(field)[self._slot]
        return value if isinstance(value, np.ndarray) else value.item()

    def __setitem__(self, field: str, value: Any) -> None:
        self._state.column(field)[self._slot] = value

    def values(self) -> dict[str, Any]:
        """A copy of all fields."""
        return {field.name: np.copy(self._state.column(field.name)[self._slot]) for field in self._state.schema.fields}

    def update(self, values: Mapping[str, Any]) -> None:
        for field, value in values.items():
            self[field] = value


class TupleOperator(Operator):
    """An operator that works on one tuple at a time; each tuple is timed.

    Simple and slow (some microseconds a tuple). A tuple that raises leaves its key's state as it was.
    """

    def process_tuple(self, row: dict[str, Any], state: Any) -> Iterable[dict[str, Any]] | dict[str, Any] | None:
        """`state` is the TupleState of its key, None when no fields are declared. Returned dicts are emitted."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to process a tuple")

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        self._key = key
        return super().prepare(inputs, key)

    def process(self, rows: Rows, state: Any) -> Output:
        return self.accept(rows, state)

    def accept(self, rows: Rows, state: Any, dead_letter: bool = False) -> Output:
        """Tuple by tuple; sets `last_tuple_seconds` (float64[n], the declared cost included)."""
        if state is None:
            emitted, _ = self._each_tuple(rows, [None] * len(rows), dead_letter)
            return self._as_batch(emitted)
        if rows.keys is None:
            raise ValueError(f"{type(self).__name__} keeps state per key and needs the rows' keys")
        is_new = state.find(rows.keys) < 0
        slots = state.slots(rows.keys)
        emitted, failed = self._each_tuple(rows, [TupleState(state, slot) for slot in slots.tolist()], dead_letter)
        if failed.any():
            state.delete(np.setdiff1d(slots[failed & is_new], slots[~failed]))
        return self._as_batch(emitted)

    def _each_tuple(
        self, rows: Rows, states: Sequence[TupleState | None], dead_letter: bool
    ) -> tuple[list[dict[str, Any]], np.ndarray]:
        """What is emitted, and bool[n]: which tuples were set aside."""
        nanoseconds = np.zeros(len(rows), np.int64)
        failed = np.zeros(len(rows), np.bool_)
        emitted: list[dict[str, Any]] = []
        for place, (row, state) in enumerate(zip(rows.batch.to_pylist(), states, strict=True)):
            before = {} if state is None else state.values()
            started = time.perf_counter_ns()
            try:
                work.burn(1, self.iterations_per_tuple)
                emitted.extend(_as_rows(self.process_tuple(row, state)))
            except Exception as error:
                if state is not None:
                    state.update(before)
                reason = f"{type(self).__name__} raised {type(error).__name__}: {error} on {self._named(row)}"
                if not dead_letter:
                    raise BadTuple(place, reason) from error
                self._put_aside(rows, np.array([place]), reason)
                failed[place] = True
            nanoseconds[place] = time.perf_counter_ns() - started
        self.last_tuple_seconds = nanoseconds * 1e-9
        return emitted, failed

    def _as_batch(self, emitted: list[dict[str, Any]]) -> Output:
        if not emitted:
            return None
        if self.output is None:
            raise TypeError(f"{type(self).__name__} returns tuples; set `output`, their schema")
        return pa.RecordBatch.from_pylist(emitted, schema=self.output)

    def _named(self, row: dict[str, Any]) -> str:
        """The tuple's key, or all of it when there is none."""
        return "key " + ", ".join(f"{name}={row.get(name)!r}" for name in self._key) if self._key else repr(row)


def option_names(cls: type) -> list[str]:
    """The names that `with` may carry for `cls`, its own first."""
    own = [
        name
        for kind in cls.__mro__
        if "__init__" in vars(kind) and kind is not object
        for name, parameter in inspect.signature(vars(kind)["__init__"]).parameters.items()
        if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    return list(dict.fromkeys([*own, *COMMON_OPTIONS]))


def field_values(partial: pa.RecordBatch, field: Field) -> np.ndarray:
    """Field `field` of `partial` as an array of shape (n, *field.shape)."""
    return field.to_numpy(partial.column(partial.schema.get_field_index(field.name)))


def _as_rows(returned: Iterable[dict[str, Any]] | dict[str, Any] | None) -> Iterable[dict[str, Any]]:
    if returned is None:
        return []
    return cast("Iterable[dict[str, Any]]", [returned] if isinstance(returned, dict) else returned)


def _keyed(schema: StateSchema | None) -> KeyedStateSchema:
    if not isinstance(schema, KeyedStateSchema):
        raise TypeError("this operator has no keyed state; declare `fields` or set self.state in prepare()")
    return schema


__all__ = [
    "BadTuple", "BatchInfo", "Field", "Operator", "OptionError", "Output", "Rows", "SetAside", "StateSchema",
    "TupleOperator", "TupleState",
]  # fmt: skip
