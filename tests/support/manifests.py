"""Manifests of small topologies over files of skewed keys, and what a plain count says about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.connectors.sinks.memory import memory_rows

EXECUTORS = [
    {"name": "large", "replicas": 2, "cpu": "1", "memory": "768Mi"},
    {"name": "small", "replicas": 1, "cpu": "300m", "memory": "768Mi"},
]


def manifest(
    name: str,
    sources: Sequence[Mapping[str, Any]],
    operators: Sequence[Mapping[str, Any]],
    sinks: Sequence[Mapping[str, Any]],
    **spec: Any,
) -> dict[str, Any]:
    """A manifest for the executors of the shared cluster; it ends with the input unless `spec` says otherwise."""
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": name},
        "spec": {
            "sources": list(sources), "operators": list(operators), "sinks": list(sinks), "executors": EXECUTORS,
            "trigger": {"availableNow": True}, **spec,
        },
    }  # fmt: skip


def files(folder: Path, schema: str = "key BIGINT, value BIGINT", **options: object) -> dict[str, Any]:
    """A source `rows` of the parquet files in `folder`, one file a batch."""
    return {
        "name": "rows", "format": "parquet", "schema": schema,
        "options": {"path": str(folder), "maxFilesPerTrigger": 1, **options},
    }  # fmt: skip


def counting(name: str = "counts", policy: str = "mixed", of: str = "rows", **changed: Any) -> dict[str, Any]:
    """An operator that counts the rows of each key."""
    return {"name": name, "inputs": [of], "grouping": {"policy": policy, "key": "key"}, "run": "count", **changed}


def memory_sink(name: str, of: str) -> dict[str, str]:
    return {"name": name, "input": of, "format": "memory"}


def write_rows(folder: Path, number: int, rows: int = 3000, keys: int = 200, first: int = 1) -> Counter[int]:
    """A new file of rows in six row groups whose keys, from `first` on, are skewed; returns how many rows each key has."""
    random = np.random.default_rng(number)
    drawn = np.minimum(random.zipf(1.3, rows), keys) + first - 1
    folder.mkdir(exist_ok=True)
    unseen = folder / f".part-{number:04}"
    pq.write_table(pa.table({"key": drawn, "value": random.integers(0, 1000, rows)}), unseen, row_group_size=rows // 6)
    unseen.rename(folder / f"part-{number:04}.parquet")
    return Counter(drawn.tolist())


def counts_seen(rows: Iterable[Mapping[str, Any]], key: str = "key") -> dict[Any, int]:
    """key -> count as the last row of each key says."""
    return {row[key]: row["count"] for row in rows}


def counts_in(sink: str, key: str = "key") -> dict[Any, int]:
    """The same of a memory sink."""
    return counts_seen(memory_rows(sink).to_pylist(), key)
