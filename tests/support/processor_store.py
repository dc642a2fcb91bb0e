"""One instance of a StatefulProcessor of PySpark, and its state."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor

from streamtopology.jobs.operators.base import BatchInfo, Operator, Rows
from streamtopology.jobs.operators.processors.operator import operator_of
from streamtopology.jobs.state import KeyedState, KeyedStateSchema
from streamtopology.jobs.state.encoding import decode, encode
from support.scripted_processor import OUTPUT

SCHEMA = pa.schema({"k": pa.int64(), "what": pa.string(), "name": pa.string(), "n": pa.int64()})


class Store:
    """One instance of a processor, whose state is rebuilt from its deltas after every batch, as after a kill."""

    def __init__(
        self, processor: type[StatefulProcessor], output: str = OUTPUT, schema: pa.Schema = SCHEMA, **options: Any
    ) -> None:
        self._made = lambda: operator_of(processor)(output=output, **options)
        self._schema, self._deltas, self._batch = schema, [], 0
        self._restart()

    def _restart(self) -> None:
        self.operator: Operator = self._made()
        self.operator.prepare({"s": self._schema}, ("k",))
        assert isinstance(self.operator.state, KeyedStateSchema)
        self.state = KeyedState(self.operator.state)
        for delta in self._deltas:
            self.state.apply(delta)

    def batch(self, rows: pa.RecordBatch, lost: int = 0, dead_letter: bool = False, **info: Any) -> list[dict[str, Any]]:
        """What a batch emits, after so many attempts at it that were lost."""
        batch = BatchInfo(self._batch, **info)
        for _ in range(lost):
            self._attempt(rows, batch, dead_letter)
            self.state.rollback()
        emitted = self._attempt(rows, batch, dead_letter)
        self._deltas.append(decode(encode(self.state.delta()), "a delta"))
        self.state.commit()
        before = self.operator.shown(self.state, self.state.live()).to_pylist()
        self._batch += 1
        self._restart()
        after = self.operator.shown(self.state, self.state.live()).to_pylist()
        assert sorted(map(str, after)) == sorted(map(str, before))
        return emitted

    def _attempt(self, rows: pa.RecordBatch, batch: BatchInfo, dead_letter: bool) -> list[dict[str, Any]]:
        self.operator.begin(batch)
        arrivals = [Rows.of(part, "s", ("k",)) for part in (rows.slice(0, 2), rows.slice(2))]
        emitted = [self.operator.accept(each, self.state, dead_letter) for each in self.operator.arranged(arrivals)]
        emitted.append(self.operator.finish(batch, self.state))
        return [row for part in emitted if part is not None for row in part.to_pylist()]
