"""Parts of keys' state on their way home.

Routers may send tuples of a key to several instances (`Node.is_poured`). One that is not the key's home gathers them apart from
its own state; the commit record carries what it has gathered, and the home takes that in with the next batch. The table of that
batch says who is the home: so keys move and executors leave at any time, and nothing has to be flushed before.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.ipc import stream_size, write_stream
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.columnar.python_values import python_rows
from streamtopology.jobs.errors import PartsDoNotFit
from streamtopology.jobs.operators.aggregate import narrow_sums
from streamtopology.jobs.operators.base import BatchInfo, Operator, Rows, SetAside
from streamtopology.jobs.operators.partial_merge import PartialOperator
from streamtopology.jobs.state import KeyedState, KeyedStateSchema, routing_hashes
from streamtopology.jobs.state.schema import ROUTING

# bool[n]: which of the keys (hashes, uint64[n]) have their home at the instance that asks.
IsHome = Callable[[np.ndarray], np.ndarray]


class Gathering:
    """The tuples of one instance in one batch whose keys have their home elsewhere; `operator` gathers them."""

    def __init__(self, operator: PartialOperator, is_home: IsHome) -> None:
        assert isinstance(operator.state, KeyedStateSchema)
        self._operator = operator
        self._is_home = is_home
        self._state = KeyedState(operator.state)
        self.rows = 0
        """The tuples that were gathered."""

    @property
    def set_aside(self) -> list[SetAside]:
        """Tuples that could not be processed."""
        return self._operator.set_aside

    def begin(self, batch: BatchInfo) -> None:
        self._operator.begin(batch)

    def take_away(self, rows: Rows, dead_letter: bool) -> Rows:
        """Gather those of `rows` that are away from home; return the others. Raises what the operator raises."""
        if rows.keys is None:
            return rows
        at_home = self._is_home(rows.keys.hashes)
        if at_home.all():
            return rows
        away = rows.take(np.flatnonzero(~at_home))
        self._operator.accept(away, self._state, dead_letter)
        self.rows += len(away)
        return rows.take(np.flatnonzero(at_home))

    def as_text(self) -> str | None:
        """All that was gathered, for `take_in`; None if nothing was."""
        return _as_text(self._state.snapshot()) if len(self._state) else None


def take_in(partials: Iterable[str], operator: Operator, state: KeyedState, is_home: IsHome) -> int:
    """Fold parts of keys that have their home here into `state`, as `operator` combines them; return how many.

    Raises StateError, and PartsDoNotFit for a sum of integers that leaves 64 bits.
    """
    taken = 0
    for text in partials:
        parts = state.schema.fitted(_from_text(text))
        keys, hashes = KeyColumns.from_arrow(parts, state.schema.key_types.names), routing_hashes(parts, state.schema)
        mine = np.flatnonzero(is_home(hashes))
        if len(mine):
            routed = hashes[mine] if ROUTING in parts.schema.names else None
            _combine(operator, state, state.slots(keys.take(mine), routed), parts.take(pa.array(mine)))
            taken += len(mine)
    return taken


def _combine(operator: Operator, state: KeyedState, slots: np.ndarray, parts: pa.RecordBatch) -> None:
    """Combine parts of different keys into these slots."""
    columns = narrow_sums(state.schema.fields)
    before = {name: np.array(state.column(name)[slots]) for name in columns}
    try:
        operator.combine(state, slots, parts)
    except OverflowError:
        for name, held in before.items():
            added = parts.column(name).to_numpy()
            wrapped = held + added
            beyond = np.flatnonzero(((held ^ wrapped) & (added ^ wrapped)) < 0)
            if len(beyond):
                key = python_rows(parts.select(state.schema.key_types.names).slice(int(beyond[0]), 1))[0]
                raise PartsDoNotFit(key, columns[name]) from None
        raise


def _as_text(parts: pa.RecordBatch) -> str:
    buffer = pa.allocate_buffer(stream_size(parts))
    with pa.FixedSizeBufferWriter(buffer) as stream:
        write_stream(parts, stream)
    return base64.b64encode(buffer).decode("ascii")


def _from_text(text: str) -> pa.RecordBatch:
    return pa.ipc.open_stream(base64.b64decode(text)).read_next_batch()
