"""A run of `streamtopology run` on real executors sends the trace of each batch to a collector."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.collector import collecting
from support.manifests import counting, files, manifest, write_rows

from streamtopology.tracing.settings import ENDPOINT, HEADERS

pytestmark = pytest.mark.timeout(600)

TOKEN = "nobodys-token"


def test_run_sends_a_trace_of_each_batch_and_prints_no_token(tmp_path: Path) -> None:
    for number in range(3):
        write_rows(tmp_path / "rows", number)
    sink = {"name": "out", "input": "words", "format": "json", "options": {"path": str(tmp_path / "out")}}
    given = manifest("traced", [files(tmp_path / "rows")], [counting("words")], [sink])
    given["spec"]["checkpoint"] = str(tmp_path / "checkpoint")
    path = tmp_path / "traced.yaml"
    path.write_text(json.dumps(given))
    command = [sys.executable, "-m", "streamtopology.jobs.cli.main", "run", str(path)]
    with collecting() as collector:
        environ = {**os.environ, ENDPOINT: collector.url, HEADERS: f"authorization=Bearer%20{TOKEN}"}
        run = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    batches = collector.roots("batch")
    numbers = [batch.attributes["streamtopology.batch"] for batch in batches]
    assert numbers == list(range(len(batches)))
    assert len(batches) >= 3
    assert {batch.resource["service.name"] for batch in batches} == {"traced"}
    stages = collector.children(collector.children(batches[0])[1])
    assert [stage.name for stage in stages] == ["read", "operator words"]
    tasks = collector.children(stages[1])
    executors = {task.attributes["streamtopology.executor"] for task in tasks}
    assert len(executors) == sum(each["replicas"] for each in given["spec"]["executors"])
    assert collector.headers["authorization"] == f"Bearer {TOKEN}"
    printed = run.stdout + run.stderr
    written = "".join(file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file())
    assert TOKEN not in printed + written
