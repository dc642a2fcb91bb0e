"""Means of integers whose sum leaves 64 bits: times in nanoseconds do so from the sixth on."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.stages import SLOTS, Flow, Kept, manifest, random_table

from streamtopology.routing.table.hashing import hash_int64

NOW_NS = 1_763_900_000_000_000_000
KEYS = 5
MEAN = {"aggregates": {"middle": "mean(ns)"}}
AGGREGATES: dict[str, dict[str, Any]] = {
    "whole": {"grouping": {"policy": "mixed", "key": "k"}, "run": "aggregate", "with": MEAN},
    "split": {"grouping": {"policy": "partial-key", "key": "k"}, "aggregateEvery": 2, "run": "aggregate", "with": MEAN},
    "windows": {
        "grouping": {"policy": "mixed", "key": "k"}, "run": "window-aggregate",
        "with": MEAN | {"time": "at", "size": "1000s"},
    },
}  # fmt: skip


def topology(*names: str, **changed: Any) -> dict[str, Any]:
    operators = [{"name": name, "inputs": ["s"]} | AGGREGATES[name] | changed for name in names]
    return manifest(operators, {"s": "k BIGINT, ns BIGINT, at BIGINT"}, watermarks={"s": {"column": "at"}})


def times(seed: int, sign: int = 1) -> pa.Table:
    random = np.random.default_rng(seed)
    ns = sign * (NOW_NS + random.integers(0, 10**15, 100))
    return pa.table({"k": random.integers(0, KEYS, 100), "ns": ns, "at": np.full(100, 10 + seed)})


def means(*tables: pa.Table) -> dict[int, float]:
    values: dict[int, list[int]] = defaultdict(list)
    for table in tables:
        for row in table.to_pylist():
            values[row["k"]].append(row["ns"])
    return {key: sum(found) / len(found) for key, found in values.items()}


def last_means(flow: Flow, name: str) -> dict[int, float]:
    sink = flow.sinks[name]
    assert isinstance(sink, Kept)
    return {row["k"]: row["middle"] for number in sorted(sink.batches) for row in sink.batches[number].to_pylist()}


@pytest.mark.parametrize("name", AGGREGATES)
def test_mean_of_integers_never_overflows(name: str, tmp_path: Path) -> None:
    flow = Flow(tmp_path, topology(name))
    batches = [times(seed, sign) for seed, sign in enumerate((1, 1, -1, -1, -1, 1))]
    for number, batch in enumerate(batches):
        if number == 3 and name != "split":
            flow.router.reroute({name: random_table(np.random.default_rng(1), SLOTS, hash_int64(np.arange(KEYS)))})
        flow.batch(s=batch)
    flow.drain()
    assert last_means(flow, name) == pytest.approx(means(*batches), rel=1e-12, abs=1e4)


def test_state_of_a_sum_continues_as_that_of_a_mean_and_back(tmp_path: Path) -> None:
    """The manifest is edited between two runs."""
    few = pa.table({"k": [1, 1, 2], "ns": [NOW_NS, NOW_NS, -5], "at": [1, 1, 1]})
    flow = Flow(tmp_path, topology("whole", **{"with": {"aggregates": {"middle": "sum(ns)"}}}))
    flow.batch(s=few)
    flow.start(topology("whole"))
    flow.batch(s=few)
    assert last_means(flow, "whole") == {1: NOW_NS, 2: -5}
    flow.start(topology("whole", **{"with": {"aggregates": {"middle": "sum(ns)"}}}))
    flow.batch(s=few.slice(2))
    assert last_means(flow, "whole")[2] == -15


def test_sum_that_leaves_64_bits_is_refused_with_or_without_a_mean(tmp_path: Path) -> None:
    both = {"aggregates": {"middle": "mean(ns)", "total": "sum(ns)"}}
    flow = Flow(tmp_path, topology("whole", **{"with": both}))
    with pytest.raises(Exception, match="does not fit into 64 bits; cast the column to DOUBLE"):
        flow.batch(s=times(1))
