"""Check that this machine can run the project: Java, room, folders that can be written. Before set-up and before `make test`.

Prints one sentence for each thing that is missing, with the way to get it. Exit codes: 0 nothing is missing, 1 something is.
Standard library and the package's own search for Java only, so that it runs before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The room for .venv and the downloads of its packages.
PACKAGES_BYTES = 3 << 30
# The room for files of tests and of a demo, below build/ and in the folder of temporary files.
RUN_BYTES = 1 << 30

sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "spark-jobs" / "src"), str(ROOT / "routing" / "src")]
from streamtopology.jobs.spark.java import JavaMissing, find_java  # noqa: E402


def findings(root: Path, environment: Mapping[str, str], temporary: Path) -> Iterator[str]:
    """Yield a sentence for each thing that is missing. `root`: the checkout; `temporary`: the folder of temporary files."""
    try:
        find_java(environment)
    except JavaMissing as missing:
        yield str(missing)
    cache = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/"), ".cache"))
    needed = RUN_BYTES if (root / ".venv" / "ready").exists() else PACKAGES_BYTES
    for folder, name, bytes_, remedy in (
        (root, "this checkout", needed, "free some, or clone it elsewhere"),
        (cache, "the folder of caches", 0, "set XDG_CACHE_HOME to a folder that can be written"),
        (temporary, "the folder of temporary files", RUN_BYTES, "free some, or set TMPDIR to another folder"),
    ):
        if not _can_write(folder):
            yield f"{name}, {folder}, cannot be written: {remedy if bytes_ == 0 else 'change its rights, or use another'}"
        elif (free := shutil.disk_usage(_nearest(folder)).free) < bytes_:
            yield f"{name}, {folder}, has {free / (1 << 30):.1f} GB free of {bytes_ / (1 << 30):.0f} GB needed: {remedy}"
    try:
        socket.create_server(("127.0.0.1", 0)).close()
    except OSError as error:
        yield f"no port of 127.0.0.1 can be opened ({error}): bring the loopback interface up (`ip link set lo up`)"


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above that exists."""
    return folder if folder.is_dir() else _nearest(folder.parent)


def _can_write(folder: Path) -> bool:
    """True if a file can be made in the folder, or in the nearest one above that exists (root may, whatever the rights)."""
    try:
        with tempfile.TemporaryFile(dir=_nearest(folder)):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    lines = list(findings(ROOT, os.environ, Path(tempfile.gettempdir())))
    for line in lines:
        print(line, file=sys.stderr)
    sys.exit(1 if lines else 0)
