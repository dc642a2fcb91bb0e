"""A topology on real executors whose checkpoint and results are in a bucket: all find it there, and need nothing else."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from support.manifests import counting, counts_seen, files, manifest, write_rows

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.connectors.sinks.bucket import open_bucket
from streamtopology.jobs.runtime.streaming_query import Until

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.s3 import S3Server
    from support.topologies import Runner

pytest_plugins = ("support.s3", "support.topologies")
pytestmark = pytest.mark.timeout(300)


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
    objects = open_bucket(results, "out")
    batches = [io.BytesIO(objects.read(path)) for path in objects.list("") if path.endswith(".parquet")]
    seen = [row for batch in batches for row in pq.read_table(batch).to_pylist()]
    assert counts_seen(seen) == expected
    checkpoint = Checkpoint.attach(uri)
    assert {"spark/metadata", "spark/offsets/0", "spark/commits/0"} <= set(checkpoint.files("spark"))
    assert len(checkpoint.files("files")) >= 1
