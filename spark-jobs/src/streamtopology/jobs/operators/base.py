"""The operator interface: batches of tuples in, rows out, with keyed state between them.

An operator gets the tuples of its keys as Arrow batches (`process`), keeps what outlasts a batch in its state, and is called
once more at the end of each batch (`finish`). `tuple_operator.TupleOperator` works on one tuple at a time. Users import
all of it from `streamtopology.api`.
"""

from __future__ import annotations

import inspect
import time
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from streamtopology.contract.errors import InvalidInput, StreamTopologyError
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.operators.behind import UNBOUNDED, Behind
from streamtopology.jobs.operators.options import (
    NONE_RENAMED,
    MissingOption,
    OptionError,
    UnknownOption,
    key_schema,
    seconds_of,
)
from streamtopology.jobs.state import LAST_WRITTEN, Field, KeyedState, KeyedStateSchema, StateSchema

if TYPE_CHECKING:
    from streamtopology.jobs.operators import declared_cost, kernels
else:
    declared_cost = LazyModule("streamtopology.jobs.operators.declared_cost")
    kernels = LazyModule("streamtopology.jobs.operators.kernels")

# Rows that an operator emits, of its schema `output`; None for none.
Output: TypeAlias = pa.RecordBatch | pa.Table | None

COMMON_OPTIONS = ("costPerTuple", "ttl")
# The most CPU that can be declared for one tuple: the loop turns of a whole batch are a number of 64 bits.
MOST_COST_SECONDS = 3600.0

# Full memory, disk and network are no tuple's fault, whatever tuple meets them. ConnectionError, TimeoutError are OSErrors.
ERRORS_OF_NO_TUPLE = (MemoryError, OSError)

# The number of times that a tuple is run again before an error is its fault: a service may be away for a moment.
REPETITIONS = 3


class BadTuple(StreamTopologyError):
    """Raised by `process` for tuples that cannot be processed, before it touches the state.

    rows: their positions in the `Rows` given to `process`, an int or int64[b] in any order, or a mask, bool[n] of numpy or
    Arrow, in which NULL counts as false. reason: why, for people. With `onBadTuple: deadLetter` the other tuples are
    processed without them, else the run stops and names them. Anything else as `rows` ends the run with an OperatorError.

    >>> bad = BadTuple([0, 2], "negative duration")
    >>> bad.rows, bad.reason
    (array([0, 2]), 'negative duration')
    >>> BadTuple(np.array([True, False, True]), "negative duration").places(3)
    array([0, 2])
    """

    def __init__(self, rows: int | Sequence[int] | np.ndarray | pa.Array | pa.ChunkedArray, reason: str) -> None:
        super().__init__(reason)
        given = np.asarray(_without_nulls(rows))
        self.rows = np.atleast_1d(given if given.size or given.dtype.kind == "b" else given.astype(np.int64))
        self.reason = reason

    def places(self, count: int) -> np.ndarray:
        """int64[b]: the positions, ascending, each once, among `count` tuples. Raises ValueError for other than positions."""
        rows = self.rows
        if rows.ndim != 1:
            raise ValueError(f"an array of {rows.ndim} dimensions; give it positions in one, as np.flatnonzero(mask)")
        if rows.dtype.kind == "b":
            if len(rows) != count:
                raise ValueError(f"a mask of {len(rows)}; give it one value for each of the {count} tuples")
            return np.flatnonzero(rows)
        if rows.dtype.kind not in "iu":
            raise ValueError(f"{rows.tolist()!r:.60} of type {rows.dtype}; give it positions, whole numbers, or a boolean mask")
        beyond = rows[(rows < 0) | (rows >= count)]
        if beyond.size:
            raise ValueError(f"the position {beyond[0]}; give it positions from 0 to {count - 1}, those of `rows`")
        return np.unique(rows).astype(np.int64)


def _without_nulls(rows: Any) -> Any:
    """`rows`, in a mask of Arrow false for NULL."""
    if isinstance(rows, (pa.Array, pa.ChunkedArray)) and pa.types.is_boolean(rows.type):
        return rows.fill_null(False)
    return rows


class OperatorError(InvalidInput):
    """A class of operators that cannot work, whatever its options; the message says what to change in it."""


class UnusableBadTuple(OperatorError):
    """A BadTuple that does not name tuples: the class is at fault, whatever tuples it gets."""


@dataclass(frozen=True)
class Rows:
    """Tuples of one input for one instance.

    batch: the tuples, with the columns of the input's schema. input: the input's name or alias in the manifest. keys: the key
    of each tuple, None when the operator has no key.

    >>> rows = Rows.of(pa.record_batch({"sensor": [7, 8], "celsius": [20.5, 3.0]}), "readings", key=("sensor",))
    >>> len(rows), rows.column("celsius").to_pylist()
    (2, [20.5, 3.0])
    """

    batch: pa.RecordBatch
    input: str
    keys: KeyColumns | None = None

    @staticmethod
    def of(batch: pa.RecordBatch, input: str, key: Sequence[str] = ()) -> Rows:
        """The tuples of `batch`, keyed by the columns `key`. Raises KeyTypeError for a column that cannot be a key."""
        return Rows(batch, input, KeyColumns.from_arrow(batch, key) if key else None)

    def __len__(self) -> int:
        return self.batch.num_rows

    def column(self, name: str) -> pa.Array:
        """The values of column `name`, one a tuple."""
        return self.batch.column(self.batch.schema.get_field_index(name))

    def take(self, places: np.ndarray) -> Rows:
        """The tuples at positions `places` (int64[m]), in that order."""
        keys = None if self.keys is None else self.keys.take(places)
        return Rows(self.batch.take(pa.array(places)), self.input, keys)


@dataclass(frozen=True)
class BatchInfo:
    """The micro-batch that is processed.

    number: from 0, one more for each committed batch. watermark: seconds since 1970; windows that end at or before it close
    in this batch; None before the first event time. final: the input has ended for good, so every window closes. flush:
    operators that gather parts of a key's state emit them. closed_until: the watermark of the batch before; a tuple whose
    window ended at or before it is late, since that window is closed. forgotten_until: where the operator's allowedLateness was
    raised between two runs, the end of the windows that it had forgotten by then; None otherwise. now: processing time, seconds
    since 1970 by the driver's clock: the same for all instances, and never earlier than in a batch before.

    >>> BatchInfo(number=3, watermark=1_700_000_000.0).final
    False
    """

    number: int
    watermark: float | None = None
    final: bool = False
    flush: bool = True
    closed_until: float | None = None
    forgotten_until: float | None = None
    now: float | None = None


@dataclass(frozen=True)
class SetAside:
    """Tuples of one input that an operator could not process (`batch`), with the reason."""

    batch: pa.RecordBatch
    input: str
    reason: str


class _Checking(ABCMeta):
    """Checks objects as they are made. Raises OptionError for a missing or unknown option, OperatorError for a class at fault.

    An ABCMeta, so that `class Base(Operator, ABC)` may have abstract methods.
    """

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if cls.__abstractmethods__:
            missing = ", ".join(sorted(cls.__abstractmethods__))
            raise OperatorError(f"{cls.__name__} is abstract; override {missing}, or name a class that does")
        try:
            inspect.signature(cls.__init__).bind(None, *args, **options)
        except TypeError as error:
            missing = [] if args else [name for name in required_options(cls) if name not in options]
            if missing:
                allowed = ", ".join(option_names(cls))
                raise MissingOption(f"option {missing[0]!r} is missing; allowed: {allowed}", missing[0]) from None
            unknown = [name for name in options if name not in option_names(cls)]
            raise UnknownOption(unknown[0], option_names(cls)) if unknown else OptionError(str(error)) from None
        made = super().__call__(*args, **options)
        if not hasattr(made, "cost_per_tuple"):
            raise OperatorError(f"{cls.__name__} skips the __init__ of Operator; call super().__init__(**common) in its own")
        return made


class Operator(metaclass=_Checking):
    """An operator that works on batches of tuples. Override `process` and, where needed, the other methods.

    The manifest's `with` arrives as keyword arguments: `def __init__(self, limit=3, **common)`, then
    `super().__init__(**common)`. Each worker creates its own object, so keep what outlasts a batch in the state. Reset in
    `begin` what you keep on `self` during a batch: a failed batch is retried.

    >>> class Seen(Operator):
    ...     fields = (Field("count", np.int64, merge="sum"),)
    ...     def process(self, rows, state):
    ...         np.add.at(state.column("count"), state.slots(rows.keys), 1)
    >>> operator, batch = Seen(), pa.record_batch({"sensor": [7, 7, 8]})
    >>> operator.prepare({"readings": batch.schema}, ("sensor",))
    >>> state = KeyedState(operator.state)
    >>> operator.begin(BatchInfo(number=0))
    >>> operator.accept(Rows.of(batch, "readings", ("sensor",)), state)
    >>> state.snapshot().to_pylist()
    [{'sensor': 7, 'count': 2}, {'sensor': 8, 'count': 1}]
    """

    # The state of each key. Override `prepare` where it depends on options or columns.
    fields: tuple[Field, ...] = ()
    # The schema of the rows that `process` and `finish` return; None when they return none.
    output: pa.Schema | None = None
    # True: a key's state may be gathered in parts and combined, so a grouping may split keys over instances.
    combinable: ClassVar[bool] = False
    # True: late rows, whose window is closed, are left out.
    drops_late_rows: ClassVar[bool] = False
    # True: the option `ttl` is the operator's own; else keys are forgotten for it.
    forgets_by_itself: ClassVar[bool] = False
    # True: emitted rows have event times of before the watermark. An operator that leaves out late rows cannot follow, unless
    # `behind` is overridden and says how long before.
    emits_behind_watermark: ClassVar[bool] = False
    # The schema of the state, set by `prepare`; None for an operator without state.
    state: StateSchema | None = None
    # The key columns of those inputs that call them otherwise; set before `prepare`.
    renamed_keys: Mapping[str, tuple[str, ...]] = NONE_RENAMED
    # The manifest's folder, for files that options name; set before `prepare`.
    base_dir: Path = Path()

    def __init__(self, **options: Any) -> None:
        unknown = sorted(set(options) - set(COMMON_OPTIONS))
        if unknown:
            raise UnknownOption(unknown[0], option_names(type(self)))
        cost = options.get("costPerTuple", 0)
        self.cost_per_tuple = seconds_of(cost, "costPerTuple")
        if self.cost_per_tuple > MOST_COST_SECONDS:
            raise OptionError(f"option 'costPerTuple' is {cost!r}; allowed: at most an hour, 1h", about="costPerTuple")
        # Seconds of processing time after which a key whose state nothing has written is forgotten; None: never.
        self.ttl = None if options.get("ttl") is None else seconds_of(options["ttl"], "ttl")
        self.iterations_per_second = 0.0
        self.batch = BatchInfo(-1)
        self.late_rows = 0
        self.late_schema: pa.Schema | None = None
        self.late: list[pa.RecordBatch] = []
        self.set_aside: list[SetAside] = []
        self.last_tuple_seconds: np.ndarray | None = None

    # What an operator may override ------------------------------------------------------------------------------------

    @classmethod
    def leaves_out_late(cls, options: Mapping[str, Any]) -> bool:
        """True if late rows are left out under these options, those of the manifest."""
        return cls.drops_late_rows

    @classmethod
    def reads_mentioned_columns(cls, options: Mapping[str, Any]) -> bool:
        """True if it reads no column of its tuples but the key's and those that its options mention: others are not sent."""
        return False

    @classmethod
    def event_time(cls, options: Mapping[str, Any], input: str) -> str | None:
        """The column by which tuples of an input are late under these options, those of the manifest; None: not known."""
        time = options.get("time")
        found = time.get(input) if isinstance(time, Mapping) else time
        return found if isinstance(found, str) else None

    @classmethod
    def behind(cls, options: Mapping[str, Any], given: Behind, own: float) -> Behind:
        """How far emitted rows are behind the watermark under these options, those of the manifest.

        given: what is so of the tuples of all inputs. own: the seconds by which the batches of this operator have an earlier
        watermark therefore.
        """
        return Behind(others=UNBOUNDED) if cls.emits_behind_watermark else given

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        """Check columns, set `self.state` and `self.output`, and return the schema of emitted rows (None: emits none).

        inputs: input name -> its schema. key: the names of the key columns, empty when the operator has no key. Raises
        OptionError when an option or column does not fit.
        """
        if self.fields:
            self.state = KeyedStateSchema(self.fields, key_schema(inputs, key, self.renamed_keys), self.upgrade)
        return self.output

    def begin(self, batch: BatchInfo) -> None:
        """Reset what is kept on `self` for one batch. Called before the first tuple of each attempt at a batch."""
        self.batch = batch
        self.late_rows = 0
        self.late = []
        self.set_aside = []

    def arranged(self, arrivals: Sequence[Rows]) -> Sequence[Rows]:
        """The tuples of a batch in the order, and in the pieces, in which `process` is to get them."""
        return arrivals

    def process(self, rows: Rows, state: Any) -> Output:
        """Process tuples of one input; called any number of times per batch. Returns rows to emit, or None.

        state: a KeyedState or RowState by `self.state`, None for an operator without state. Raises BadTuple for tuples that
        cannot be processed.
        """
        raise NotImplementedError(f"{type(self).__name__} has no process(); override it")

    def finish(self, batch: BatchInfo, state: Any) -> Output:
        """Called once after the last tuple of a batch. Returns rows to emit, or None."""
        return None

    def combine(self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch) -> None:
        """Fold partial values into the state: row i of `partial` into slot `slots[i]` (int64[n]).

        partial: one column per field. The default follows the fields' `merge`: sum, min or max.
        """
        for field in _keyed(self.state).fields:
            if field.merge is None:
                raise TypeError(f"field {field.name!r} of {type(self).__name__} has no merge; override combine()")
            kernels.combine_into(state.column(field.name), slots, field_values(partial, field), field.merge)

    def shown(self, state: KeyedState, slots: np.ndarray) -> pa.RecordBatch:
        """The state of the keys in these slots (int64[]) as people read it: `streamtopology state get` prints it.

        Override it where the fields are not what users of the operator know.
        """
        shown = [field.name for field in state.schema.fields if field.name != LAST_WRITTEN]
        fields = [(name, state.read(name, slots)) for name in shown]
        names = [*state.schema.key_types.names, *(name for name, _ in fields)]
        return pa.RecordBatch.from_arrays([*state.keys(slots), *(array for _, array in fields)], names=names)

    def upgrade(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Convert state that an earlier version of this class wrote: key columns and its fields, one row a key.

        Called only for files whose columns are not those of `fields`. The rows returned may lack fields that are `added`, or
        have narrower numbers; keys and their order stay. A `prepare` that sets `self.state` itself passes
        `KeyedStateSchema(..., upgrade=self.upgrade)`.
        """
        return rows

    def tuple_weights(self, rows: Rows) -> np.ndarray | None:
        """The share of the work that each tuple caused, float64[n] of any scale; None: equal shares."""
        return None

    # What the runtime calls -------------------------------------------------------------------------------------------

    def declare_cost(self, iterations_per_second: float) -> None:
        """Set the loop turns per declared CPU second, equal on all executors; see `declared_cost.iterations_for(1.0)`."""
        self.iterations_per_second = iterations_per_second

    @property
    def iterations_per_tuple(self) -> int:
        """Loop turns that stand for the declared cost of one tuple."""
        return round(self.cost_per_tuple * self.iterations_per_second)

    def accept(self, rows: Rows, state: Any, dead_letter: bool = False) -> Output:
        """Do the declared work, then `process`. Sets `last_tuple_seconds` (float64[n]) where tuples differ in cost.

        A BadTuple is raised, or with `dead_letter` put into `self.set_aside`, and the other tuples are processed.
        """
        self.last_tuple_seconds = None
        started, late = time.perf_counter(), (self.late_rows, len(self.late))
        declared_cost.burn(len(rows), self.iterations_per_tuple)
        try:
            emitted = self.process(rows, state)
        except BadTuple as bad:
            places = self._places_of(bad, len(rows))
            if not dead_letter or not len(places):
                raise
            self.put_aside(rows, places, bad.reason)
            self.late_rows, self.late[late[1] :] = late[0], []  # the others are processed again, late ones included
            good = np.delete(np.arange(len(rows)), places)
            return self.process(rows.take(good), state) if len(good) else None
        weights = self.tuple_weights(rows)
        if weights is not None and len(rows):
            share = weights / weights.sum() if weights.sum() > 0 else np.full(len(rows), 1 / len(rows))
            self.last_tuple_seconds = share * (time.perf_counter() - started)
        return emitted

    def _places_of(self, bad: BadTuple, count: int) -> np.ndarray:
        try:
            return bad.places(count)
        except ValueError as error:
            raise UnusableBadTuple(f"{type(self).__name__} raises BadTuple({bad.reason!r:.80}) with {error}") from bad

    @property
    def due(self) -> float | None:
        """After `finish`: the event time (seconds since 1970) at which the next `finish` has something to emit.

        A batch without rows runs once the watermark has reached it and no rows come. None: nothing, without new tuples.
        """
        return None

    @property
    def due_at(self) -> float | None:
        """After `finish`: the processing time (seconds since 1970) at which the next `finish` has something to emit.

        A batch without rows runs once the driver's clock has reached it and no rows come. None: nothing, without new tuples.
        """
        return None

    def leave_out_late(self, rows: Rows, places: np.ndarray) -> Rows:
        """The tuples at `places` (int64[m], ascending). The others are late: counted, and kept for the sink of late rows."""
        if len(places) == len(rows):
            return rows
        self.late_rows += len(rows) - len(places)
        if self.late_schema is not None:
            late = rows.batch.take(pa.array(np.delete(np.arange(len(rows)), places)))
            columns = [
                late.column(field.name) if field.name in late.schema.names else pa.nulls(late.num_rows, field.type)
                for field in self.late_schema
            ]
            self.late.append(pa.RecordBatch.from_arrays(columns, schema=self.late_schema))
        return rows.take(places)

    def put_aside(self, rows: Rows, places: np.ndarray, reason: str) -> None:
        """Note the tuples at `places` (int64[b]) as not processed."""
        self.set_aside.append(SetAside(rows.batch.take(pa.array(places)), rows.input, reason))


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


def required_options(cls: type) -> list[str]:
    """The names that `with` must carry for `cls`."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in variable and p.name != "self"]


def field_values(partial: pa.RecordBatch, field: Field) -> np.ndarray:
    """Field `field` of `partial` as an array of shape (n, *field.shape)."""
    return field.to_numpy(partial.column(partial.schema.get_field_index(field.name)))


def _keyed(schema: StateSchema | None) -> KeyedStateSchema:
    if not isinstance(schema, KeyedStateSchema):
        raise TypeError("this operator has no keyed state; declare `fields` or set self.state in prepare()")
    return schema
