"""The time from `streamtopology run` to the first committed batch on the demo's four executors, against plain Spark's start.

By a clock outside, each run in processes of its own. Plain Spark: a local session, and its first stage in Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.lab.bench.cluster import ONE_OF_FOUR_SLOW, announce, fresh_folder, machine, topology
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.bench.victim import Victim
from streamtopology.topology import to_manifest

ROWS = 100_000
LOOK_SECONDS = 0.05
LONGEST_SECONDS = 300.0
PLAIN = "plain Spark: a local session's first Python stage"
_PLAIN_SPARK = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[4]").getOrCreate()
assert session.range(0, 1000, 1, 4).mapInArrow(lambda batches: batches, "id BIGINT").count() == 1000
session.stop()
"""


def run(runs: int = 5, real_time: bool = False) -> dict[str, Any]:
    """Runs of both, in turn."""
    folder = fresh_folder("startup")
    rows = folder / "rows"
    rows.mkdir()
    for number in range(4):
        keys = np.random.default_rng(number).integers(0, 1000, ROWS)
        pq.write_table(pa.table({"key": keys}), rows / f"part-{number}.parquet", row_group_size=ROWS // 8)
    plain: list[float] = []
    first: list[float] = []
    silent: list[float] = []
    for number in range(runs):
        plain.append(_seconds_of_plain_spark())
        seconds, silence = _seconds_to_first_batch(folder / f"run-{number}", rows, real_time)
        first.append(seconds)
        silent.append(silence)
        announce(f"run {number + 1} of {runs}: first batch after {seconds:.1f} s, at most {silence:.1f} s without a word")
    return {
        "name": "startup",
        "machine": machine(executors=4, real_time=real_time),
        "results": [
            figure(PLAIN, "from its command", "s", plain),
            figure("streamtopology run", "to the first commit", "s", first, {PLAIN: plain}),
            figure("streamtopology run", "longest silence", "s", silent),
        ],
    }


def _seconds_of_plain_spark() -> float:
    started = time.monotonic()
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    subprocess.run([sys.executable, "-c", _PLAIN_SPARK], check=True, capture_output=True, env=environment)
    return time.monotonic() - started


def _seconds_to_first_batch(folder: Path, rows: Path, real_time: bool) -> tuple[float, float]:
    """Seconds to the first commit, and the longest time until then without a line of output."""
    folder.mkdir()
    counts = {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}
    checkpoint = str(folder / "checkpoint")
    more = {"checkpoint": checkpoint, "trigger": {"realTime": real_time}}
    given = to_manifest(topology("startup", rows, "key BIGINT", [counts], ONE_OF_FOUR_SLOW, **more))
    run = Victim(folder, given)
    started = spoke = time.monotonic()
    answer, silent = 0, 0.0
    run.start(None)
    try:
        while run.last_commit() is None:
            time.sleep(LOOK_SECONDS)
            run.keep_alive()
            now, before = time.monotonic(), answer
            answer = (folder / "log").stat().st_size
            if answer > before:
                silent, spoke = max(silent, now - spoke), now
            if now - started > LONGEST_SECONDS:
                raise RuntimeError(f"no batch in {LONGEST_SECONDS:.0f} s:\n{run.log()}")
        return time.monotonic() - started, max(silent, time.monotonic() - spoke)
    finally:
        run.stop()
