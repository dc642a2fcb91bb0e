"""Seeds of long tests: new with every commit, so that cases are played that no run had before, and printed."""

from __future__ import annotations

import subprocess
from pathlib import Path

# Hexadecimal digits of the commit's hash that make the seed: 40 bits.
_DIGITS = 10


def seed_of_commit(folder: Path = Path(__file__).parent) -> int:
    """The seed that belongs to the newest commit of the repository around `folder`, in 0 .. 2**40 - 1.

    Raises `CalledProcessError` outside a repository.
    """
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(commit[:_DIGITS], 16)
