"""The process that forks Spark's Python workers: it imports what they will need once, so that they start in milliseconds.

Spark runs it as `spark.python.daemon.module`. Its standard output is Spark's protocol, so nothing else may print there.
"""

from __future__ import annotations

import gc
import importlib
import sys

LIBRARIES = ("numpy", "pyarrow", "pyarrow.compute", "pyarrow.parquet", "numba", "duckdb", "pyspark.worker")
OURS = (
    "streamtopology.routing.hashing",
    "streamtopology.routing.table",
    "streamtopology.routing.report",
    "streamtopology.routing.groupings",
    "streamtopology.jobs.keys",
    "streamtopology.jobs.state",
    "streamtopology.jobs.exchange",
    "streamtopology.jobs.instance",
    "streamtopology.jobs.operators",
    "streamtopology.jobs.sources",
    "streamtopology.jobs.sinks",
)
WARM_UP = "compile_kernels"  # a module of ours may have this function: it calls its kernels once, so that workers inherit them


def preload() -> None:
    """Import `LIBRARIES` and `OURS`. What cannot be imported is named on standard error and fails where it is used."""
    for name in (*LIBRARIES, *OURS):
        try:
            module = importlib.import_module(name)
        except (ImportError, SyntaxError) as failure:
            print(f"streamtopology.jobs.daemon: {name} is not preloaded: {failure}", file=sys.stderr)
        else:
            if name in OURS and hasattr(module, WARM_UP):
                getattr(module, WARM_UP)()
    gc.collect()
    gc.freeze()  # forked workers' garbage collections then leave the shared pages alone


if __name__ == "__main__":
    preload()
    from pyspark import daemon

    daemon.manager()
