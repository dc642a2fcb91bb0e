"""What all built-in aggregates share: state per key, and what they emit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs import expressions
from streamtopology.jobs.operators.base import BatchInfo, Operator, OptionError, Output, Rows, key_schema, one_of
from streamtopology.jobs.state import Field, KeyedState, KeyedStateSchema

EMITS = ("updates", "tuples", "nothing")


class KeyedAggregate(Operator):
    """Folds tuples into fields per key.

    emit `updates`: one row per key that had tuples in the batch, when it ends. `tuples`: every tuple, as it passes,
    narrowed by the SQL expressions of `select`. `nothing`: only the state is of interest.
    """

    combinable = True

    def __init__(self, emit: str = "updates", select: list[str] | None = None, **common: Any) -> None:
        super().__init__(**common)
        self.emit = one_of(emit, EMITS, "emit")
        if select and self.emit != "tuples":
            raise OptionError("option 'select' narrows the tuples that pass; it needs emit: tuples")
        self.select = tuple(select or ())

    # What an aggregate says about itself

    def fields_for(self, inputs: Mapping[str, pa.Schema]) -> tuple[Field, ...]:
        """The state of one key; checks the columns that the options name."""
        raise NotImplementedError

    def result_schema(self) -> pa.Schema:
        """The columns of an update after the key columns."""
        raise NotImplementedError

    def fold(self, rows: Rows, slots: np.ndarray, state: KeyedState) -> None:
        """Add tuple i to slot slots[i]."""
        raise NotImplementedError

    def results(self, slots: np.ndarray, state: KeyedState) -> list[pa.Array]:
        """The columns of `result_schema` for `slots`."""
        raise NotImplementedError

    # The operator

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        keys = key_schema(inputs, key)
        self.state = KeyedStateSchema(self.fields_for(inputs), keys)
        if self.emit == "updates":
            self.output = pa.schema([*keys, *self.result_schema()])
            if len(set(self.output.names)) < len(self.output.names):
                raise OptionError(f"a result has the name of a key column: {', '.join(self.output.names)}")
        elif self.emit == "tuples":
            self.output = self._tuple_schema(inputs)
        return self.output

    def fields_of_state(self) -> tuple[Field, ...]:
        """The fields that `prepare` declared."""
        if not isinstance(self.state, KeyedStateSchema):
            raise TypeError(f"{type(self).__name__} is not prepared")
        return self.state.fields

    def process(self, rows: Rows, state: KeyedState) -> Output:
        if rows.keys is None:
            raise ValueError(f"{type(self).__name__} needs the rows' keys")
        self.fold(rows, state.slots(rows.keys), state)
        return expressions.project(rows.batch, self.select) if self.emit == "tuples" else None

    def finish(self, batch: BatchInfo, state: KeyedState) -> Output:
        if self.emit != "updates":
            return None
        return self.updates(state.touched(), state)

    def updates(self, slots: np.ndarray, state: KeyedState) -> Output:
        """One row per slot: key columns, then results."""
        if not len(slots):
            return None
        return pa.RecordBatch.from_arrays([*state.keys(slots), *self.results(slots, state)], schema=self.output)

    def _tuple_schema(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        schemas = {alias: expressions.output_schema(schema, self.select) for alias, schema in inputs.items()}
        first, *others = schemas.values()
        if any(not first.equals(other) for other in others):
            described = "; ".join(f"{alias}: {', '.join(map(str, schema))}" for alias, schema in schemas.items())
            raise OptionError(f"emit: tuples needs the same columns from every input, found {described}")
        return first
