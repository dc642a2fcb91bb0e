"""Search for a Java that Spark 4.3 runs on: version 17 or 21 with its vector module; others fail late and obscurely."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamtopology.contract.errors import Unavailable

SUPPORTED_VERSIONS = (17, 21)
SYSTEM_HOMES = (Path("/usr/lib/jvm"), Path("/usr/java"), Path("/opt/java"), Path("/Library/Java/JavaVirtualMachines"))


class JavaMissing(Unavailable):
    """No usable Java; the message is one line that says what to install."""


@dataclass(frozen=True)
class Java:
    """A Java installation: its home folder and major version."""

    home: Path
    version: int

    @property
    def binary(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str] = os.environ, system_homes: Iterable[Path] = SYSTEM_HOMES) -> Java:
    """Return the first Java 17 or 21 of `JAVA_HOME`, the `java` on `PATH`, and the system's folders (17 before 21).

    Raises `JavaMissing` if there is none.
    """
    named = [Path(environ["JAVA_HOME"])] if environ.get("JAVA_HOME") else []
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        named.append(Path(on_path).resolve().parent.parent)
    rejected: list[str] = []
    for home in named:
        java, flaw = _inspect(home)
        if java:
            return java
        rejected.append(flaw)
    installed = [_inspect(home) for folder in system_homes for home in _homes_under(folder)]
    usable = [java for java, _ in installed if java]
    if usable:
        return min(usable, key=lambda java: java.version)
    rejected += [flaw for _, flaw in installed]
    found = f" (found {'; '.join(dict.fromkeys(rejected))})" if rejected else ""
    raise JavaMissing(
        f"Spark needs Java 17 or 21{found}: install it, e.g. `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME"
    )


def _homes_under(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    homes = [entry / "Contents" / "Home" if (entry / "Contents").is_dir() else entry for entry in folder.iterdir()]
    return sorted({home.resolve() for home in homes if (home / "bin" / "java").exists()})


def _inspect(home: Path) -> tuple[Java | None, str]:
    """Return the Java at `home`, or None and its flaw; read from its `release` file, without running it."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None, f"no bin/java in {home}"
    try:
        release = (home / "release").read_text()
    except OSError:
        return None, f"a Java of unknown version in {home}"
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    if version is None:
        return None, f"a Java of unknown version in {home}"
    major = int(version[1])
    if major not in SUPPORTED_VERSIONS:
        return None, f"Java {major} in {home}"
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    if modules and "jdk.incubator.vector" not in modules[1].split():
        return None, f"Java {major} without jdk.incubator.vector in {home}"
    return Java(home, major), ""
