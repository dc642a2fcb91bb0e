"""Command lines of Spark's standalone master and worker, without `spark-class`: its launcher is one JVM more per process."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from streamtopology.jobs.java_options import LIGHT_JVM, MODULE_OPTIONS
from streamtopology.jobs.local.java import Java


def _home_of_pyspark() -> Path:
    """Where PySpark is installed, without importing it: a process that only starts JVMs stays small."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ImportError("pyspark is not installed; it is a dependency of this package")
    return Path(found.origin).parent


SPARK_HOME = _home_of_pyspark()
JARS = f"{SPARK_HOME / 'jars'}/*"
SPARK_ENVIRONMENT = {"SPARK_HOME": str(SPARK_HOME), "SPARK_SCALA_VERSION": "2.13"}  # for the commands that workers build


def master_command(java: Java, properties: Path, host: str) -> list[str]:
    """A master at `host` on a free port, its web page on another."""
    where = ["--host", host, "--port", "0", "--webui-port", "0"]
    return [*_java(java, "org.apache.spark.deploy.master.Master", properties), *where]


def worker_command(java: Java, properties: Path, host: str, memory_mebibytes: int, work_dir: Path, master: str) -> list[str]:
    """A worker at `host` that offers one core, which makes room for one executor."""
    where = ["--host", host, "--webui-port", "0", "--work-dir", str(work_dir)]
    offer = ["--cores", "1", "--memory", f"{memory_mebibytes}m"]
    return [*_java(java, "org.apache.spark.deploy.worker.Worker", properties), *where, *offer, master]


def _java(java: Java, main: str, properties: Path) -> list[str]:
    options = [*LIGHT_JVM, "-Xms32m", "-Xmx256m", *MODULE_OPTIONS]
    return [str(java.binary), *options, "-cp", JARS, main, "--properties-file", str(properties)]
