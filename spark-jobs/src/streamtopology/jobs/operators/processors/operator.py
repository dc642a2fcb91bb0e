"""A StatefulProcessor of PySpark as an operator.

As in Spark, the object is made anew for every batch from what was pickled once, and what outlasts a batch is state. Each key
gets all its rows of a batch in one call. After them come the timers that the watermark or the clock has reached.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, TimerValues

from streamtopology.jobs.columnar.event_times import LAST_SECOND, event_micros
from streamtopology.jobs.operators.base import REPETITIONS, BadTuple, BatchInfo, Operator, OperatorError, Output, Rows
from streamtopology.jobs.operators.options import MissingOption, OptionError, key_schema, one_of, require_column
from streamtopology.jobs.operators.processors.calls import FORMS, Calls
from streamtopology.jobs.operators.processors.handle import NEXT_EXPIRY, NEXT_TIMER, TIME_MODES, Handle, left_behind, struct_of
from streamtopology.jobs.operators.processors.variables import NEVER
from streamtopology.jobs.operators.windows import check_time_column, closed_micros, watermark_micros
from streamtopology.jobs.state import KeyedState, KeyedStateSchema
from streamtopology.jobs.users_code.line import users_line
from streamtopology.topology.schema import SchemaError

_LAST_MILLIS = LAST_SECOND * 1000 + 999


class StatefulProcessorOperator(Operator):
    """The processor `processor_class`; made by `operator_of`.

    output: the columns of its rows, as DDL. timeMode: None, ProcessingTime or EventTime, in which `time` names the column of
    event times. form: `rows` as for transformWithState, `pandas` as for transformWithStateInPandas. initialState: the input
    whose rows of the first batch go to handleInitialState. args: what the class is made with.
    """

    processor_class: type[StatefulProcessor]
    zone = "UTC"
    is_of_groups = False
    emits_behind_watermark = True
    drops_late_rows = True

    def __init__(
        self,
        output: str,
        timeMode: str = "None",
        time: str | None = None,
        form: str = "rows",
        initialState: str | None = None,
        args: Mapping[str, Any] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self._mode = one_of(timeMode, TIME_MODES, "timeMode")
        if (self._mode == "EventTime") != (time is not None):
            raise MissingOption("option 'time', the column of event times, goes with timeMode: EventTime", "time")
        self._time, self._initial = time, initialState
        try:
            self.output = pa.schema(list(struct_of(output, "option 'output'")))
        except SchemaError as error:
            raise OptionError(f"option 'output': {error}", about="output") from error
        self._form = FORMS[one_of(form, tuple(FORMS), "form")](self.output, self._name, self.zone, self.is_of_groups)
        self._pickled = self._pickled_with(args or {})
        self._calls: Calls | None = None
        self._due: float | None = None

    def _pickled_with(self, args: Mapping[str, Any]) -> bytes:
        try:
            return cloudpickle.dumps(self.processor_class(**args))
        except Exception as error:
            raise OptionError(
                f"{self._name}({', '.join(args)}) cannot be made or pickled: {type(error).__name__}: {error}", about="args"
            ) from error

    @property
    def _name(self) -> str:
        return self.processor_class.__name__

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        self._check_inputs(inputs)
        self._key = key
        handle = self._initialised(Handle(self._mode, key))[1]
        self._deleted, self._declared = frozenset(handle.deleted), tuple(handle.variables.values())
        self.state = KeyedStateSchema(tuple(handle.fields()), key_schema(inputs, key, self.renamed_keys), self.upgrade)
        self._expires = bool(handle.expiring)
        return self.output

    def _check_inputs(self, inputs: Mapping[str, pa.Schema]) -> None:
        if self._initial is not None and (self._initial not in inputs or len(inputs) < 2):
            raise OptionError(
                f"option 'initialState' is {self._initial!r}; allowed: one of two inputs or more, {', '.join(inputs)}",
                about="initialState",
            )
        given = {alias: schema for alias, schema in inputs.items() if alias != self._initial}
        first = next(iter(given))
        for alias, schema in given.items():
            if not schema.equals(given[first]):
                raise OptionError(f"inputs {first!r} and {alias!r} have other columns; {self._name} gets rows of one kind")
        if self._time is not None:
            check_time_column(self._time, require_column(inputs, self._time, first).type)

    def _initialised(self, handle: Handle) -> tuple[StatefulProcessor, Handle]:
        processor = cloudpickle.loads(self._pickled)
        try:
            processor.init(handle)
        except (OperatorError, SchemaError) as error:
            raise OptionError(f"{self._name}.init: {error}") from error
        except Exception as error:
            where = users_line(self.processor_class, error)
            raise OptionError(f"{self._name}.init raised {type(error).__name__}: {error}{where}") from error
        handle.end_init()
        return processor, handle

    def upgrade(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """State of before, without the variables that the class has deleted since. Raises OperatorError."""
        rows = rows.select([name for name in rows.schema.names if name not in self._deleted])
        assert isinstance(self.state, KeyedStateSchema)
        known = {column.name for column in self.state.columns()}
        for column in rows.schema:
            if column.name not in known:
                raise OperatorError(left_behind(column.name, self._name))
        for variable in self._declared:
            if variable.field_name in rows.schema.names:
                variable.check_expires(rows.schema.field(variable.field_name).type)
        return rows

    def arranged(self, arrivals: Sequence[Rows]) -> Sequence[Rows]:
        initial = [rows for rows in arrivals if rows.input == self._initial and len(rows)]
        others = [rows for rows in arrivals if rows.input != self._initial and len(rows)]
        return [self._joined(rows) for rows in (initial, others) if rows]

    def _joined(self, arrivals: Sequence[Rows]) -> Rows:
        """All rows of some arrivals, which differ at most in what they call the key."""
        if len(arrivals) == 1:
            return arrivals[0]
        first = arrivals[0]
        table = pa.Table.from_batches([rows.batch for rows in arrivals]).combine_chunks()
        return Rows.of(table.to_batches()[0], first.input, self.renamed_keys.get(first.input, self._key))

    def begin(self, batch: BatchInfo) -> None:
        super().begin(batch)
        self._calls = None

    def _of_this_batch(self) -> Calls:
        """The processor of this batch, made when there is something for it to do."""
        if self._calls is None:
            now = round((self.batch.now or 0) * 1000)
            processor, handle = self._initialised(Handle(self._mode, self._key, now))
            times = TimerValues(-1, -1) if self._mode == "None" else TimerValues(now, self._watermark)
            self._calls = Calls(processor, handle, times, self._form, self._key)
        return self._calls

    @property
    def _watermark(self) -> int:
        """Whole milliseconds since 1970, as Spark counts it."""
        return _LAST_MILLIS if self.batch.final else (watermark_micros(self.batch) or 0) // 1000

    def process(self, rows: Rows, state: Any) -> Output:
        return self.accept(rows, state)

    def accept(self, rows: Rows, state: Any, dead_letter: bool = False) -> Output:
        """Call the processor for each key with all its rows. A key whose call raises has all its rows set aside."""
        if rows.input == self._initial and self.batch.number:
            raise OperatorError(
                f"rows of {self._initial!r}, the initial state, came in batch {self.batch.number}; all of them have to come in "
                "the first batch: raise the limits of its source, and start over with --fresh"
            )
        on_time = self._on_time(rows)
        kept = self.leave_out_late(rows, on_time)
        self.last_tuple_seconds = np.zeros(len(rows))
        if not len(kept):
            return None
        what = "initial_state" if rows.input == self._initial else "input_rows"
        tries = 1 + REPETITIONS if dead_letter else 1
        slots = state.slots(kept.keys)
        called = self._of_this_batch().with_rows(what, kept.batch, slots, state, tries, self.iterations_per_tuple)
        self.last_tuple_seconds[on_time] = called.seconds
        for reason, places in called.failed:
            if not dead_letter:
                raise BadTuple(on_time[places], reason)
            self.put_aside(kept, places, reason)
        return called.output

    def _on_time(self, rows: Rows) -> np.ndarray:
        """int64[m]: the places of the rows that are not late: after the watermark of the batch before, as in Spark.

        One without an event time is never late.
        """
        closed = closed_micros(self.batch, lateness=0)
        if self._time is None or closed is None or rows.input == self._initial:
            return np.arange(len(rows))
        times, valid = event_micros(rows.column(self._time))
        is_late = times <= closed // 1000 * 1000
        return np.flatnonzero(~is_late if valid is None else ~is_late | ~valid)

    def finish(self, batch: BatchInfo, state: KeyedState) -> Output:
        """Fire timers, drop what has expired."""
        output = None
        if self._mode != "None" and len(state):
            until = self._watermark if self._mode == "EventTime" else round((batch.now or 0) * 1000)
            if self._least(state, NEXT_TIMER) <= until:
                output = self._of_this_batch().with_timers(state, until)
        if self._expires and len(state) and self._least(state, NEXT_EXPIRY) <= round((batch.now or 0) * 1000):
            self._of_this_batch().sweep(state)
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        least = self._least(state, NEXT_TIMER) if self._mode != "None" else NEVER
        self._due = None if least == NEVER else least / 1000
        return output

    def _least(self, state: KeyedState, field: str) -> int:
        return int(state.column(field)[state.live()].min(initial=NEVER))

    @property
    def due(self) -> float | None:
        return self._due if self._mode == "EventTime" else None

    @property
    def due_at(self) -> float | None:
        return self._due if self._mode == "ProcessingTime" else None

    def shown(self, state: KeyedState, slots: np.ndarray) -> pa.RecordBatch:
        """Without the times at which something is next to be done: they say nothing that the variables and timers do not."""
        rows = super().shown(state, slots)
        return rows.select([name for name in rows.schema.names if name not in (NEXT_TIMER, NEXT_EXPIRY)])


def operator_of(processor: type[StatefulProcessor]) -> type[Operator]:
    """The operator class that runs a class of processors."""
    return type(processor.__name__, (StatefulProcessorOperator,), {"processor_class": processor, "__doc__": processor.__doc__})


class PickledProcessor(StatefulProcessorOperator):
    """A processor that a script has made.

    pickled: the object, by cloudpickle and in base64. zone: of the script's session.
    """

    def __init__(self, pickled: str, zone: str = "UTC", **options: Any) -> None:
        self._given, self.zone = base64.b64decode(pickled), zone
        processor = cloudpickle.loads(self._given)
        self.processor_class, self.is_of_groups = type(processor), hasattr(processor, "function_of_groups")
        super().__init__(**options)

    def _pickled_with(self, args: Mapping[str, Any]) -> bytes:
        return self._given
