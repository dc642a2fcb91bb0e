"""A gate that holds a batch back inside its operators, so that a test can kill what works on it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.manifests import counting, write_rows

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.topologies import Runner

GATED = '''
import os, time
from pathlib import Path
from streamtopology.jobs.operators.count import Count

class Gated(Count):
    """Counts; while the gate is shut, says that it stands before it and waits."""

    def __init__(self, gate, shut_from=1, **common):
        super().__init__(**common)
        self.gate, self.shut_from = Path(gate), shut_from

    def begin(self, batch):
        super().begin(batch)
        self.number = batch.number

    def fold(self, rows, slots, state):
        super().fold(rows, slots, state)
        while self.number >= self.shut_from and (self.gate / "shut").exists():
            (self.gate / f"waits-{os.getpid()}").touch()
            time.sleep(0.02)
'''


class Gate:
    """Holds a batch of `Gated` operators back until it is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "shut").touch()

    def waiting(self) -> int:
        """The number of workers that stand before it."""
        return len(list(self.folder.glob("waits-*")))

    def open(self) -> None:
        (self.folder / "shut").unlink(missing_ok=True)


def gated(gate: Gate, policy: str = "mixed", shut_from: int = 1) -> dict[str, Any]:
    return counting(policy=policy, run="gated.py:Gated", **{"with": {"gate": str(gate.folder), "shut_from": shut_from}})


@contextmanager
def in_a_batch(runner: Runner, given: dict[str, Any], gate: Gate) -> Iterator[subprocess.Popen[bytes]]:
    """`streamtopology run` in a process of its own, all of whose instances wait at the gate; killed in the end."""
    command = [sys.executable, "-m", "streamtopology.jobs.cli.main", "run", str(runner.save(given))]
    with (runner.folder / "log").open("wb") as log:
        driver = subprocess.Popen([*command, "--work-dir", str(runner.folder)], stdout=log, stderr=log, start_new_session=True)
    try:
        while gate.waiting() < 3:
            assert driver.poll() is None, (runner.folder / "log").read_text()
            time.sleep(0.1)
        yield driver
    finally:
        driver.kill()
        driver.wait()


def write_all(folder: Path, number: int = 4) -> Counter[int]:
    return sum((write_rows(folder, part) for part in range(number)), Counter[int]())
