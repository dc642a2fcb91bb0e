"""A user's own operator, which pods have from a ConfigMap."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from streamtopology.api import KeyedState, Operator, Rows


class Split(Operator):
    """The words of each line."""

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema:
        super().prepare(inputs, key)
        self.output = pa.schema([("word", pa.string())])
        return self.output

    def process(self, rows: Rows, state: KeyedState | None) -> pa.RecordBatch:
        words = [word for line in rows.column("value").to_pylist() for word in line.split()]
        return pa.RecordBatch.from_arrays([pa.array(words, pa.string())], schema=self.output)
