"""The handle that a processor gets in `init`: its state variables, and the timers of the key at hand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.stateful_processor import ListState, MapState, StatefulProcessorHandle, ValueState
from pyspark.sql.types import StructType

from streamtopology.jobs.connectors.sources.schema.ddl import ddl_to_arrow
from streamtopology.jobs.operators.base import OperatorError
from streamtopology.jobs.operators.processors.values import decoded
from streamtopology.jobs.operators.processors.variables import NEVER, ListVariable, MapVariable, ValueVariable, Variable
from streamtopology.jobs.state import Field, KeyedState

TIME_MODES = ("None", "ProcessingTime", "EventTime")
# Fields of the state beside those of the variables. A name with a space is none of a variable that Spark knows.
_TIMERS, NEXT_TIMER, NEXT_EXPIRY, _SEEN = "all timers", "next timer", "next expiry", "was seen"
_INT64 = np.dtype(np.int64)


def struct_of(schema: Any, where: str) -> pa.StructType:
    """The Arrow type of a schema of Spark, a StructType or DDL. Raises OperatorError, SchemaError."""
    if isinstance(schema, str):
        return pa.struct(list(ddl_to_arrow(schema)))  # Spark's parser is in the JVM, which tasks do not have
    if not isinstance(schema, StructType):
        raise OperatorError(f"{where} has the schema {schema!r:.80}; allowed: a StructType, or DDL such as 'count bigint'")
    return to_arrow_type(schema, timezone="UTC")


def left_behind(column: str, processor: str) -> str:
    """The sentence for a column of a checkpoint's state that the class does not have any more."""
    if column in (_TIMERS, NEXT_TIMER):
        return "it has timers, which timeMode None does not know: keep the timeMode of before"
    if column == NEXT_EXPIRY:
        return "it has variables with a TTL, and none has one now: keep the TTL"
    if column == _SEEN:
        return f"it is of a {processor} without state variables"
    return (
        f"{processor} declares no state variable {column!r}, which it has; handle.deleteIfExists({column!r}) in init drops it"
    )


class Handle(StatefulProcessorHandle):
    """`at`: the place of the key at hand among those that are loaded. `now`: processing time, milliseconds since 1970."""

    def __init__(self, time_mode: str, key: Sequence[str], now: int = 0) -> None:
        self.variables: dict[str, Variable] = {}
        self.deleted: set[str] = set()
        self.at, self.now = 0, now
        self._mode, self._key, self._in_init = time_mode, frozenset(key), True
        self.timers: list[list[int] | None] = []
        self.expires: list[int] = []
        self._loaded_timers: list[list[int] | None] = []
        self._loaded_expires: list[int] = []

    # What a processor calls -------------------------------------------------------------------------------------------

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ValueState:
        return self._declared(
            ValueVariable(self, stateName, self._schema(stateName, schema), self._ttl(stateName, ttlDurationMs))
        )

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ListState:
        return self._declared(
            ListVariable(self, stateName, self._schema(stateName, schema), self._ttl(stateName, ttlDurationMs))
        )

    def getMapState(self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None) -> MapState:
        key, value = self._schema(stateName, userKeySchema), self._schema(stateName, valueSchema)
        return self._declared(MapVariable(self, stateName, key, value, self._ttl(stateName, ttlDurationMs)))

    def deleteIfExists(self, stateName: str) -> None:
        self._refuse_after_init("deleteIfExists")
        self.deleted.add(stateName)
        if stateName in self.variables:
            self.variables.pop(stateName).take_away()

    def registerTimer(self, expiryTimestampMs: int) -> None:
        timer, known = int(expiryTimestampMs), self._timers_of_key()
        place = bisect_left(known, timer)
        if known[place : place + 1] != [timer]:
            self._own_timers(known).insert(place, timer)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        known = self._timers_of_key()
        place = bisect_left(known, expiryTimestampMs)
        if known[place : place + 1] == [expiryTimestampMs]:
            del self._own_timers(known)[place]
            self.timers[self.at] = self.timers[self.at] or None

    def listTimers(self) -> Iterator[int]:
        return iter(list(self._timers_of_key()))

    # What the operator calls ------------------------------------------------------------------------------------------

    def end_init(self) -> None:
        """`init` is over: no variable comes or goes any more."""
        self._in_init = False

    @property
    def is_timed(self) -> bool:
        """True if there may be timers."""
        return self._mode != "None"

    @property
    def expiring(self) -> list[Variable]:
        """The variables with a TTL."""
        return [variable for variable in self.variables.values() if variable.ttl]

    def fields(self) -> list[Field]:
        """The fields of the state of a key."""
        fields: list[Field] = [Field.of(variable.field_name, variable.arrow_type) for variable in self.variables.values()]
        if self.is_timed:
            fields += [Field.of(_TIMERS, pa.list_(pa.int64())), Field(NEXT_TIMER, _INT64, initial=NEVER, added=True)]
        if self.expiring:
            fields.append(Field(NEXT_EXPIRY, _INT64, initial=NEVER, added=True))
        return fields or [Field(_SEEN, np.dtype(np.bool_))]

    def load(self, state: KeyedState, slots: np.ndarray) -> None:
        """Take in the state of the keys in these slots, int64[n]."""
        for variable in self.variables.values():
            variable.load(state, slots)
        count = len(slots)
        self._loaded_timers = decoded(state.read(_TIMERS, slots)) if self.is_timed else [None] * count
        self._loaded_expires = state.column(NEXT_EXPIRY)[slots].tolist() if self.expiring else [NEVER] * count
        self.timers, self.expires = list(self._loaded_timers), list(self._loaded_expires)

    def undo(self, place: int) -> None:
        """Give the key at `place` the state that was loaded."""
        for variable in self.variables.values():
            variable.undo(place)
        self.timers[place], self.expires[place] = self._loaded_timers[place], self._loaded_expires[place]

    def store(self, state: KeyedState, slots: np.ndarray) -> None:
        """Write back what has changed; forget keys that have nothing left. Raises WrongVariables before anything is written."""
        for variable, (places, values) in [(each, each.changed()) for each in self.variables.values()]:
            if values is not None:
                state.write(variable.field_name, slots[places], values)
        changed = [place for place, timers in enumerate(self.timers) if timers is not self._loaded_timers[place]]
        if changed:
            timers = [self.timers[place] for place in changed]
            state.write(_TIMERS, slots[changed], pa.array(timers, pa.list_(pa.int64())))
            state.column(NEXT_TIMER)[slots[changed]] = [known[0] if known else NEVER for known in timers]
        if self.expiring:
            state.column(NEXT_EXPIRY)[slots] = self.expires
        columns = [*(variable.held for variable in self.variables.values()), self.timers]
        empty = [not any(value is not None for value in values) for values in zip(*columns, strict=True)]
        if any(empty):
            state.delete(slots[np.array(empty)])

    def sweep(self) -> None:
        """Drop what has expired of the keys that are loaded."""
        for place in range(len(self.expires)):
            self.expires[place] = NEVER
            for variable in self.expiring:
                if variable.held[place] is not None:
                    variable.held[place], expires = variable.swept(variable.held[place], self.now)
                    self.expires[place] = min(self.expires[place], expires)

    def _declared(self, variable: Any) -> Any:
        name = variable.name
        self._refuse_after_init(f"get{variable.what.capitalize()}State")
        if name in self.variables:
            raise PySparkRuntimeError(f"Error initializing {variable.what} state: {name!r} is declared twice")
        self.deleted.discard(name)
        if name in self._key:  # key columns and fields share one namespace
            variable.field_name = f"{name} (state)"
        self.variables[name] = variable
        return variable

    def _refuse_after_init(self, what: str) -> None:
        if not self._in_init:
            raise PySparkRuntimeError(f"{what} is called outside of init(); call it there")

    def _schema(self, name: str, schema: Any) -> pa.StructType:
        return struct_of(schema, f"state variable {name!r}")

    def _ttl(self, name: str, ttl: int | None) -> int | None:
        if ttl is not None and self._mode != "ProcessingTime":
            raise OperatorError(
                f"state variable {name!r} has a TTL, which counts processing time; set timeMode: ProcessingTime"
            )
        if ttl is not None and (not isinstance(ttl, (int, np.integer)) or ttl < 0):
            raise OperatorError(
                f"state variable {name!r} has the TTL {ttl!r:.80}; allowed: a whole number of milliseconds, or 0 for none"
            )
        return ttl and int(ttl)

    def _timers_of_key(self) -> list[int]:
        if not self.is_timed:
            raise PySparkRuntimeError("Timers are not supported with timeMode None; set ProcessingTime or EventTime")
        return self.timers[self.at] or []

    def _own_timers(self, known: list[int]) -> list[int]:
        """The timers of the key at hand, `known`, as a list of this batch, which may change."""
        if self.timers[self.at] is None or known is self._loaded_timers[self.at]:
            self.timers[self.at] = known = list(known)
        return known
