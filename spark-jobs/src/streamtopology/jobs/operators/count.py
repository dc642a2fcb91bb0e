"""count: tuples per key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.operators.base import Rows
from streamtopology.jobs.operators.keyed_aggregate import KeyedAggregate
from streamtopology.jobs.state import Field, KeyedState

if TYPE_CHECKING:
    from streamtopology.jobs.operators import kernels
else:
    kernels = LazyModule("streamtopology.jobs.operators.kernels")


class Count(KeyedAggregate):
    """Counts tuples, NULL in any column or not. Emits `count`."""

    def fields_for(self, inputs: Mapping[str, pa.Schema]) -> tuple[Field, ...]:
        return (Field("count", np.dtype(np.int64), merge="sum"),)

    def result_schema(self) -> pa.Schema:
        return pa.schema([("count", pa.int64())])

    def fold(self, rows: Rows, slots: np.ndarray, state: KeyedState) -> None:
        kernels.count_at(state.column("count"), slots)

    def results(self, slots: np.ndarray, state: KeyedState) -> list[pa.Array]:
        return [pa.array(state.column("count")[slots])]
