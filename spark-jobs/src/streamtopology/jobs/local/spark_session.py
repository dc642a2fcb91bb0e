"""The Spark session on the embedded cluster."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from streamtopology.jobs.local.class_archive import SHARED_CLASSES
from streamtopology.jobs.local.loopback import Subnet
from streamtopology.jobs.local.standalone import LocalCluster
from streamtopology.jobs.local.stderr_filter import to_stderr
from streamtopology.jobs.spark.java_options import DRIVER_JAVA, log4j
from streamtopology.jobs.spark.session import DRIVER_LOGS, create_session, spark_conf, start_driver_jvm

_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
_DRIVER = {
    "spark.driver.extraJavaOptions": " ".join([shlex.quote(SHARED_CLASSES), *DRIVER_JAVA, log4j(DRIVER_LOGS)]),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def start_local_jvm() -> None:
    """Start the driver's JVM unless it runs: it needs nothing of the cluster, so both can start at once."""
    start_driver_jvm(_DRIVER, to_stderr)


def create_local_session(cluster: LocalCluster, name: str, extra: Mapping[str, str] | None = None) -> SparkSession:
    """Create a session on the embedded cluster; `extra` settings win over ours."""
    loopback = {
        **_DRIVER,
        "spark.authenticate": "true",
        "spark.authenticate.secret": cluster.secret,
        "spark.local.dir": str(cluster.directory / "driver"),
        "spark.sql.warehouse.dir": str(cluster.directory / "warehouse"),
        "spark.cores.max": str(Subnet.MOST_HOSTS),  # executors may come later
    }
    measured = spark_conf(len(cluster.slots), cluster.heap_bytes, python=sys.executable)
    measured[_EXECUTOR_OPTIONS] = f"{shlex.quote(SHARED_CLASSES)} {measured[_EXECUTOR_OPTIONS]}"
    return create_session(name, cluster.master, {**measured, **loopback, **(extra or {})}, to_stderr)
