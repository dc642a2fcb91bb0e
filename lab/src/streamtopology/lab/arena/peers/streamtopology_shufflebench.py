"""ShuffleBench's two operators as a user of StreamTopology has them: on batches, with the state of a consumer as its bytes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.api import Field, KeyedState, Operator, Output, Rows, require_column
from streamtopology.lab.arena.shufflebench_matcher import HASHED_BYTES, matcher_of, record_hashes

_NUMBERS = 32  # bytes: count, sum, first and last time, as ShuffleBench's AdvancedStateConsumer has them; the record follows


class Matching(Operator):
    """A row of each record and rule that fits it."""

    output = pa.schema([("consumer", pa.string()), ("stamp", pa.int64()), ("data", pa.binary())])

    def __init__(self, rules: str, **common: Any) -> None:
        super().__init__(**common)
        self.rules = rules

    def process(self, rows: Rows, state: Any) -> Output:
        hashes = record_hashes(first_bytes(rows.column("data"), HASHED_BYTES))
        records, rules = matcher_of(self.rules).match(hashes)
        consumers = pa.array([f"consumer_{rule}" for rule in rules.tolist()], pa.string())
        stamps, data = (rows.column(name).take(pa.array(records)) for name in ("stamp", "data"))
        return pa.RecordBatch.from_arrays([consumers, stamps, data], schema=self.output)


class Consumer(Operator):
    """Folds each record into the bytes of its consumer; with every `rate`-th one it gives them away, and begins anew."""

    output = pa.schema([("consumer", pa.string()), ("state", pa.binary())])

    def __init__(self, rate: int, bytes: int, **common: Any) -> None:
        super().__init__(**common)
        self.rate, self.bytes = rate, bytes
        self.fields = (Field("state", np.dtype(np.uint8), shape=(bytes,)),)

    def prepare(self, inputs: Any, key: Any) -> Any:
        for column, alias in itertools.product(("consumer", "stamp", "data"), inputs):
            require_column(inputs, column, alias)
        return super().prepare(inputs, key)

    def process(self, rows: Rows, state: KeyedState) -> Output:
        assert rows.keys is not None
        slots = state.slots(rows.keys)
        if not len(slots):
            return None
        order = np.argsort(slots, kind="stable")
        slots = slots[order]
        every = np.arange(len(slots))
        is_first = np.append(True, slots[1:] != slots[:-1])  # of its consumer
        states = np.asarray(state.column("state"))
        counts = states[:, :8].view(">i8")[:, 0]
        # How many records its consumer has had since it began anew, this one left out.
        before = (counts[slots] + every - np.maximum.accumulate(np.where(is_first, every, 0))) % self.rate
        begins = np.flatnonzero(is_first | (before == 0))
        ends = np.append(begins[1:], len(slots)) - 1
        images = self._images(rows, order, begins, ends, before, states[slots[begins]])
        given = before[ends] + 1 == self.rate
        events = images[given].tobytes()
        images[given] = 0
        states[slots[begins]] = images  # of several parts of a consumer the last one stays
        consumers = rows.column("consumer").take(pa.array(order[ends[given]]))
        data = pa.FixedSizeBinaryArray.from_buffers(pa.binary(self.bytes), int(given.sum()), [None, pa.py_buffer(events)])
        return pa.RecordBatch.from_arrays([consumers, data.cast(pa.binary())], schema=self.output)

    def _images(
        self, rows: Rows, order: np.ndarray, begins: np.ndarray, ends: np.ndarray, before: np.ndarray, images: np.ndarray
    ) -> np.ndarray:
        """The bytes of each consumer after the records `begins` to `ends` of it, from `images`, those before it."""
        is_new = before[begins] == 0
        images[is_new] = 0
        stamps = rows.column("stamp").to_numpy()[order]
        values = first_bytes(rows.column("data"), 8).view(">u8")[:, 0].astype(np.uint64)[order]
        numbers = images[:, :_NUMBERS].view(">u8")
        numbers[:, 0] = before[ends] + 1
        numbers[:, 1] += np.add.reduceat(values, begins)
        numbers[is_new, 2] = stamps[begins[is_new]]
        numbers[:, 3] = stamps[ends]
        last = rows.column("data").take(pa.array(order[ends]))
        images[:, _NUMBERS:] = first_bytes(last, self.bytes - _NUMBERS)
        return images


def first_bytes(data: pa.Array, count: int) -> np.ndarray:
    """uint8[n, count]: the first bytes of each value."""
    _, offsets, values = data.buffers()
    begins = np.frombuffer(offsets, np.int32)[data.offset : data.offset + len(data)]
    return np.lib.stride_tricks.sliding_window_view(np.frombuffer(values, np.uint8), count)[begins]
