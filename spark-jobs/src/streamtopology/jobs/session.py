"""The Spark session of a topology: the settings that make pinned micro-batches fast and failures visible at once.

Each setting was measured or has its reason beside it; a user's own settings win over them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streamtopology.jobs.java_options import DRIVER_JAVA, EXECUTOR_JAVA, log4j
from streamtopology.jobs.local.cluster import MEBIBYTE, LocalCluster
from streamtopology.jobs.local.java import find_java
from streamtopology.jobs.local.said import to_stderr
from streamtopology.jobs.local.sparkprocess import SPARK_HOME
from streamtopology.jobs.local.subnet import Subnet

DRIVER_MEMORY = "2g"
WORKER_ENVIRONMENT = {
    # One task slot per executor: libraries that start threads would fight for its one core.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    # What one batch lets go the next one needs: memory that goes back to the system in between costs four times as much
    # as the copying that it is for, one page after the other. Arrays of 32 MiB or more, which state has, do go back.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MIMALLOC_PURGE_DELAY": "10000",  # ms; Arrow's own
}


def spark_conf(slots: int, executor_memory_bytes: int, *, python: str, python_path: Sequence[str] = ()) -> dict[str, str]:
    """Spark settings of a topology on `slots` one-slot executors whose JVM heaps have `executor_memory_bytes` each.

    `python` is the interpreter of the executors' workers, `python_path` further folders they import from.
    """
    return {
        **_resources(slots, executor_memory_bytes),
        **_PLACEMENT,
        **_FAILURES,
        **_DATA_PATH,
        **_python(python, python_path),
        "spark.sql.shuffle.partitions": str(slots),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def create_session(
    name: str, master: str, conf: Mapping[str, str], stderr: Callable[[], int] | None = None
) -> SparkSession:  # fmt: skip
    """A session on `master` under `conf`. A secret in `conf` reaches the driver's JVM by py4j, never by a command line.

    `stderr`: as for `start_driver_jvm`.
    """
    start_driver_jvm(conf, stderr)
    if SparkContext._active_spark_context is not None:
        raise RuntimeError("this process has a Spark session already; stop it first")
    os.environ["PYSPARK_PYTHON"] = conf.get("spark.pyspark.python", sys.executable)  # PySpark itself heeds no setting here
    settings = SparkConf()
    settings.setMaster(master).setAppName(name).setAll(list(conf.items()))
    return SparkSession.builder.config(conf=settings).getOrCreate()


def create_local_session(cluster: LocalCluster, name: str, extra: Mapping[str, str] | None = None) -> SparkSession:
    """A session on the embedded cluster; `extra` settings win over ours."""
    loopback = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": cluster.secret,
        "spark.driver.extraJavaOptions": " ".join([*DRIVER_JAVA, log4j(_DRIVER_LOGS)]),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(cluster.directory / "driver"),
        "spark.sql.warehouse.dir": str(cluster.directory / "warehouse"),
        "spark.cores.max": str(Subnet.MOST_HOSTS),  # executors may come later
    }
    measured = spark_conf(len(cluster.slots), cluster.heap_bytes, python=sys.executable)
    return create_session(name, cluster.master, {**measured, **loopback, **(extra or {})}, to_stderr)


def start_driver_jvm(conf: Mapping[str, str], stderr: Callable[[], int] | None = None) -> None:
    """Start this process's driver JVM unless it runs; it may be started early, beside the cluster, as it takes seconds.

    `stderr` opens a descriptor for it to write to; None: where this process does.
    """
    if SparkContext._gateway is not None:
        return
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["SPARK_HOME"] = str(SPARK_HOME)
    if "spark.driver.bindAddress" in conf:
        os.environ["PYSPARK_PYTHON"] = sys.executable  # the driver's own Python data source starts its reader with it
    os.environ["SPARK_LOCAL_IP"] = conf["spark.driver.bindAddress"]
    launch = SparkConf(loadDefaults=False)
    launch.set("spark.driver.memory", conf.get("spark.driver.memory", DRIVER_MEMORY))
    launch.set("spark.driver.extraJavaOptions", conf.get("spark.driver.extraJavaOptions", " ".join(DRIVER_JAVA)))
    SparkContext._ensure_initialized(gateway=_launched(launch, stderr), conf=launch)


def _launched(conf: SparkConf, stderr: Callable[[], int] | None) -> JavaGateway:
    if stderr is None:
        return launch_gateway(conf)
    descriptor = stderr()
    try:
        return launch_gateway(conf, {"stderr": descriptor})
    finally:
        os.close(descriptor)


def _resources(slots: int, executor_memory_bytes: int) -> dict[str, str]:
    return {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.executor.memory": f"{executor_memory_bytes // MEBIBYTE}m",
        "spark.executor.cores": "1",
        "spark.cores.max": str(slots),
        "spark.executor.extraJavaOptions": " ".join([*EXECUTOR_JAVA, log4j(_EXECUTOR_LOGS)]),
        "spark.scheduler.minRegisteredResourcesRatio": "0",  # we wait for executors ourselves, and say so
    }


# A task logs a dozen lines of INFO, a tenth of what it costs.
_DRIVER_LOGS, _EXECUTOR_LOGS = (Path(__file__).parent / f"{part}-log4j2.properties" for part in ("driver", "executor"))

_PLACEMENT = {
    "spark.locality.wait": "30s",  # a pinned task waits for its executor; the watch cancels it when the executor is gone
    "spark.locality.wait.node": "0s",
    "spark.locality.wait.rack": "0s",
    "spark.shuffle.reduceLocality.enabled": "false",  # would bring its own preferences to reduce tasks
    "spark.sql.adaptive.enabled": "false",  # would merge or split partitions: instance i is partition i
}

_FAILURES = {  # the batch is the unit of retry: Spark must give up at once, and say so at once
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
    "spark.shuffle.io.connectionTimeout": "2s",
    "spark.executor.heartbeatInterval": "1s",
    "spark.python.task.killTimeout": "30s",  # a cancelled task's Python worker holds state: let it finish its turn and live on
    "spark.excludeOnFailure.enabled": "false",
}

_DATA_PATH = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",  # of blobs: Java's is slower, and needs another shuffle
    "spark.shuffle.sort.bypassMergeThreshold": "1",  # would open a file per place in every task
    # What Spark runs for sources of its own is a few rows a task: generating and compiling code for them costs more.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.shuffle.compress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.python.unix.domain.socket.enabled": "true",
}


def _python(python: str, python_path: Sequence[str]) -> dict[str, str]:
    environment: dict[str, Any] = {**WORKER_ENVIRONMENT}
    if python_path:
        environment["PYTHONPATH"] = os.pathsep.join(python_path)
    return {
        "spark.pyspark.python": python,
        "spark.python.daemon.module": "streamtopology.jobs.daemon",
        "spark.python.worker.reuse": "true",
        **{f"spark.executorEnv.{key}": value for key, value in environment.items()},
    }
