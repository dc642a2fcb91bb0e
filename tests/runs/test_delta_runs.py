"""Topologies on real executors, one of which reads the Delta table that another one writes."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from subprocess import run
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from support.gate import Gate, gated, in_a_batch, write_all
from support.manifests import counts_seen, files, manifest, write_rows

from streamtopology.jobs.errors import TopologyFailed

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.topologies import Runner

pytest_plugins = ("support.topologies",)
pytestmark = pytest.mark.timeout(300)

_COMPACT = """
import sys
from deltalake import DeltaTable
table = DeltaTable(sys.argv[1])
table.optimize.compact()
table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
"""

_MAKE = """
import sys
import pyarrow.parquet
from deltalake import write_deltalake
write_deltalake(sys.argv[1], pyarrow.parquet.read_table(sys.argv[2]))
"""


def test_table_of_one_topology_is_read_once_by_another(runner: Runner, gate: Gate) -> None:
    """Through a killed driver, and a compaction and a VACUUM between two runs."""
    rows, table, results = (runner.folder / name for name in ("rows", "table", "results"))
    out = {"name": "out", "input": "all", "format": "delta", "options": {"path": str(table)}}
    every = {"name": "all", "inputs": ["rows"], "run": "filter", "grouping": {"policy": "shuffle"}, "with": {"where": "true"}}
    writing = manifest("writes", [files(rows)], [every], [out])

    def reading(counts: dict[str, Any]) -> dict[str, Any]:
        options = {"path": str(table), "maxFilesPerTrigger": 2}
        source = {"name": "rows", "format": "delta", "schema": "key BIGINT, value BIGINT", "options": options}
        sink = {"name": "read", "input": counts["name"], "format": "parquet", "options": {"path": str(results)}}
        return manifest("reads", [source], [counts], [sink])

    def counts_read() -> dict[Any, int]:
        return counts_seen(row for path in sorted(results.glob("*.parquet")) for row in pq.read_table(path).to_pylist())

    expected: Counter[int] = write_all(rows)
    runner.run(writing)
    with in_a_batch(runner, reading(gated(gate)), gate):
        pass
    gate.open()
    runner.run(reading(gated(gate)))
    assert counts_read() == expected
    expected += write_rows(rows, 4)
    runner.run(writing)
    runner.run(reading(gated(gate)))
    run([sys.executable, "-c", _COMPACT, str(table)], check=True)
    expected += write_rows(rows, 5)
    runner.run(writing)
    runner.run(reading(gated(gate)))
    assert counts_read() == expected
    shutil.rmtree(table)
    run([sys.executable, "-c", _MAKE, str(table), str(rows / "part-0000.parquet")], check=True)
    with pytest.raises(TopologyFailed, match="is another one than was read before"):
        runner.run(reading(gated(gate)))
