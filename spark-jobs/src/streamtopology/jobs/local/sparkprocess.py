"""Command lines of Spark's standalone master and worker, without `spark-class`: its launcher is one JVM more per process."""

from __future__ import annotations

from pathlib import Path

import pyspark

from streamtopology.jobs.local.java import Java

SPARK_HOME = Path(pyspark.__file__).parent
SPARK_ENVIRONMENT = {"SPARK_HOME": str(SPARK_HOME), "SPARK_SCALA_VERSION": "2.13"}  # for the commands that workers build
LIGHT_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

# What spark-class adds: org.apache.spark.launcher.JavaModuleOptions of Spark 4.3.
_OPENED_PACKAGES = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
)


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
    options = [*LIGHT_JVM, "-Xms32m", "-Xmx256m", *_MODULE_OPTIONS]
    return [str(java.binary), *options, "-cp", f"{SPARK_HOME / 'jars'}/*", main, "--properties-file", str(properties)]
