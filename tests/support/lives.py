"""Simulated lives, played by the command that people use."""

from __future__ import annotations

import subprocess
import sys

COMMAND = (sys.executable, "-m", "streamtopology.jobs.cli.main", "simulate-faults")


def play(*options: str) -> None:
    """Play histories and print what the command printed. AssertionError: one of them went wrong."""
    played = subprocess.run([*COMMAND, *options], capture_output=True, text=True, check=False)
    print(played.stdout)
    assert played.returncode == 0, f"{played.stdout}{played.stderr}"
