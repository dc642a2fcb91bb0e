"""An archive of Spark's classes (Java's class data sharing), kept with the Python packages: JVMs start with half the CPU.

    python -m streamtopology.jobs.local.class_archive    # records it unless it is there; half a minute, 120 MB

Java checks that an archive fits its own build and the class path; without one that fits, it starts as ever and says nothing.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from streamtopology.jobs.spark.java_options import DRIVER_JAVA, log4j
from streamtopology.jobs.spark.session import DRIVER_LOGS, create_session, end_driver_jvm

ARCHIVE = Path(sys.prefix) / "share" / "streamtopology" / "spark-classes.jsa"
# The option of a JVM that uses the archive.
SHARED_CLASSES = f"-XX:SharedArchiveFile={ARCHIVE}"
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # hundreds of warnings name classes that cannot be archived
_CLUSTER = "local-cluster[1,1,512]"  # master, worker and driver in the JVM that records


def record(file: Path = ARCHIVE) -> None:
    """Start a small cluster in one JVM, end it, and keep the classes that it has loaded in `file`.

    Raises `JavaMissing`, OSError if the folder cannot be written, and `subprocess.TimeoutExpired`.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    recording = shlex.quote(f"-XX:ArchiveClassesAtExit={unfinished}")
    options = " ".join([recording, _QUIET, *DRIVER_JAVA, log4j(DRIVER_LOGS)])
    conf = {
        "spark.driver.extraJavaOptions": options,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
    }
    create_session("class-archive", _CLUSTER, conf).stop()
    end_driver_jvm()  # it writes the archive then
    unfinished.replace(file)


if __name__ == "__main__":
    if not ARCHIVE.exists():
        record()
