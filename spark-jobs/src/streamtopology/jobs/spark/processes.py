"""Command lines of Spark's standalone master and worker, without `spark-class`: its launcher is one JVM more per process."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from streamtopology.jobs.spark.java import Java
from streamtopology.jobs.spark.java_options import LIGHT_JVM, MODULE_OPTIONS


def _home_of_pyspark() -> Path:
    """Return the folder of PySpark without importing it: a process that only starts JVMs stays small."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ImportError("pyspark is not installed; it is a dependency of this package")
    return Path(found.origin).parent


SPARK_HOME = _home_of_pyspark()
_JARS = SPARK_HOME / "jars"
# As Spark's own launcher builds it: an archive of classes (`local.class_archive`) fits no other one.
CLASS_PATH = ":".join(map(str, [SPARK_HOME / "conf", *_JARS.glob("slf4j-api-*.jar"), _JARS / "*"]))
SPARK_ENVIRONMENT = {"SPARK_HOME": str(SPARK_HOME), "SPARK_SCALA_VERSION": "2.13"}  # for the commands that workers build


def master_command(java: Java, properties: Path, host: str, *options: str) -> list[str]:
    """Return the command of a master at `host` on a free port, its web page on another. `options`: further ones of its JVM."""
    where = ["--host", host, "--port", "0", "--webui-port", "0"]
    return [*_java(java, "org.apache.spark.deploy.master.Master", properties, options), *where]


def worker_command(
    java: Java, properties: Path, host: str, memory_mebibytes: int, work_dir: Path, master: str, *options: str
) -> list[str]:
    """Return the command of a worker at `host` that offers one core, room for one executor."""
    where = ["--host", host, "--webui-port", "0", "--work-dir", str(work_dir)]
    offer = ["--cores", "1", "--memory", f"{memory_mebibytes}m"]
    return [*_java(java, "org.apache.spark.deploy.worker.Worker", properties, options), *where, *offer, master]


def _java(java: Java, main: str, properties: Path, further: Sequence[str]) -> list[str]:
    options = [*further, *LIGHT_JVM, "-Xms32m", "-Xmx256m", *MODULE_OPTIONS]
    return [str(java.binary), *options, "-cp", CLASS_PATH, main, "--properties-file", str(properties)]
