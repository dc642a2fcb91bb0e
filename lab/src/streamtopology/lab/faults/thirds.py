"""An operator as users write it, for simulated topologies: it emits, deletes keys, and cannot process some tuples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from streamtopology.jobs.operators.base import BadTuple, Operator, Output, Rows
from streamtopology.jobs.operators.options import key_schema
from streamtopology.jobs.state import Field, KeyedState


def raises_on(value: int) -> bool:
    """True for the values on which `Thirds` raises an error, which says nothing about the tuple."""
    return value % 17 == 3


def is_named_bad(value: int) -> bool:
    """True for the values of tuples that `Thirds` names as bad."""
    return value % 23 == 5


class Thirds(Operator):
    """Emits a key with each third of its tuples, and forgets it then."""

    fields = (Field("tuples", np.dtype(np.int64)),)

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
        thirds = state.column("tuples")[touched] // 3
        state.column("tuples")[touched] -= 3 * thirds
        emitted = state.keys(np.repeat(touched, thirds))
        state.delete(touched[state.column("tuples")[touched] == 0])
        return pa.RecordBatch.from_arrays(emitted, schema=self.output)
