"""The time that a kill -9 costs: of an executor that holds a million keys, and of the driver.

From the kill to the next commit record that was not there before, by a clock outside. The driver is started again at once;
what its start takes is part of it. `real_time`: it takes over the workers of the one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.admin.find_run import asking_here
from streamtopology.lab.bench.cluster import announce, fresh_folder, machine
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.bench.victim import Victim

ROWS = 100_000
# Batches before a kill, with both executors active.
BETWEEN = 5

NAME = "recovery"
EXECUTORS = 2
AHEAD = 3
LONGEST_SECONDS = 300.0
LOOK_SECONDS = 0.01
LOOK_FOR_EXECUTORS_SECONDS = 0.2


def run(runs: int = 3, keys: int = 2_000_000, real_time: bool = False) -> dict[str, Any]:
    """`runs` kills of an executor and then of the driver. The topology counts `keys` keys, half on each of two executors."""
    folder = fresh_folder("recovery")
    measured = _Measured(folder, keys, real_time)
    try:
        measured.start()
        executor = [measured.after("executor") for _ in range(runs)]
        driver = [measured.after("driver") for _ in range(runs)]
    finally:
        measured.victim.stop()
    return {
        "name": "recovery",
        "machine": machine(keys=keys, rows_per_batch=ROWS, real_time=real_time),
        "results": [
            figure("kill -9 of an executor", "to the next commit", "s", executor),
            figure("kill -9 of the driver", "to the next commit", "s", driver),
            figure("no kill", "between two commits", "s", measured.usual),
        ],
    }


class _Measured:
    """A running topology with all its keys, and files for it as it needs them."""

    def __init__(self, folder: Path, keys: int, real_time: bool) -> None:
        self._data = folder / "rows"
        self._data.mkdir()
        self._keys = keys
        self._written = 0
        self.usual: list[float] = []
        self.victim = Victim(folder, _manifest(folder, self._data, real_time))

    def start(self) -> None:
        self._feed(-1)
        self.victim.start(None)
        self._wait_for(BETWEEN)
        announce("all keys have state")

    def after(self, what: str) -> float:
        """Seconds from a kill to the next commit."""
        self._wait_for_executors()
        self._wait_for(self._committed() + 1)  # the batch that gives an executor its instances back
        started = time.monotonic()
        self._wait_for(self._committed() + BETWEEN)
        self.usual.append((time.monotonic() - started) / BETWEEN)
        before, at = self._committed(), time.monotonic()
        killed = self.victim.kill(what, luck=0.0)
        assert killed is not None, f"there is no {what} to kill"
        self._wait_for(before + 1)
        took = time.monotonic() - at
        announce(f"{killed} was killed after batch {before}: {took:.2f} s to the next commit")
        return took

    def _committed(self) -> int:
        commit = self.victim.last_commit()
        return -1 if commit is None else commit.batch

    def _wait_for(self, batch: int) -> None:
        self._wait_until(lambda: self._committed() >= batch, f"batch {batch}", LOOK_SECONDS)

    def _wait_for_executors(self) -> None:
        """Another executor has room, which is what the aim is about."""
        asking = asking_here(NAME)

        def all_there() -> bool:
            return sum(executor["admitted"] for executor in asking(self._committed())["executors"]) == EXECUTORS

        self._wait_until(all_there, f"{EXECUTORS} executors", LOOK_FOR_EXECUTORS_SECONDS)

    def _wait_until(self, is_so: Callable[[], bool], what: str, look_seconds: float) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while not is_so():
            self._feed(self._committed())
            self.victim.keep_alive()
            if time.monotonic() > deadline:
                raise RuntimeError(f"no {what} in {LONGEST_SECONDS:.0f} s:\n{self.victim.log()}")
            time.sleep(look_seconds)

    def _feed(self, committed: int) -> None:
        """The first file has each key once."""
        while self._written - (committed + 1) < AHEAD:
            random = np.random.default_rng(self._written)
            keys = np.arange(self._keys) if self._written == 0 else random.integers(0, self._keys, ROWS)
            path = self._data / f"part-{self._written:06d}.parquet"
            unseen = path.with_name(f".{path.name}")
            pq.write_table(pa.table({"key": keys}), unseen, row_group_size=-(-len(keys) // 8))
            unseen.rename(path)
            self._written += 1


def _manifest(folder: Path, data: Path, real_time: bool) -> dict[str, Any]:
    source = {
        "name": "rows",
        "format": "parquet",
        "schema": "key BIGINT",
        "options": {"path": str(data), "maxFilesPerTrigger": 1},
    }
    operator = {
        "name": "counts",
        "inputs": ["rows"],
        "grouping": {"policy": "mixed", "key": "key"},
        "parallelism": EXECUTORS,
        "run": "count",
        "with": {"emit": "nothing"},
    }
    spec = {
        "sources": [source],
        "operators": [operator],
        "checkpoint": str(folder / "checkpoint"),
        "executors": [{"name": "free", "replicas": EXECUTORS, "cpu": 2, "memory": "2Gi"}],
        "rebalance": {"mode": "Off"},
        "trigger": {"interval": "200ms", "realTime": real_time},
    }
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": NAME},
        "spec": spec,
    }
