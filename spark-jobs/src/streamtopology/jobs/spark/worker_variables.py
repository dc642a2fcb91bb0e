"""The environment of Python workers."""

from __future__ import annotations

import os
from pathlib import Path

OF_EXECUTORS = "spark.executorEnv."
# Python finds `sitecustomize` there, last in its path.
_START = Path(__file__).parent / "start"
_VARIABLES = {
    # One task slot per executor: libraries that start threads would fight for its one core.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    # The next batch needs the memory that one batch frees. Returned to the system in between, it costs four times as much as
    # the copying that it is for, one page after the other. Arrays of 32 MiB or more, as in state, are returned.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "ARROW_DEFAULT_MEMORY_POOL": "mimalloc",
    "MIMALLOC_PURGE_DELAY": "10000",  # ms
}


def worker_variables() -> dict[str, str]:
    """Spark's settings that give workers their environment."""
    # The driver's JVM gives it also to the Python processes that list our source's input and plan its reading.
    path = [*filter(None, [os.environ.get("PYTHONPATH")]), str(_START)]
    environment = {**_VARIABLES, "PYTHONPATH": os.pathsep.join(path)}
    return {f"{OF_EXECUTORS}{key}": value for key, value in environment.items()}
