"""The Spark session of a topology: the settings that make pinned micro-batches fast and failures visible at once.

Each setting was measured or has its reason in a comment; a user's own settings win over them.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.spark.cluster import MEBIBYTE
from streamtopology.jobs.spark.java import find_java
from streamtopology.jobs.spark.java_options import DRIVER_JAVA, EXECUTOR_JAVA, log4j
from streamtopology.jobs.spark.processes import SPARK_HOME
from streamtopology.jobs.spark.user_settings import jars_of, missing_jar
from streamtopology.jobs.spark.worker_variables import worker_variables

DRIVER_MEMORY = "2g"
_END_SECONDS = 120.0
# The jars that this process's driver JVM was started with.
_jars: dict[str, str] = {}


def spark_conf(slots: int, executor_memory_bytes: int, *, python: str) -> dict[str, str]:
    """Return the Spark settings of a topology on `slots` one-slot executors whose JVM heaps have `executor_memory_bytes` each.

    `python` is the interpreter of the executors' workers.
    """
    return {
        **_resources(slots, executor_memory_bytes),
        **_PLACEMENT,
        **_FAILURES,
        **_DATA_PATH,
        **_python(python),
        "spark.sql.shuffle.partitions": str(slots),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def stop_session(spark: SparkSession) -> None:
    """Stop the session; one whose JVM has died is gone already, and what it was used for has failed with that."""
    with suppress(Py4JNetworkError, ConnectionError):
        spark.stop()


def driver_jvm_death() -> str | None:
    """Return a clause on the end of this process's driver JVM; None if it lives, or none was started."""
    gateway = SparkContext._gateway
    jvm = None if gateway is None else gateway.proc
    code = None if jvm is None else jvm.poll()
    if jvm is None or code is None:
        return None
    how = f"by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"with code {code}"
    return f"Spark's driver JVM (process {jvm.pid}) ended {how}"


def create_session(name: str, master: str, conf: Mapping[str, str], stderr: Callable[[], int] | None = None) -> SparkSession:
    """Create a session on `master` under `conf`. A secret in `conf` reaches the driver's JVM by py4j, never by a command line.

    `stderr`: as for `start_driver_jvm`. Raises WrongUse if Spark does not start with these settings.
    """
    start_driver_jvm(conf, stderr)
    if SparkContext._active_spark_context is not None:
        raise RuntimeError("this process has a Spark session already; stop it first")
    os.environ["PYSPARK_PYTHON"] = conf.get("spark.pyspark.python", sys.executable)  # PySpark itself heeds no setting here
    settings = SparkConf()  # of the JVM's defaults, among them the jars that it was started with, packages resolved
    settings.setMaster(master).setAppName(name).setAll([item for item in conf.items() if item[0] not in jars_of(conf)])
    try:
        with _our_ctrl_c():
            spark = SparkSession.builder.config(conf=settings).getOrCreate()
    except Py4JJavaError as error:
        why = str(error.java_exception.toString()).splitlines()[0].rstrip(".")
        raise WrongUse(f"Spark does not start: {why}; look for it in the settings of spec.sparkConf") from error
    _log_nothing_that_is_raised(spark)
    return spark


def _log_nothing_that_is_raised(spark: SparkSession) -> None:
    """Keep py4j and PySpark from printing what breaks off with the JVM, and wrong SQL: it is raised to the caller, too."""
    for name in (None, "py4j.clientserver"):
        logging.getLogger(name).addFilter(_is_not_of_py4j)
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True  # with Java's trace of what is raised to the caller
    server = spark.sparkContext._accumulatorServer
    assert server is not None, "a session that lives has one"
    print_trace = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            print_trace(request, client_address)

    server.handle_error = handle_error


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _our_ctrl_c() -> Iterator[None]:
    """Keep the handler of SIGINT: PySpark's would cancel the running batch's job, and print what comes of it."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def start_driver_jvm(conf: Mapping[str, str], stderr: Callable[[], int] | None = None) -> None:
    """Start this process's driver JVM unless it runs; it may be started early, along with the cluster, as it takes seconds.

    One that was started early without the jars of `conf` is replaced. `stderr` opens a descriptor for it to write to; None: it
    inherits this process's. Raises WrongUse if it does not start with these jars.
    """
    global _jars
    jars = jars_of(conf)
    if missing := missing_jar(jars):
        raise WrongUse(f"spec.sparkConf: spark.jars names {missing!r}, and the driver has no such file")
    if SparkContext._gateway is not None:
        if jars == _jars or not jars:
            return
        end_driver_jvm()
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["SPARK_HOME"] = str(SPARK_HOME)
    if "spark.driver.bindAddress" in conf:
        os.environ["PYSPARK_PYTHON"] = sys.executable  # the driver's own Python data source starts its reader with it
    os.environ["SPARK_LOCAL_IP"] = conf["spark.driver.bindAddress"]
    launch = SparkConf(loadDefaults=False)
    launch.set("spark.driver.memory", conf.get("spark.driver.memory", DRIVER_MEMORY))
    launch.set("spark.driver.extraJavaOptions", conf.get("spark.driver.extraJavaOptions", " ".join(DRIVER_JAVA)))
    launch.setAll(list(jars.items()))
    try:
        gateway = _launched(launch, stderr)
    except PySparkRuntimeError as error:
        if not jars:
            raise
        asked = ", ".join(f"{name}: {value}" for name, value in jars.items())
        raise WrongUse(f"Spark does not start with the jars of spec.sparkConf ({asked}); its own lines say why") from error
    _jars = jars
    SparkContext._ensure_initialized(gateway=gateway, conf=launch)


def end_driver_jvm() -> None:
    """Let this process's driver JVM, which has no session, end by itself, and wait for that."""
    gateway = SparkContext._gateway
    assert gateway is not None
    process = gateway.proc
    assert process is not None, "we have started it"
    assert process.stdin is not None, "a gateway's JVM ends with it"
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()
    process.wait(_END_SECONDS)


def _launched(conf: SparkConf, stderr: Callable[[], int] | None) -> JavaGateway:
    if stderr is None:
        return launch_gateway(conf)
    descriptor = stderr()
    try:
        # A session of its own: a signal to our process group is for us, and we stop the JVM when its batch has ended.
        return launch_gateway(conf, {"stderr": descriptor, "start_new_session": True})
    finally:
        os.close(descriptor)


def _resources(slots: int, executor_memory_bytes: int) -> dict[str, str]:
    return {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.executor.memory": f"{executor_memory_bytes // MEBIBYTE}m",
        "spark.executor.cores": "1",
        "spark.cores.max": str(slots),
        "spark.executor.extraJavaOptions": " ".join([*EXECUTOR_JAVA, log4j(EXECUTOR_LOGS)]),
        "spark.scheduler.minRegisteredResourcesRatio": "0",  # we wait for executors ourselves, and say so
    }


# A task logs a dozen lines of INFO, a tenth of what it costs.
DRIVER_LOGS, EXECUTOR_LOGS = (Path(__file__).parent / f"{part}-log4j2.properties" for part in ("driver", "executor"))

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
    # An executor collects garbage, or waits for its share of CPU, for seconds. One that died closes its connections; one that
    # vanished with its host is dropped by the scheduler after twice this time.
    "spark.shuffle.io.connectionTimeout": "60s",
    "spark.shuffle.io.connectionCreationTimeout": "10s",
    "spark.executor.heartbeatInterval": "1s",
    "spark.python.task.killTimeout": "30s",  # a cancelled task's Python worker holds state: let it finish its task and live on
    "spark.excludeOnFailure.enabled": "false",
}

_DATA_PATH = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",  # of blobs: Java's is slower, and needs another shuffle
    "spark.shuffle.sort.bypassMergeThreshold": "1",  # would open a file per partition in every task
    # Spark runs a few rows a task for its own sources: generating and compiling code for them costs more.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.shuffle.compress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.python.unix.domain.socket.enabled": "true",
}


def _python(python: str) -> dict[str, str]:
    return {
        "spark.pyspark.python": python,
        "spark.python.daemon.module": "streamtopology.jobs.spark.worker_daemon",
        "spark.python.worker.reuse": "true",
        **worker_variables(),
    }
