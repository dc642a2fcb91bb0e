"""A worker of real time in a process of its own, as the program of a slot: Spark has no part in it.

    python -m streamtopology.jobs.local.worker_process HOST KEEPER NUMBER

It runs in the slot's folder, and lives as long as the process KEEPER does.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from streamtopology.contract.environment import SPARK_AUTH_SECRET
from streamtopology.jobs.local.loaded_files import LoadedFiles
from streamtopology.jobs.log_tags import tag_lines
from streamtopology.jobs.realtime import summons
from streamtopology.jobs.realtime.resident import live
from streamtopology.jobs.realtime.secure import Keys
from streamtopology.jobs.realtime.summons import Summons
from streamtopology.jobs.realtime.worker import Worker
from streamtopology.jobs.realtime.worker_sockets import Post, WorkerSockets, freeze_at_powers_of_two
from streamtopology.jobs.spark.worker_daemon import MODULES, preload
from streamtopology.jobs.worker.cache import PROCESS_CACHE


def ready_mark(folder: Path, number: int) -> Path:
    """The file that the process makes in its slot's folder when it can serve a driver."""
    return folder / f"ready-{number}"


def main(arguments: list[str]) -> None:
    host, keeper, number = arguments
    folder = Path.cwd()
    tag_lines()
    preload([name for name in MODULES if not name.startswith("pyspark")])
    worker = _Worker(f"{host}:0")
    ready_mark(folder, int(number)).touch()
    live(partial(summons.find, folder), worker.serve, _lives(int(keeper)), time.sleep)


class _Worker:
    """What the process is to each driver. listens: as `Post` has it."""

    def __init__(self, listens: str) -> None:
        self._listens = listens
        self._generation: int | None = None
        self._files = LoadedFiles()
        self._files.note()

    def serve(self, called: Summons, is_over: Callable[[], bool]) -> None:
        """Implements `Serve`. Ends the process for a driver that has other code than the one before."""
        if self._generation not in (None, called.generation) and self._files.have_changed():
            sys.exit("a file of the code has changed since this process loaded it: another process takes its place")
        self._generation = called.generation
        keys = Keys.of_run(os.environ[SPARK_AUTH_SECRET], called.run)
        post = Post(called.run, called.driver, called.worker, self._listens)
        PROCESS_CACHE.inherit(called.batches)
        with WorkerSockets(post, keys, is_over=is_over) as sockets:
            Worker(sockets, PROCESS_CACHE, self._obeyed, time.monotonic).serve()

    def _obeyed(self, orders: int) -> None:
        freeze_at_powers_of_two(orders)
        self._files.note()


def _lives(pid: int) -> Callable[[], bool]:
    """Return what says whether the process lives."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return lambda: False
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    return lambda: not waiting.poll(0)


if __name__ == "__main__":
    main(sys.argv[1:])
