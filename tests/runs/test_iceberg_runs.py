"""Topologies on real executors, one of which reads the table of Iceberg that another one writes."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from subprocess import run
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from support.gate import Gate, gated, in_a_batch, write_all
from support.iceberg_tables import NAME, options_in
from support.manifests import counts_seen, files, manifest, write_rows

from streamtopology.jobs.errors import TopologyFailed

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.topologies import Runner

pytest_plugins = ("support.topologies",)
pytestmark = pytest.mark.timeout(300)

_OWNER = "import sys; from pathlib import Path; from support.iceberg_tables import Owner; owner = Owner(Path(sys.argv[1])); "


def _owner(folder: Path, does: str) -> None:
    """In a process of its own: pyiceberg starts threads."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    run([sys.executable, "-c", _OWNER + does, str(folder)], check=True, env=environment)


def test_table_of_one_topology_is_read_once_by_another(runner: Runner, gate: Gate) -> None:
    """Through a killed driver, a compaction, expired snapshots and a renamed column between two runs."""
    rows, results, options = runner.folder / "rows", runner.folder / "results", {"table": NAME, **options_in(runner.folder)}
    out = {"name": "out", "input": "all", "format": "iceberg", "options": options}
    every = {"name": "all", "inputs": ["rows"], "run": "filter", "grouping": {"policy": "shuffle"}, "with": {"where": "true"}}
    writing = manifest("writes", [files(rows)], [every], [out])

    def reading(counts: dict[str, Any], value: str = "value") -> dict[str, Any]:
        given = {**options, "streaming-max-files-per-micro-batch": 2}
        source = {"name": "rows", "format": "iceberg", "schema": f"key BIGINT, {value} BIGINT", "options": given}
        source |= {"select": ["key", f"{value} AS value"]}
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
    _owner(runner.folder, "owner.compact()")
    runner.run(reading(gated(gate)))
    expected += write_rows(rows, 5)
    runner.run(writing)
    runner.run(reading(gated(gate)))
    _owner(runner.folder, "owner.expire_old(owner.appended[-1])")
    _owner(runner.folder, "changed = owner.table.update_schema(); changed.rename_column('value', 'amount'); changed.commit()")
    runner.run(reading(gated(gate), "amount"))
    assert counts_read() == expected
    _owner(runner.folder, "columns = owner.table.schema(); owner.forget(); owner.make(columns); owner.append(1, amount=[1])")
    with pytest.raises(TopologyFailed, match="is another one than was read before"):
        runner.run(reading(gated(gate), "amount"))
