"""Re-routing changes no output: a key that moves without tuples is not touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.stages import SLOTS, Flow, manifest, random_table

from streamtopology.jobs.rerouting.precopy_job import migrate
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable

KEYS = 60
OPERATORS = ("totals", "windows", "updates", "first", "once")
BY_KEY = {"policy": "mixed", "key": "sensor"}
DOCUMENTED = Path(__file__).parents[2] / "docs" / "start" / "first-operator.md"


def totals(folder: Path) -> dict[str, Any]:
    """The operator `Total` of the documentation, windows that are emitted again when late tuples come, and first tuples."""
    blocks = DOCUMENTED.read_text().split("```python\n")[1:3]
    (folder / "mine.py").write_text("\n".join(block.split("```")[0] for block in blocks))
    operators = [
        {"name": "totals", "inputs": ["s"], "grouping": BY_KEY, "run": "mine.py:Total", "with": {"column": "celsius"}},
        {
            "name": "windows", "inputs": ["s"], "grouping": BY_KEY, "run": "window-aggregate",
            "with": {"time": "at", "size": "10s", "allowedLateness": "1h", "aggregates": {"n": "count()"}},
        },
        {"name": "updates", "inputs": ["s"], "grouping": BY_KEY, "run": "count"},
        {"name": "tens", "inputs": ["s"], "run": "map", "with": {"select": ["sensor", '"at" // 10 * 10 AS ten']}},
        {
            "name": "first", "inputs": ["tens"], "run": "deduplicate", "with": {"time": "ten"},
            "grouping": {"policy": "mixed", "key": ["sensor", "ten"]},
        },
        {"name": "sensors", "inputs": ["s"], "run": "map", "with": {"select": ["sensor"]}},
        {"name": "once", "inputs": ["sensors"], "grouping": BY_KEY, "run": "deduplicate"},
    ]  # fmt: skip
    watermark = {"s": {"column": "at", "delay": "0s"}}
    return manifest(operators, {"s": "sensor BIGINT, celsius DOUBLE, at BIGINT"}, watermarks=watermark)


def some_rows(batch: int) -> pa.Table:
    """A few of the keys, one second after the other batch by batch, and the same in every life."""
    random = np.random.default_rng(batch)
    at = random.integers(100 * batch - 150, 100 * batch, 20)
    whole = random.integers(0, 9, 20).astype(float)
    return pa.table({"sensor": random.integers(0, KEYS, 20), "celsius": whole, "at": np.maximum(at, 0)})


def table(seed: int) -> RoutingTable:
    return random_table(np.random.default_rng(seed), SLOTS, hash_int64(np.arange(KEYS)))


def rerouted(flow: Flow, batch: int) -> None:
    """Every other batch finds most keys elsewhere."""
    if batch % 2:
        flow.router.reroute({name: table(batch) for name in OPERATORS})


def switched_to_copies(flow: Flow, batch: int) -> None:
    """The state is copied, a batch changes some of it, and the next one hands over these changes."""
    if batch % 3 == 1:
        migrate(flow.checkpoint, flow.router.prepare({name: table(batch) for name in OPERATORS}), lambda text: None)
    elif batch % 3 == 0:
        flow.router.copied()


def emitted(folder: Path, change: Callable[[Flow, int], None]) -> dict[str, list[dict[str, Any]]]:
    folder.mkdir()
    flow = Flow(folder, totals(folder))
    flow.batch(s=some_rows(0))
    for batch in range(1, 10):
        change(flow, batch)
        flow.batch(s=some_rows(batch))
    published = {name: flow.published(name).to_pylist() for name in OPERATORS}
    return {name: sorted(rows, key=repr) for name, rows in published.items()}


@pytest.mark.parametrize("change", [rerouted, switched_to_copies])
def test_outputs_with_rerouting_are_those_without(tmp_path: Path, change: Callable[[Flow, int], None]) -> None:
    assert emitted(tmp_path / "moved", change) == emitted(tmp_path / "stayed", lambda flow, batch: None)
