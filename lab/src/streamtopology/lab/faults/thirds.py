"""An operator as users write it, for simulated topologies: it emits, deletes keys, and cannot process some tuples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from streamtopology.jobs.operators.base import BadTuple, Operator, Output, Rows
from streamtopology.jobs.operators.options import key_schema
from streamtopology.jobs.state import Field, KeyedState

TEXTS = pa.list_(pa.string())


def raises_on(value: int) -> bool:
    """True for the values on which `Thirds` raises an error, which says nothing about the tuple."""
    return value % 17 == 3


def is_named_bad(value: int) -> bool:
    """True for the values of tuples that `Thirds` names as bad."""
    return value % 23 == 5


def text_of(key: int) -> str:
    """The text that `Thirds` keeps for each tuple of a key."""
    return f"a tuple of {key}"


class Thirds(Operator):
    """Emits a key with each third of its tuples, and forgets it then. Keeps a text for each tuple, to see that none is lost."""

    fields = (Field("tuples", np.dtype(np.int64)), Field.of("texts", TEXTS))

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        super().prepare(inputs, key)
        self.output = key_schema(inputs, key)
        return self.output

    def process(self, rows: Rows, state: KeyedState) -> Output:
        """Raise an error after the state has changed: the runtime undoes it."""
        values = rows.column("v").to_pylist()
        named = np.array([is_named_bad(value) for value in values])
        if named.any():
            raise BadTuple(named, "a bad value")
        assert rows.keys is not None
        slots = state.slots(rows.keys)
        np.add.at(state.column("tuples"), slots, 1)
        if any(map(raises_on, values)):
            raise ZeroDivisionError("division by zero")
        touched = np.unique(slots)
        state.write("texts", touched, self._grown(state, touched, np.bincount(slots)[touched]))
        thirds = state.column("tuples")[touched] // 3
        state.column("tuples")[touched] -= 3 * thirds
        state.write("texts", touched, _texts_of(state, touched))
        emitted = state.keys(np.repeat(touched, thirds))
        state.delete(touched[state.column("tuples")[touched] == 0])
        return pa.RecordBatch.from_arrays(emitted, schema=self.output)

    def _grown(self, state: KeyedState, slots: np.ndarray, by: np.ndarray) -> pa.Array:
        """The texts of keys that had `by` more tuples; checks those from before."""
        now = _texts_of(state, slots)
        before = [texts[: len(texts) - more] for texts, more in zip(now.to_pylist(), by.tolist(), strict=True)]
        held = [texts or [] for texts in state.read("texts", slots).to_pylist()]
        assert held == before, f"texts in the state are {held}, and were {before}"
        return now


def _texts_of(state: KeyedState, slots: np.ndarray) -> pa.Array:
    """A text for each tuple of each key."""
    (keys,), counts = state.keys(slots), state.column("tuples")[slots].tolist()
    return pa.array([[text_of(key)] * count for key, count in zip(keys.to_pylist(), counts, strict=True)], TEXTS)
