"""The common part of all built-in aggregates: state per key, and the rows emitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar import expressions
from streamtopology.jobs.operators.base import BatchInfo, Operator, Output, Rows
from streamtopology.jobs.operators.groups import Groups
from streamtopology.jobs.operators.options import OptionError, expressions_of, one_of
from streamtopology.jobs.state import Field, KeyedState, KeyedStateSchema

EMITS = ("updates", "all", "tuples", "nothing")


class KeyedAggregate(Operator):
    """Folds tuples into fields per key, or per key and columns `groupBy`.

    emit `updates`: one row per group that had tuples in the batch, when it ends. `all`: one row per group, in every batch.
    `tuples`: every tuple, as it passes, narrowed by the SQL expressions of `select`. `nothing`: only the state is of interest.
    """

    combinable = True

    def __init__(
        self,
        emit: str = "updates",
        select: list[str] | None = None,
        groupBy: list[str] | None = None,  # noqa: N803 - the option's name in the manifest
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.emit = one_of(emit, EMITS, "emit")
        self.groups = Groups(groupBy)
        if select is not None and self.emit != "tuples":
            raise OptionError("option 'select' narrows the tuples that pass; it needs emit: tuples", about="select")
        self.select = () if select is None else expressions_of(select, "select")

    @classmethod
    def reads_mentioned_columns(cls, options: Mapping[str, Any]) -> bool:
        return options.get("emit") != "tuples" or bool(options.get("select"))

    # What an aggregate says about itself

    def fields_for(self, inputs: Mapping[str, pa.Schema]) -> tuple[Field, ...]:
        """The state of one group; checks the columns that the options name."""
        raise NotImplementedError

    def result_schema(self) -> pa.Schema:
        """The columns of a row after those of its group."""
        raise NotImplementedError

    def fold(self, rows: Rows, slots: np.ndarray, state: KeyedState) -> None:
        """Add tuple i to slot slots[i]."""
        raise NotImplementedError

    def results(self, slots: np.ndarray, state: KeyedState) -> list[pa.Array]:
        """The columns of `result_schema` for `slots`."""
        raise NotImplementedError

    # The operator

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        keys = self.groups.schema(inputs, key, self.renamed_keys)
        self.state = KeyedStateSchema(self.fields_for(inputs), keys, self.upgrade)
        if self.emit in ("updates", "all"):
            names = [*keys.names, *self.result_schema().names]
            if len(set(names)) < len(names):
                raise OptionError(f"two columns of the result have one name: {', '.join(names)}")
            self.output = pa.schema([*keys, *self.result_schema()])
        elif self.emit == "tuples":
            self.output = self._tuple_schema(inputs)
        return self.output

    def fields_of_state(self) -> tuple[Field, ...]:
        """The fields that `prepare` declared."""
        if not isinstance(self.state, KeyedStateSchema):
            raise TypeError(f"{type(self).__name__} is not prepared")
        return self.state.fields

    def begin(self, batch: BatchInfo) -> None:
        super().begin(batch)
        self.groups.begin()

    def combine(self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch) -> None:
        super().combine(state, slots, partial)
        self.groups.mark(slots)

    def process(self, rows: Rows, state: KeyedState) -> Output:
        slots = self.groups.slots(rows, state)
        self.fold(rows, slots, state)
        self.groups.mark(slots)
        return expressions.project(rows.batch, self.select) if self.emit == "tuples" else None

    def finish(self, batch: BatchInfo, state: KeyedState) -> Output:
        if self.emit not in ("updates", "all"):
            return None
        slots = state.live() if self.emit == "all" else self.groups.marked()
        return self.shown(state, slots) if len(slots) else None

    def shown(self, state: KeyedState, slots: np.ndarray) -> pa.RecordBatch:
        names = [*state.schema.key_types.names, *self.result_schema().names]
        return pa.RecordBatch.from_arrays([*state.keys(slots), *self.results(slots, state)], names=names)

    def _tuple_schema(self, inputs: Mapping[str, pa.Schema]) -> pa.Schema:
        schemas = {alias: expressions.output_schema(schema, self.select) for alias, schema in inputs.items()}
        first, *others = schemas.values()
        if any(not first.equals(other) for other in others):
            described = "; ".join(f"{alias}: {', '.join(map(str, schema))}" for alias, schema in schemas.items())
            raise OptionError(f"emit: tuples needs the same columns from every input, found {described}")
        return first
