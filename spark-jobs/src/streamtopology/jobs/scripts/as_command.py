"""A script as `python script.py ARGUMENT...` runs it, in this process."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run_as_command(script: Path, arguments: Sequence[str]) -> None:
    """Run the script with its arguments, its folder first in Python's path. Raises what it raises."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = argv, path
