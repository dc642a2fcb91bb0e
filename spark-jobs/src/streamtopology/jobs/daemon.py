"""The process that forks Spark's Python workers: it imports what they will need once, so that they start in milliseconds.

Spark runs it as `spark.python.daemon.module`. Its standard output is Spark's protocol, so nothing else may print there.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable
from typing import Any

from streamtopology.jobs.logs import tag_lines

MODULES = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "numba",
    "duckdb",
    "pyspark.worker",
    "streamtopology.jobs.tasks",
    "streamtopology.jobs.keys",
    "streamtopology.jobs.state",
    "streamtopology.jobs.exchange",
    "streamtopology.jobs.operators",
    "streamtopology.jobs.sources",
    "streamtopology.jobs.sinks",
    "streamtopology.routing.groupings",
)


def prefer_installed_pyspark() -> None:
    """Spark puts its zip of PySpark first on the path, and Python compiles a zip's modules at every start: 0.4 s of CPU."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith("pyspark.zip")] + [
        entry for entry in sys.path if entry.endswith("pyspark.zip")
    ]


def preload() -> None:
    """Import `MODULES`. What cannot be imported is named on standard error, and fails where it is used."""
    for name in MODULES:
        try:
            importlib.import_module(name)
        except (ImportError, SyntaxError) as failure:
            print(f"{__name__}: {name} is not preloaded: {failure}", file=sys.stderr)
    gc.collect()
    gc.freeze()  # forked workers' garbage collections then leave the shared pages alone


def freeze_at_powers_of_two(worker: Callable[..., int]) -> Callable[..., int]:
    """`worker` (one task of a worker process), whose 1st, 2nd, 4th ... call takes what lives out of garbage collection.

    PySpark collects all garbage after every task: over what a worker has imported, compiled and keeps for good that is
    14 ms of CPU, three times what the task itself costs.
    """
    tasks = 0

    def counted(*args: Any) -> int:
        nonlocal tasks
        tag_lines()
        code = worker(*args)
        tasks += 1
        if tasks & (tasks - 1) == 0:
            gc.collect()
            gc.freeze()
        return code

    return counted


def print_unless_hung_up(text: str, **how: Any) -> None:
    """In place of `print` in PySpark's daemon: Spark hangs up on its idle data source readers, which is no news for people."""
    if "BrokenPipeError" not in text:
        print(text, **how)


if __name__ == "__main__":
    prefer_installed_pyspark()
    preload()
    from pyspark import daemon

    daemon.worker = freeze_at_powers_of_two(daemon.worker)
    setattr(daemon, "print", print_unless_hung_up)  # noqa: B010 - the module has no such name of its own yet
    daemon.manager()
