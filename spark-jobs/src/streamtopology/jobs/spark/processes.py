"""Command lines of Spark's executors, without `spark-class`: its launcher is one JVM more per process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from streamtopology.jobs.spark.java import Java


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
SPARK_ENVIRONMENT = {"SPARK_HOME": str(SPARK_HOME), "SPARK_SCALA_VERSION": "2.13"}


@dataclass(frozen=True)
class DriverAddress:
    """Where an executor finds its driver: `address` is HOST:PORT, `app` Spark's name of its application."""

    address: str
    app: str


def backend_command(
    java: Java,
    backend: str,
    options: Sequence[str],
    driver: DriverAddress,
    executor_id: str,
    host: str,
    class_path: str = CLASS_PATH,
) -> list[str]:
    """Return the command of an executor with one task slot at `host`: `backend` is its main class, `options` those of the JVM.

    Spark's own settings it gets from the driver when it registers; the secret is in its environment.
    """
    return [
        str(java.binary), *options, "-cp", class_path, backend,
        "--driver-url", f"spark://CoarseGrainedScheduler@{driver.address}",
        "--executor-id", executor_id,
        "--cores", "1",
        "--app-id", driver.app,
        "--hostname", host,
        "--resourceProfileId", "0",
    ]  # fmt: skip
