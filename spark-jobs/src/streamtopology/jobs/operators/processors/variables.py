"""ValueState, ListState and MapState of a processor: values of our store, loaded and written back once for all keys at hand.

What was loaded is never changed in place, so a key that fails is undone by what was loaded. With a TTL each value, item of
a list or item of a map has its time of expiry as the last field of its struct, as in Spark each expires by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.stateful_processor import ListState, MapState, ValueState

from streamtopology.jobs.operators.base import OperatorError
from streamtopology.jobs.operators.processors.spark_rows import row_class
from streamtopology.jobs.operators.processors.values import copied, decoded, encoded, has, is_flat, is_plain, owned_parts
from streamtopology.jobs.state import KeyedState
from streamtopology.jobs.state.value_types import parts_of

# The time of expiry of what never expires, and of timers that there are none of: milliseconds since 1970.
NEVER = np.iinfo(np.int64).max
_EXPIRES = "__expires"


class KeyAtHand(Protocol):
    """The key that a processor works on: its place among those that are loaded, the time, and when its state expires next."""

    at: int
    now: int
    expires: list[int]


class WrongVariables(OperatorError):
    """Values that state variables of a processor cannot hold. reasons: by the place of the key."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


class _Deleted:
    """The values of a variable that `deleteIfExists` took away: to ask for one is an error, as in Spark."""

    def __init__(self, what: str, name: str) -> None:
        self._what, self._name = what, name

    def __getitem__(self, place: int) -> Any:
        raise PySparkRuntimeError(f"Error checking {self._what} state exists: {self._name!r} was deleted by deleteIfExists")


class Variable:
    """The base of the three kinds. `held[handle.at]` is the value of the key at hand; None: it has none."""

    what: ClassVar[str]

    def __init__(self, handle: KeyAtHand, name: str, schema: pa.StructType, ttl: int | None) -> None:
        self.name, self.field_name, self.ttl = name, name, ttl
        self.held: Any = []
        self._loaded: Sequence[Any] = []
        self._handle, self._schema = handle, schema
        self._flat, self._width = is_flat(schema), len(schema)
        self._plain = is_plain(schema) and not ttl
        self._stored = pa.struct([*schema, pa.field(_EXPIRES, pa.int64())]) if ttl else schema

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of a key's value in the store."""
        return self._stored

    def check_expires(self, before: pa.DataType) -> None:
        """Raise OperatorError if values of this type, which a checkpoint has, never expire, but those of today do."""
        stored = before if pa.types.is_struct(before) else parts_of(before)[-1].type
        if self.ttl and stored.get_field_index(_EXPIRES) < 0:
            raise OperatorError(f"{self.what} state {self.name!r} had no TTL; give one to a variable of another name")

    def load(self, state: KeyedState, slots: np.ndarray) -> None:
        """Take in the values of the keys in these slots, int64[n]."""
        self._loaded = decoded(state.read(self.field_name, slots))
        self.held = list(self._loaded)

    def undo(self, place: int) -> None:
        """Give the key at `place` what was loaded."""
        if not isinstance(self.held, _Deleted):
            self.held[place] = self._loaded[place]

    def changed(self) -> tuple[list[int], pa.Array | None]:
        """The places of the keys that have another value now, and those values. Raises WrongVariables."""
        places = [place for place, (now, then) in enumerate(zip(self.held, self._loaded, strict=True)) if now is not then]
        values = [self.held[place] for place in places]
        try:
            return places, encoded(values, self.arrow_type) if places else None
        except ValueError:
            reasons = {place: self._misfit(value) for place, value in zip(places, values, strict=True)}
            raise WrongVariables({place: reason for place, reason in reasons.items() if reason}) from None

    def _misfit(self, value: Any) -> str | None:
        try:
            encoded([value], self.arrow_type)
        except ValueError as error:
            return f"{self.what} state {self.name!r} was given {value!r:.200}, which {self.arrow_type} cannot hold: {error}"
        return None

    def take_away(self) -> None:
        self.held = _Deleted(self.what, self.name)

    def clear(self) -> None:
        self.held[self._handle.at] = None

    def swept(self, value: Any, now: int) -> tuple[Any, int]:
        """What is left of a key's value at `now`, and when the first part of that expires."""
        raise NotImplementedError

    def _kept(self, value: Any) -> tuple[Any, ...]:
        """A value as it is stored: a tuple of its own, with its expiry."""
        if self._plain and value.__class__ is tuple and len(value) == self._width:
            return value
        if not isinstance(value, (tuple, list)) or len(value) != self._width:
            fields = ", ".join(f"{field.name}: {field.type}" for field in self._schema)
            raise OperatorError(f"{self.what} state {self.name!r} takes a tuple of ({fields}); it was given {value!r:.200}")
        own = owned_parts(value, self._schema)
        return (*own, self._expiry()) if self.ttl else own

    def _expiry(self) -> int:
        handle = self._handle
        expires = min(handle.now + (self.ttl or 0), NEVER)
        handle.expires[handle.at] = min(expires, handle.expires[handle.at])
        return expires

    def _given(self, value: Any) -> Any:
        """A stored value as the class gets it, to do with it what it likes."""
        if self.ttl:
            value = value[:-1]
        return value if self._flat else copied(value)

    def _lives(self, value: Any) -> bool:
        return not self.ttl or value[-1] > self._handle.now


class ValueVariable(Variable, ValueState):
    what = "value"

    def exists(self) -> bool:
        value = self.held[self._handle.at]
        return value is not None and self._lives(value)

    def get(self) -> Any:
        value = self.held[self._handle.at]
        if value is None or self._plain:
            return value
        return self._given(value) if self._lives(value) else None

    def update(self, newValue: Any) -> None:
        self.held[self._handle.at] = self._kept(newValue)

    def swept(self, value: Any, now: int) -> tuple[Any, int]:
        return (value, value[-1]) if value[-1] > now else (None, NEVER)


class _Collection(Variable):
    """A list or a dict a key; the first change in a batch makes one that is the batch's own."""

    def load(self, state: KeyedState, slots: np.ndarray) -> None:
        super().load(state, slots)
        self._own: set[int] = set()

    def undo(self, place: int) -> None:
        super().undo(place)
        self._own.discard(place)

    def _mine(self, made: type) -> Any:
        place = self._handle.at
        if place not in self._own or self.held[place] is None:
            self._own.add(place)
            self.held[place] = made(self.held[place] or ())
        return self.held[place]


class ListVariable(_Collection, ListState):
    what = "list"

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.list_(self._stored)

    def exists(self) -> bool:
        return any(map(self._lives, self.held[self._handle.at] or ()))

    def get(self) -> Iterator[Any]:
        return iter([self._given(item) for item in self.held[self._handle.at] or () if self._lives(item)])

    def put(self, newState: Sequence[Any]) -> None:
        self._own.add(self._handle.at)
        self.held[self._handle.at] = [self._kept(item) for item in newState] or None

    def appendValue(self, newState: Any) -> None:
        kept = self._kept(newState)
        self._mine(list).append(kept)

    def appendList(self, newState: Sequence[Any]) -> None:
        kept = [self._kept(item) for item in newState]
        if kept:
            self._mine(list).extend(kept)

    def swept(self, value: Any, now: int) -> tuple[Any, int]:
        left = [item for item in value if item[-1] > now]
        return (left, min(item[-1] for item in left)) if left else (None, NEVER)


class MapVariable(_Collection, MapState):
    what = "map"

    def __init__(self, handle: KeyAtHand, name: str, key: pa.StructType, schema: pa.StructType, ttl: int | None) -> None:
        if has(key, pa.types.is_list) or has(key, pa.types.is_map):
            raise PySparkRuntimeError(f"map state {name!r} has keys with a list or a map in them; make a text of that")
        super().__init__(handle, name, schema, ttl)
        self._key, self._row = key, row_class(tuple(schema.names))
        self._has_floats = has(key, pa.types.is_floating)
        self._plain_key = is_plain(key) and not self._has_floats

    def load(self, state: KeyedState, slots: np.ndarray) -> None:
        super().load(state, slots)
        if self._has_floats:
            self._loaded = [each and {self._kept_key(key): value for key, value in each.items()} for each in self._loaded]
            self.held = list(self._loaded)

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.map_(self._key, self._stored)

    def exists(self) -> bool:
        return any(map(self._lives, (self.held[self._handle.at] or {}).values()))

    def getValue(self, key: Any) -> Any:
        """A Row with names, as on Spark, whose other calls give tuples."""
        items = self.held[self._handle.at]
        value = None if items is None else items.get(self._kept_key(key))
        return None if value is None or not self._lives(value) else tuple.__new__(self._row, self._given(value))

    def containsKey(self, key: Any) -> bool:
        items = self.held[self._handle.at]
        value = None if items is None else items.get(self._kept_key(key))
        return value is not None and self._lives(value)

    def updateValue(self, key: Any, value: Any) -> None:
        name, kept = self._kept_key(key), self._kept(value)
        self._mine(dict)[name] = kept

    def iterator(self) -> Iterator[tuple[Any, Any]]:
        items = self.held[self._handle.at] or {}
        return iter([(key, self._given(value)) for key, value in items.items() if self._lives(value)])

    def keys(self) -> Iterator[Any]:
        return iter([key for key, _ in self.iterator()])

    def values(self) -> Iterator[Any]:
        return iter([value for _, value in self.iterator()])

    def removeKey(self, key: Any) -> None:
        if self.held[self._handle.at]:
            mine = self._mine(dict)
            mine.pop(self._kept_key(key), None)
            if not mine:
                self.clear()

    def swept(self, value: Any, now: int) -> tuple[Any, int]:
        left = {key: item for key, item in value.items() if item[-1] > now}
        return (left, min(item[-1] for item in left.values())) if left else (None, NEVER)

    def _kept_key(self, key: Any) -> tuple[Any, ...]:
        if self._plain_key and key.__class__ is tuple and len(key) == len(self._key):
            return key
        if not isinstance(key, (tuple, list)) or len(key) != len(self._key):
            raise OperatorError(f"map state {self.name!r} has keys of {len(self._key)} fields; it was given {key!r:.200}")
        return owned_parts(key, self._key)
