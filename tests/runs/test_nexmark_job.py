"""Nexmark's queries as a PySpark script: `streamtopology run` and Spark itself emit the same rows, batch by batch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.timeout(600)

JOB = Path(__file__).parents[2] / "examples/nexmark/job.py"
STREAMTOPOLOGY = Path(sys.executable).with_name("streamtopology")
EVENTS = 8_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nexmark")
    settings = ["--events", str(EVENTS), "--first-event-rate", "100", "--files", "4"]
    subprocess.run([str(STREAMTOPOLOGY), "nexmark", str(folder), *settings], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("query", ["q3", "q11", "q17", "q18", "q20"])
def test_a_query_of_the_job_emits_what_spark_emits(query: str, data: Path, tmp_path: Path) -> None:
    ours = [str(STREAMTOPOLOGY), "run", str(JOB), query, str(data), "ours", "--executors", "fast:1:1,slow:1:0.5", "--strict"]
    _run(ours, tmp_path)
    conf = "--master local[2] --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2 pyspark-shell"
    _run(
        [sys.executable, str(JOB), query, str(data), "sparks"],
        tmp_path,
        PYSPARK_SUBMIT_ARGS=conf,
        PYSPARK_PYTHON=sys.executable,
    )
    sparks = _emitted(tmp_path / "sparks" / query)
    assert sparks.total() > 20
    assert _emitted(tmp_path / "ours" / query) == sparks


def _run(command: list[str], folder: Path, **environment: str) -> None:
    ended = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]


def _emitted(folder: Path) -> Counter[str]:
    """The rows of all batches, each with its batch."""
    files = sorted(folder.glob("batch=*/*.parquet"))
    return Counter(f"{file.parent.name} {row}" for file in files for row in pq.ParquetFile(file).read().to_pylist())
