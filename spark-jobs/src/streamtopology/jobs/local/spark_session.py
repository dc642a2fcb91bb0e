"""The Spark session on the embedded cluster."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from streamtopology.jobs.local.class_archive import SHARED_CLASSES
from streamtopology.jobs.local.local_cluster import MASTER, LocalCluster
from streamtopology.jobs.local.loopback import Subnet
from streamtopology.jobs.local.spelling import spelling
from streamtopology.jobs.local.stderr_filter import to_stderr
from streamtopology.jobs.spark.history_log import history_log
from streamtopology.jobs.spark.java_options import DRIVER_JAVA, log4j, temporary_folder
from streamtopology.jobs.spark.processes import DriverAddress
from streamtopology.jobs.spark.session import DRIVER_LOGS, create_session, spark_conf, start_driver_jvm
from streamtopology.jobs.spark.user_settings import jars_of

_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
LOCAL_DRIVER = {
    _DRIVER_OPTIONS: " ".join([shlex.quote(SHARED_CLASSES), *DRIVER_JAVA, log4j(DRIVER_LOGS)]),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


# The file of what Spark logs in the driver's JVM, beside the folders of clusters. It outlives these.
DRIVER_LOG = "spark.log"
NO_JARS: Mapping[str, str] = {}
# Characters of a folder in which a socket's path is not too long: the system knows 107.
_SHORT = 60

# The folder of the temporary files of this process's driver JVM, once there is one: in that of its first cluster.
_scratch: list[Path] = []


def start_local_jvm(directory: Path, jars: Mapping[str, str] = NO_JARS) -> None:
    """Start the driver's JVM unless it runs, and make sure of its folder for temporary files.

    `directory`: that of the cluster, of which it needs nothing else: both can start at once. `jars`: settings that say which
    it has.
    """
    if not _scratch:
        _scratch.append(directory / "driver-tmp")
        atexit.register(_remove_scratch)
    directory.parent.mkdir(parents=True, exist_ok=True)
    for folder in (_scratch[0].parent, _scratch[0]):  # again after the end of its first cluster
        folder.mkdir(mode=0o700, exist_ok=True)
    os.environ.update(spelling())
    own = (temporary_folder(_scratch[0]), f"-Dstreamtopology.log={directory.parent / DRIVER_LOG}")
    options = f"{shlex.join(own)} {LOCAL_DRIVER[_DRIVER_OPTIONS]}"
    start_driver_jvm({**LOCAL_DRIVER, **jars, _DRIVER_OPTIONS: options}, to_stderr)


def meeting_place(scratch: Path) -> dict[str, str]:
    """Settings of where Python and JVMs meet: sockets in `scratch`, else in a folder with a short path, else ports."""
    for folder in (scratch, Path(tempfile.gettempdir()), Path("/tmp")):
        if len(str(folder)) <= _SHORT and os.access(folder, os.W_OK | os.X_OK):
            return {"spark.python.unix.domain.socket.dir": str(folder)}
    return {"spark.python.unix.domain.socket.enabled": "false"}


def _remove_scratch() -> None:
    shutil.rmtree(_scratch[0], ignore_errors=True)
    with suppress(OSError):  # of a cluster that is not closed yet
        _scratch[0].parent.rmdir()


def create_local_session(cluster: LocalCluster, name: str, extra: Mapping[str, str] | None = None) -> SparkSession:
    """Create a session on the embedded cluster, and let its executors start; `extra` settings win over ours."""
    start_local_jvm(cluster.directory, jars_of(extra or {}))
    loopback = {
        **LOCAL_DRIVER,
        "spark.authenticate": "true",
        "spark.authenticate.secret": cluster.secret,
        "spark.local.dir": str(cluster.directory / "driver"),
        **meeting_place(cluster.scratch),
        "spark.sql.warehouse.dir": str(cluster.directory / "warehouse"),
        "spark.cores.max": str(Subnet.MOST_HOSTS),  # executors may come later
        "spark.standalone.executorRemoveDelayOnDisconnection": "0s",  # no worker will say why its executor has ended
    }
    measured = spark_conf(len(cluster.slots), cluster.heap_bytes, python=sys.executable)
    own = f"{shlex.quote(SHARED_CLASSES)} {shlex.quote(temporary_folder(cluster.scratch))}"
    measured[_EXECUTOR_OPTIONS] = f"{own} {measured[_EXECUTOR_OPTIONS]}"
    settings = {**measured, **loopback, **history_log(os.environ), **(extra or {})}
    spark = create_session(name, MASTER, settings, to_stderr)
    chosen = dict(spark.sparkContext.getConf().getAll())
    address = f"{chosen['spark.driver.host']}:{chosen['spark.driver.port']}"
    cluster.serve(DriverAddress(address, chosen["spark.app.id"]), chosen)
    return spark
