"""Simulated lives (docs/internals/testing.md) from a seed that no run had before: ten minutes of CPU along with other tests."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "streamtopology.jobs.cli.main", "simulate-faults", "--hours", "0.17"]


@pytest.mark.long
@pytest.mark.timeout(3600)  # minutes of CPU take longer along with other tests
def test_ten_minutes_of_lives_from_a_new_seed_lose_and_repeat_nothing() -> None:
    played = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    print(played.stdout)
    assert played.returncode == 0, f"{played.stdout}{played.stderr}"
