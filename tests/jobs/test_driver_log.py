"""What Spark logs in the driver's JVM: a line of each error on the terminal, all in a file; nothing about a full disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Logs one error as Spark does, in a driver's JVM whose log is at the given place.
PROGRAM = """
import sys, threading
from pathlib import Path
from pyspark import SparkContext
from streamtopology.jobs.local import spark_session
from streamtopology.jobs.spark.session import end_driver_jvm
spark_session.DRIVER_LOG = sys.argv[2]
spark_session.start_local_jvm(Path(sys.argv[1]) / "cluster" / "a")
jvm = SparkContext._gateway.jvm
cause = jvm.java.io.IOException("No space left on device")
jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.Executor").error("a task failed\\n\\tat a.B", cause)
end_driver_jvm()
for thread in threading.enumerate():
    if thread.name == "jvm-lines":
        thread.join(60)
"""


def terminal_of(folder: Path, log: str) -> str:
    command = [sys.executable, "-c", PROGRAM, folder, log]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stderr


def test_trace_goes_to_the_file_that_the_line_on_the_terminal_names(tmp_path: Path) -> None:
    shown = terminal_of(tmp_path, "spark.log")
    log = tmp_path / "cluster" / "spark.log"
    (line,) = shown.splitlines()
    assert line.endswith(f"ERROR Executor: a task failed (in full: {log})")
    written = log.read_text()
    assert (
        "ERROR org.apache.spark.Executor: a task failed\n\tat a.B\njava.io.IOException: No space left on device\n\tat "
        in written
    )


@pytest.mark.parametrize("log", ["/dev/full", "/proc/nowhere/spark.log"], ids=["full disk", "no folder"])
def test_log_that_cannot_be_written_is_no_further_trace(tmp_path: Path, log: str) -> None:
    (line,) = terminal_of(tmp_path, log).splitlines()
    assert "ERROR Executor: a task failed" in line
