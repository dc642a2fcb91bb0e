"""Workers of real time as processes of their own, without Spark: forked from one that has imported all they need."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.process import BaseProcess
from typing import Any

from streamtopology.jobs.driver.attempt_runner import Executor, PythonWorkerDied
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.realtime.desk import Desk
from streamtopology.jobs.realtime.desk_socket import DeskSocket
from streamtopology.jobs.realtime.runner import RealTimeRunner
from streamtopology.jobs.realtime.secure import Keys
from streamtopology.jobs.realtime.worker import Worker
from streamtopology.jobs.realtime.worker_sockets import Post, WorkerSockets
from streamtopology.jobs.spark.worker_daemon import MODULES
from streamtopology.jobs.worker.cache import WorkerCache
from support.stages import Flow

RUN = "run-1"
SECRET = "known to Spark's processes"
LOOPBACK = "127.0.0.1:0"

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([*(name for name in MODULES if not name.startswith("pyspark")), __name__])


def run_keys() -> Keys:
    return Keys.of_run(SECRET, RUN)


def work(driver: str, name: str) -> None:
    """The process of a worker."""
    with WorkerSockets(Post(RUN, driver, name, LOOPBACK), run_keys()) as sockets:
        Worker(sockets, WorkerCache(), lambda orders: None, time.monotonic).serve()


class Processes:
    """Implements `Workers`: the executors of a flow, each with a process. `running`: by slot."""

    def __init__(self, flow: Flow, driver: str) -> None:
        self._flow = flow
        self._driver = driver
        self.running: dict[str, BaseProcess] = {}

    def executors(self) -> list[Executor]:
        return [Executor(str(slot), self._flow.host, f"slot-{slot}") for slot in self._flow.slots]

    def await_executors(self, wanted: Callable[[Executor], bool]) -> list[Executor]:
        return [executor for executor in self.executors() if wanted(executor)]

    def begin_batch(self, batch: int) -> None:
        pass

    def rehearsing(self, rehearse: Callable[[Executor], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def start(self, executor: Executor, name: str, ended: Callable[[Exception], None]) -> None:
        process = _forks.Process(target=work, args=(self._driver, name), daemon=True)
        process.start()
        self.running[executor.slot] = process

        def await_end() -> None:
            process.join()
            ended(PythonWorkerDied())

        threading.Thread(target=await_end, daemon=True).start()

    def give_up(self, name: str) -> None:
        slot, _, _ = name.rpartition("/")
        self.kill(slot)

    def await_ends(self) -> None:
        for process in self.running.values():
            process.join(20)
            assert process.exitcode is not None, "a worker ends when it is told to"

    def kill(self, slot: str, by: signal.Signals = signal.SIGKILL) -> None:
        pid = self.running[slot].pid
        assert pid is not None
        os.kill(pid, by)

    def end(self, slot: str) -> None:
        """Kill a worker, and wait until it is no more."""
        self.kill(slot)
        self.running[slot].join(20)


class Meanwhile(RealTimeRunner):
    """What the flow wants done in the middle of an attempt is done when its orders have been given."""

    def __init__(self, flow: Flow, desk: Desk, workers: Processes) -> None:
        super().__init__(desk, workers)
        self._flow = flow
        self.ahead_used = 0

    def _order(self, number: int, attempt: Attempt, *how: Any, **named: Any) -> None:
        super()._order(number, attempt, *how, **named)
        depth, ahead = how[2:4]
        if depth and not attempt.dry:
            self.ahead_used += ahead is not None
            self._flow.do_meanwhile()


class OnProcesses:
    """Makes the runners of flows; `workers`: of the newest."""

    def __init__(self, socket: DeskSocket) -> None:
        self._socket = socket
        self.runners: list[Meanwhile] = []

    def __call__(self, flow: Flow) -> Meanwhile:
        self.workers = Processes(flow, self._socket.address)
        self.runners.append(Meanwhile(flow, self._socket.desk, self.workers))
        return self.runners[-1]


@contextmanager
def on_processes() -> Iterator[OnProcesses]:
    """Runners for `Flow(runner=...)`, whose workers end with it."""
    with DeskSocket(run_keys(), LOOPBACK) as socket:
        made = OnProcesses(socket)
        try:
            yield made
        finally:
            for runner in made.runners:
                runner.close()
