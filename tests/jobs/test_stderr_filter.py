"""Spark's output on a laptop's screen, without its noise."""

from __future__ import annotations

import os
import threading

import pytest
from support.waiting import eventually

from streamtopology.jobs.local.stderr_filter import to_stderr, without_noise

HUNG_UP = """Traceback (most recent call last):
  File "/venv/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/venv/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 95, in worker
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe
"""
THEIRS = """Traceback (most recent call last):
  File "/home/me/operators.py", line 3, in process
    send(row)
BrokenPipeError: [Errno 32] Broken pipe
"""
CUT_SHORT = "Traceback (most recent call last):\n  File"


def reported(text: str) -> str:
    return "".join(without_noise(text.splitlines(keepends=True)))


def test_closed_connections_of_spark_are_not_reported() -> None:
    before, after = "ERROR TaskSchedulerImpl: Lost executor 2\n", "[  24.8 s] running\n"
    assert reported(before + HUNG_UP + after + HUNG_UP + HUNG_UP) == before + after
    assert reported("WARNING: Using incubator modules: jdk.incubator.vector\n") == ""


@pytest.mark.parametrize("text", [THEIRS, CUT_SHORT, "one\n" + THEIRS + "two", HUNG_UP.replace("BrokenPipe", "Memory")])
def test_everything_else_is_reported_as_it_is(text: str) -> None:
    assert reported(text) == text


def test_a_childs_lines_come_out_where_stderr_is_by_then(capsys: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    writing = to_stderr()
    os.write(writing, b"one line\n")
    os.close(writing)
    eventually(lambda: threading.active_count() == before)
    assert capsys.readouterr().err == "one line\n"
