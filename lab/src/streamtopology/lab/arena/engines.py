"""The engines, their pinned versions, and how each gets an environment of its own below build/arena."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamtopology.contract.errors import Unavailable

# What the commands of setup write their pins to, once all of them are done.
_READY = ".ready"
_PYTHON = "3.11"
NEXMARK = "https://github.com/nexmark/nexmark"
NEXMARK_COMMIT = "6b3646c3baec701f1fa74baf938d235f742e5d3c"
NEXMARK_JAR = "nexmark-flink/target/nexmark-flink-0.3-SNAPSHOT.jar"
SHUFFLEBENCH = "https://github.com/dynatrace-research/ShuffleBench"
SHUFFLEBENCH_COMMIT = "44173d3cb4b2aab3f52105b497254601005a2db3"
# Maven has no 0.11.0, which ShuffleBench names.
_HASH4J = "com.dynatrace.hash4j:hash4j:0.20.0"


class EngineMissing(Unavailable):
    """An engine cannot be had here; the message says what failed."""


@dataclass(frozen=True)
class Engine:
    """`packages` of PyPI and `jars` of Maven, which go into the environment's folder `jar_folder`.

    Without packages it is what runs here: StreamTopology. `home`: the environment, where several share one.
    """

    title: str
    packages: Sequence[str] = ()
    jars: Sequence[str] = ()
    jar_folder: str = ""
    home: str = ""

    @property
    def pins(self) -> str:
        """All versions, in one line."""
        return " ".join([*self.packages, *self.jars])


# Flink reads Parquet by Hadoop's classes, which Flink does not bring along.
_PARQUET = ("org.apache.flink:flink-sql-parquet:2.3.0",)
_HADOOP = ("org.apache.hadoop:hadoop-client-api:3.4.1", "org.apache.hadoop:hadoop-client-runtime:3.4.1")
_SPARK = ("pyspark==4.3.0", "pandas==2.3.3", "pyarrow==26.0.1", "protobuf==7.36.2")
ENGINES = {
    "streamtopology": Engine("StreamTopology"),
    "streamtopology-fixed": Engine("StreamTopology, not re-routed"),
    "flink": Engine(
        "Flink SQL 2.3.0", ("apache-flink==2.3.0",), (*_PARQUET, *_HADOOP), "lib/python3.11/site-packages/pyflink/lib"
    ),
    "spark": Engine("Spark SQL 4.3.0", _SPARK, home="spark"),
    "spark-state": Engine("Spark 4.3.0, transformWithState in Python", _SPARK, home="spark"),
    "bytewax": Engine("Bytewax 0.21.1", ("bytewax==0.21.1", "pyarrow==26.0.1")),
    "pathway": Engine("Pathway 0.33.0", ("pathway==0.33.0",)),
}


@dataclass(frozen=True)
class Place:
    """The folder of the arena, and where the repositories of nexmark and ShuffleBench are: an address or a folder."""

    folder: Path
    nexmark: str = NEXMARK
    shufflebench: str = SHUFFLEBENCH

    @property
    def nexmark_checkout(self) -> Path:
        return self.folder / "nexmark"


def python_of(name: str, engine: Engine, place: Place, announce: Callable[[str], None]) -> Path:
    """The interpreter of the engine's environment, made first where it is not there as pinned. Raises EngineMissing."""
    if not engine.packages:
        return Path(sys.executable)
    folder = place.folder / (engine.home or name)
    python, ready = folder / "bin/python", folder / _READY
    if ready.exists() and ready.read_text() == engine.pins:
        return python
    announce(f"{engine.title}: makes {folder} (once, some minutes)")
    uv = _tool("uv", "build/uv/bin/uv")
    _call([uv, "venv", "--quiet", "--clear", "--python", _PYTHON, str(folder)])
    _call([uv, "pip", "install", "--quiet", "--python", str(python), *engine.packages])
    for artifact in engine.jars:
        fetched_jar(artifact, folder / engine.jar_folder)
    ready.write_text(engine.pins)
    return python


def fetched_jar(artifact: str, folder: Path) -> Path:
    """The jar of Maven's `artifact` in `folder`, fetched first where it is not there. Raises EngineMissing."""
    _, name, version = artifact.split(":")
    jar = folder.absolute() / f"{name}-{version}.jar"
    if not jar.exists():
        target = f"-DoutputDirectory={jar.parent}"
        _call([_tool("mvn"), "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={artifact}", target])
    return jar


def shufflebench_jars(place: Place, python: Path, sources: Sequence[Path], announce: Callable[[str], None]) -> list[Path]:
    """ShuffleBench's own matcher and consumer with `sources`, compiled against the engine of `python`, and what they need.

    Raises EngineMissing.
    """
    checkout = place.folder / "shufflebench"
    hash4j = fetched_jar(_HASH4J, place.folder / "jars")
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    jar = place.folder.absolute() / "jars" / f"{sources[0].stem}-{digest}.jar"
    if not jar.exists():
        announce(f"ShuffleBench: builds {jar}")
        if not checkout.exists():
            _call(["git", "clone", "--quiet", place.shufflebench, str(checkout)])
        _call(["git", "-C", str(checkout), "checkout", "--quiet", SHUFFLEBENCH_COMMIT])
        classes = place.folder / "work" / jar.stem
        jars = [str(hash4j), *map(str, (python.parent.parent / "lib").glob("python*/site-packages/py[fs]*/*/*.jar"))]
        own = sorted((checkout / "commons/src/main").rglob("*.java"))
        _call([_tool("javac"), "-nowarn", "-d", str(classes), "-cp", ":".join(jars), *map(str, [*own, *sources])])
        _call([_tool("jar"), "--create", "--file", str(jar), "-C", str(classes), "."])
        shutil.rmtree(classes)
    return [jar, hash4j]


def nexmark_jar(place: Place, announce: Callable[[str], None]) -> Path:
    """Nexmark's own jar for Flink, with its generator and functions, built first if need be. Raises EngineMissing."""
    checkout = place.nexmark_checkout
    jar = checkout / NEXMARK_JAR
    if not jar.exists():
        announce(f"nexmark: builds {jar} (once, two minutes)")
        if not checkout.exists():
            _call(["git", "clone", "--quiet", place.nexmark, str(checkout)])
        _call(["git", "-C", str(checkout), "checkout", "--quiet", NEXMARK_COMMIT])
        pom = str(checkout / "pom.xml")
        _call([_tool("mvn"), "--quiet", "--batch-mode", "-f", pom, "-pl", "nexmark-flink", "-am", "package", "-DskipTests"])
    return jar.absolute()


def _tool(name: str, here: str = "") -> str:
    found = shutil.which(name) or (here if here and os.access(here, os.X_OK) else None)
    if found is None:
        raise EngineMissing(f"{name} is not on PATH: install it")
    return found


def _call(command: Sequence[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = [line for line in (ended.stderr + ended.stdout).splitlines() if line.strip()]
        raise EngineMissing(f"`{' '.join(command)}` failed: {said[-1].strip() if said else f'exit code {ended.returncode}'}")
