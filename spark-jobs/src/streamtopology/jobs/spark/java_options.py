"""Options of every JVM that we start: those that Spark needs on Java 17 and later, and those that keep JVMs small and quick."""

from __future__ import annotations

from pathlib import Path

LIGHT_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

# A batch takes a few hundred milliseconds of CPU, of which a third went into compiling and collecting in parallel.
DRIVER_JAVA = LIGHT_JVM

EXECUTOR_JAVA = (
    *LIGHT_JVM,
    # Compiling is work that a slow executor does instead of a batch's: compile cheaply, and all of it while warming up.
    "-XX:CompileThresholdScaling=0.02",
)

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

MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
)


def temporary_folder(folder: Path) -> str:
    """Return the option that makes a JVM keep its temporary files in `folder`, which is there: a killed one leaves them."""
    return f"-Djava.io.tmpdir={folder}"


def log4j(file: Path) -> str:
    """Return the option that makes a JVM log by `file`. Spark's own setting of the level does not reach executors."""
    return f"-Dlog4j2.configurationFile={file.as_uri()}"
