"""A topology on real executors whose checkpoint and results are in a bucket: all find it there, and need nothing else."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from support.gate import Gate, gated, in_a_batch
from support.manifests import counting, counts_seen, files, manifest, write_rows

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.connectors.sinks.bucket import open_bucket
from streamtopology.jobs.runtime.streaming_query import Until

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.s3 import S3Server
    from support.topologies import Runner

pytest_plugins = ("support.s3", "support.topologies")
pytestmark = pytest.mark.timeout(300)


def counts_in_bucket(results: str) -> dict[Any, int]:
    objects = open_bucket(results, "out")
    batches = [io.BytesIO(objects.read(path)) for path in objects.list("") if path.endswith(".parquet")]
    return counts_seen(row for batch in batches for row in pq.read_table(batch).to_pylist())


def test_topology_resumes_from_a_bucket_on_another_machine(s3_server: S3Server, runner: Runner, tmp_path: Path) -> None:
    expected = sum((write_rows(tmp_path / "rows", part) for part in range(6)), Counter[int]())
    results = s3_server.uri()
    sink: dict[str, Any] = {"name": "out", "input": "counts", "format": "parquet", "options": {"path": results}}
    uri = s3_server.uri()
    given = manifest("far", [files(tmp_path / "rows")], [counting()], [sink], checkpoint=uri)
    first = runner.run(given, Until(batches=3))
    assert [batch.number for batch in first.batches] == [0, 1, 2]
    assert not (runner.folder / "far").exists()  # nothing of it is kept here

    with runner.running(given) as running:
        running.wait_until(lambda: running.history.is_ready())
        with s3_server.away():
            pass
        running.wait_until(running.ended.done)
    assert [batch.number for batch in running.history.batches if batch.rows] == [3, 4, 5]
    assert counts_in_bucket(results) == expected
    assert len(Checkpoint.attach(uri).files("files")) >= 1


def test_rows_in_a_bucket_count_once_through_a_killed_driver_and_a_server_that_is_away(
    s3_server: S3Server, runner: Runner, gate: Gate, tmp_path: Path
) -> None:
    """Nothing is on a disk of its own: source, checkpoint and results are in buckets, and objects come while it runs."""
    source, results = s3_server.uri(), s3_server.uri()
    objects, expected = open_bucket(source, "in"), Counter[int]()

    def add(part: int) -> None:
        expected.update(write_rows(tmp_path / "rows", part))
        objects.put(f"part-{part:04}.parquet", (tmp_path / "rows" / f"part-{part:04}.parquet").read_bytes())

    for part in range(3):
        add(part)
    sink = {"name": "out", "input": "counts", "format": "parquet", "options": {"path": results}}
    rows = files(tmp_path, path=f"{source}/*.parquet")
    given = manifest("far-away", [rows], [gated(gate)], [sink], checkpoint=s3_server.uri())
    with in_a_batch(runner, given, gate):
        add(3)
    gate.open()
    waiting = {**given, "spec": {**given["spec"], "trigger": {}}}
    with runner.running(waiting) as running:
        running.wait_until(lambda: running.history.is_ready())
        with s3_server.away():
            add_later = 4
        add(add_later)
        running.wait_for_rows(4 * 3000)
        add(5)
        running.wait_for_rows(5 * 3000)
    history = runner.run(given)
    assert not [batch for batch in history.batches if batch.rows], "all has been read"
    assert counts_in_bucket(results) == expected
