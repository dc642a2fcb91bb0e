"""The process that forks Spark's Python workers. It imports their modules once, so that they start in milliseconds.

Spark runs it as `spark.python.daemon.module`. Its standard output is Spark's protocol, so nothing else may print there.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from streamtopology.jobs.log_tags import tag_lines

MODULES = (
    "numpy",
    "pandas",  # pyarrow imports it for the first array of Python's objects: 0.3 s and 37 MiB in each worker
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "numba",
    "duckdb",
    "pyspark.worker",
    "streamtopology.jobs.worker.stage_tasks",
    "streamtopology.jobs.realtime.worker_sockets",
    "streamtopology.jobs.columnar.keys",
    "streamtopology.jobs.columnar.key_kernels",
    "streamtopology.jobs.state",
    "streamtopology.jobs.state.kernels",
    "streamtopology.jobs.exchange.outbox",
    "streamtopology.jobs.operators",
    "streamtopology.jobs.operators.declared_cost",
    "streamtopology.jobs.operators.kernels",
    "streamtopology.jobs.connectors.sources",
    "streamtopology.jobs.connectors.sinks",
    "streamtopology.routing.groupings",
    "streamtopology.routing.table.table",
)


def preload(modules: Sequence[str] = MODULES) -> None:
    """Import `modules`. A module that cannot be imported is named on standard error, and fails where it is used."""
    for name in modules:
        try:
            importlib.import_module(name)
        except (ImportError, SyntaxError) as failure:
            print(f"{__name__}: {name} is not preloaded: {failure}", file=sys.stderr)
    gc.collect()
    gc.freeze()  # forked workers' garbage collections then leave the shared pages alone


def freeze_at_powers_of_two(worker: Callable[..., int]) -> Callable[..., int]:
    """Wrap `worker` (one task of a worker process): its 1st, 2nd, 4th ... call exempts all live objects from collection.

    PySpark collects all garbage after every task: over all that a worker has imported, compiled and cached, that takes
    14 ms of CPU, three times as much as the task itself.
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


def print_unless_disconnected(text: str, **how: Any) -> None:
    """Replace `print` in PySpark's daemon: Spark disconnects idle data source readers, which is expected."""
    if "BrokenPipeError" not in text:
        print(text, **how)


if __name__ == "__main__":
    preload()
    from pyspark import daemon

    daemon.worker = freeze_at_powers_of_two(daemon.worker)
    setattr(daemon, "print", print_unless_disconnected)  # noqa: B010 - the module has no such name of its own yet
    daemon.manager()
