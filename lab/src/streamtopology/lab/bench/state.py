"""State on disk beside the same state in memory, and beside RocksDB: batches of 100,000 rows through `count`, in turns.

    streamtopology bench state --keys 50000000

One instance in this process, with its store and the deltas that it would write, without cluster, sources and sinks. The keys
that are used most have been used before it is measured. RocksDB is that of the package `rocksdict`, if it is installed (`pip
install rocksdict`), and counts alone: it writes no deltas. CPU seconds are those of all threads.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.operators.base import BatchInfo, Rows
from streamtopology.jobs.operators.count import Count
from streamtopology.jobs.state import DiskState, KeyedState, KeyedStateSchema
from streamtopology.jobs.state.disk import most_keys
from streamtopology.jobs.state.encoding import encode
from streamtopology.lab.bench.cluster import announce
from streamtopology.lab.bench.figures import figure, machine, met

ROWS = 100_000
PART = 200_000
MEMORY, ROCKSDB = "memory", "rocksdict"
# Shares of the keys that are in memory, in percent -> of the speed of state in memory, at least so much.
BARS: Mapping[int, float] = {20: 0.35, 40: 0.5}
TIMES_ROCKSDB = 10
# Odd: so it gives each rank another key.
_KEY_OF_RANK = np.int64(0x9E3779B97F4A7C15 - (1 << 64))
_SCHEMA = pa.schema({"k": pa.int64()})

# Takes the keys of a batch, int64[].
Batch = Callable[[np.ndarray], object]


def run(keys: int = 10_000_000, batches: int = 60, runs: int = 3, seed: int = 1) -> dict[str, Any]:
    """Rows per CPU second of each side on Zipf's and on uniform keys, `runs` times `batches` in turns, and bars on Zipf's."""
    results: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        sides = _sides(keys, folder)
        for law in ("zipf", "uniform"):
            speeds: dict[str, list[float]] = {name: [] for name in sides}
            random = np.random.default_rng(seed)
            for _ in range(runs):
                drawn = [_drawn(random, law, keys) for _ in range(batches)]
                for name, batch in sides.items():
                    speeds[name].append(_rows_per_second(batch, drawn))
                    announce(f"{law}, {name}: {speeds[name][-1]:,.0f} rows per CPU second")
            for name, measured in speeds.items():
                beside = {f"{law}, {other}": speeds[other] for other in (MEMORY, ROCKSDB) if other in speeds and other != name}
                results.append(figure(f"{law}, {name}", "throughput", "rows/CPU s", measured, beside))
    return {"name": "state", "machine": machine(keys=keys), "results": [*results, *_bars(results)]}


def _bars(results: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What was promised of Zipf's keys, and what it is."""
    for share, bar in BARS.items():
        ratios = next(one["ratio_to"] for one in results if one["case"] == f"zipf, {_name_of(share)}")
        least = {MEMORY: bar, ROCKSDB: TIMES_ROCKSDB}
        for other, wanted in least.items():
            found = ratios.get(f"zipf, {other}")
            if found is not None:
                yield figure(f"{_name_of(share)}: at least {wanted:g} x {other}", "bar", met(found >= wanted), [found])


def _name_of(share: int) -> str:
    return f"disk, {share} % in memory"


def _sides(keys: int, folder: str) -> dict[str, Batch]:
    operator = Count()
    operator.prepare({"s": _SCHEMA}, ("k",))
    assert isinstance(operator.state, KeyedStateSchema)
    schema = operator.state
    sides: dict[str, Batch] = {MEMORY: _counting(operator, KeyedState(schema), keys)}
    for share in BARS:
        state = DiskState(schema, _memory_for(schema, keys * share // 100))
        sides[_name_of(share)] = _counting(operator, state, keys)
    if importlib.util.find_spec(ROCKSDB) is None:
        announce("rocksdict is not installed: without RocksDB")
        return sides
    return sides | {ROCKSDB: _in_rocksdb(folder, keys, _memory_for(schema, keys * min(BARS) // 100))}


def _memory_for(schema: KeyedStateSchema, keys: int) -> int:
    """The fewest bytes, to a part in a hundred, that so many keys have room in."""
    memory = 8 * keys
    while most_keys(schema, memory) < keys:
        memory += max(memory // 100, 1)
    return memory


def _counting(operator: Count, state: KeyedState, keys: int) -> Batch:
    """State that has all keys, of which those have been used last that are used most."""

    def batch(drawn: np.ndarray) -> memoryview:
        info = BatchInfo(0)
        operator.begin(info)
        operator.accept(Rows.of(pa.record_batch({"k": drawn}), "s", ("k",)), state)
        operator.finish(info, state)
        delta = encode(state.delta())
        state.commit()
        return delta

    for part in _parts(keys):
        state.slots(KeyColumns.from_arrow(pa.record_batch({"k": part}), ("k",)))
        state.commit()
    return batch


def _parts(keys: int) -> Iterator[np.ndarray]:
    """All keys, those that are used most last."""
    for first in range(keys - 1, -1, -PART):
        yield np.arange(first, max(first - PART, -1), -1) * _KEY_OF_RANK


def _drawn(random: np.random.Generator, law: str, keys: int) -> np.ndarray:
    """int64[ROWS]: a key of rank r is drawn in proportion to 1 / r, or all are alike."""
    shares = random.random(ROWS)
    ranks = np.exp(shares * np.log(keys)) - 1 if law == "zipf" else shares * keys
    return ranks.astype(np.int64) * _KEY_OF_RANK


def _rows_per_second(batch: Batch, drawn: list[np.ndarray]) -> float:
    started = time.process_time()
    for keys in drawn:
        batch(keys)
    return len(drawn) * ROWS / (time.process_time() - started)


def _in_rocksdb(folder: str, keys: int, memory: int) -> Batch:
    """The counts in a RocksDB with blocks cached in `memory` bytes."""
    rocks: Any = importlib.import_module(ROCKSDB)
    options, tables = rocks.Options(raw_mode=True), rocks.BlockBasedOptions()
    options.create_if_missing(True)
    tables.set_block_cache(rocks.Cache(memory))
    tables.set_bloom_filter(10, False)
    options.set_block_based_table_factory(tables)
    options.set_compression_type(rocks.DBCompressionType.none())
    store, without_log = rocks.Rdict(f"{folder}/rocksdb", options), rocks.WriteOptions()
    without_log.disable_wal = True
    store.set_write_options(without_log)

    def put(names: list[bytes], counts: np.ndarray) -> None:
        changes = rocks.WriteBatch(raw_mode=True)
        for name, count in zip(names, _words(counts), strict=True):
            changes.put(name, count)
        store.write(changes)

    def batch(drawn: np.ndarray) -> None:
        different, counts = np.unique(drawn, return_counts=True)
        names = _words(different)
        put(names, np.frombuffer(b"".join(store.get(names)), np.int64) + counts)

    for part in _parts(keys):
        put(_words(np.sort(part)), np.zeros(len(part), np.int64))
    store.compact_range(None, None)
    return batch


def _words(numbers: np.ndarray) -> list[bytes]:
    whole = numbers.astype(np.int64).tobytes()
    return [whole[first : first + 8] for first in range(0, len(whole), 8)]
