"""The arguments of our commands in messages: a command that a message names runs as it is printed."""

from __future__ import annotations

import shlex
from pathlib import Path

DEFAULT_WORK_DIR = Path("build/streamtopology")


def on_manifest(manifest: Path, work_dir: Path) -> str:
    """The manifest and its work folder, unless that is the usual one, as a shell takes them."""
    folder = [] if work_dir == DEFAULT_WORK_DIR else ["--work-dir", str(work_dir)]
    return shlex.join([str(manifest), *folder])
