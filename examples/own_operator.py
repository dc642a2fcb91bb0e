"""Two operators of one's own for own-operator.yaml: one that works on batches, one that works tuple by tuple."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.api import Field, KeyedState, Operator, OptionError, Output, Rows, TupleOperator, TupleState


class Drift(Operator):
    """Adds `drift` to each tuple: how far its value is from the mean of all values of its key so far, itself included.

    The mean is taken at the end of the tuples at hand, so all tuples of a key that come together see the same one. A value
    that is NULL or NaN is in no mean, and its drift is NULL.
    """

    fields = (
        Field("count", np.dtype(np.int64)),
        Field("total", np.dtype(np.float64)),
    )

    def __init__(self, column: str, **common: Any) -> None:
        super().__init__(**common)
        self.column = column

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        super().prepare(inputs, key)  # the state: the fields above for each key
        (schema,) = inputs.values()
        if self.column not in schema.names:
            raise OptionError(f"option 'column' is {self.column!r}; the input has {', '.join(schema.names)}")
        self.output = schema.append(pa.field("drift", pa.float64()))
        return self.output

    def process(self, rows: Rows, state: KeyedState) -> Output:
        slots = state.slots(rows.keys)  # where each tuple's key lives, int64[n]; new keys begin with zeros
        values = rows.column(self.column).to_numpy(zero_copy_only=False)  # NULL is NaN, which would stay in the sum for ever
        known = ~np.isnan(values)
        slots, drift = slots[known], np.full(len(rows), np.nan)
        np.add.at(state.column("count"), slots, 1)
        np.add.at(state.column("total"), slots, values[known])
        drift[known] = values[known] - state.column("total")[slots] / state.column("count")[slots]
        return pa.RecordBatch.from_arrays([*rows.batch.columns, pa.array(drift, from_pandas=True)], schema=self.output)


class Alarm(TupleOperator):
    """Lets a tuple through when its key's drift goes beyond `above`, not again before it has come back."""

    fields = (Field("alarmed", np.dtype(np.int64)),)
    output = pa.schema([("sensor", pa.int32()), ("celsius", pa.float64()), ("drift", pa.float64())])

    def __init__(self, above: float, **common: Any) -> None:
        super().__init__(**common)
        if above <= 0:
            raise OptionError(f"option 'above' is {above!r}; allowed: a number greater than 0")
        self.above = above

    def process_tuple(self, row: dict[str, Any], state: TupleState | None) -> Iterable[dict[str, Any]] | None:
        assert state is not None  # we declare fields
        if row["drift"] is None or math.isnan(row["drift"]):
            return None
        beyond = abs(row["drift"]) > self.above
        new = beyond and not state["alarmed"]
        state["alarmed"] = int(beyond)
        return [row] if new else None
