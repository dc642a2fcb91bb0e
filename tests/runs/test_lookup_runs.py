"""A topology on real executors looks up in a table that changes while it runs; executors do not read it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.manifests import files, manifest, write_rows

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.topologies import Runner

pytest_plugins = ("support.topologies",)
pytestmark = pytest.mark.timeout(300)


def test_each_batch_sees_one_version_of_a_table_that_changes(runner: Runner) -> None:
    rows, table, results = (runner.folder / name for name in ("rows", "table.parquet", "results"))
    rows.mkdir()
    lookup = {"file": "table.parquet", "on": "key", "key": "id", "schema": "id BIGINT, version INT", "refresh": "0s"}
    looked = {
        "name": "looked",
        "inputs": ["rows"],
        "run": "enrich",
        "grouping": {"policy": "shuffle"},
        "with": {"lookup": lookup},
    }
    sink = {"name": "out", "input": "looked", "format": "parquet", "options": {"path": str(results)}}
    given = manifest("looks", [files(rows)], [looked], [sink], trigger={})

    def write(version: int) -> None:
        ids = range(100)  # of about half of the keys
        pq.write_table(pa.table({"id": ids, "version": pa.array([version] * len(ids), pa.int32())}), runner.folder / "draft")
        (runner.folder / "draft").rename(table)

    expected = dict[int, Counter[int]]()
    write(0)
    with runner.running(given) as running:
        for version in range(3):
            write(version)
            expected[version] = write_rows(rows, version)
            running.wait_for_rows(sum(map(Counter.total, expected.values())))
        table.unlink()
        expected[2] += write_rows(rows, 3)
        running.wait_for_rows(sum(map(Counter.total, expected.values())))
        assert any("table.parquet does not exist" in event.text for event in running.history.events)
    found, versions = dict[int, Counter[int]](), list[int]()
    for path in sorted(results.glob("*.parquet")):
        seen = pq.read_table(path).to_pylist()
        (version,) = {row["version"] for row in seen if row["version"] is not None}
        assert all((row["version"] is None) == (row["key"] >= 100) for row in seen)
        found[version] = found.get(version, Counter()) + Counter(row["key"] for row in seen)
        versions.append(version)
    assert versions == sorted(versions)
    assert found == expected
