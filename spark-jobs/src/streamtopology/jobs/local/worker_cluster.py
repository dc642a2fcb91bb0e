"""A cluster for real time on this machine: a worker's process in each slot, and no Spark.

A run in real time needs Spark to place its workers, to limit who may speak to them, and to start them again. On one machine
`LocalCluster` places and starts processes, and the secret is ours, so nothing is left for three JVMs to do (decision 114).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from streamtopology.jobs.checkpoint.location import checkpoint_uri
from streamtopology.jobs.driver.attempt_runner import Executor, ExecutorLost, PythonWorkerDied
from streamtopology.jobs.local.kept_cluster import Purpose
from streamtopology.jobs.local.local_cluster import LocalCluster, executor_environment
from streamtopology.jobs.local.start_steps import StartSteps
from streamtopology.jobs.local.worker_process import ready_mark
from streamtopology.jobs.realtime.runner import Workers
from streamtopology.jobs.realtime.summons import Summons, find
from streamtopology.jobs.spark.cluster import ExecutorSlot, WorkersRun
from streamtopology.jobs.spark.executor_watch import ExecutorWatch
from streamtopology.jobs.spark.executors import ExecutorInfo
from streamtopology.jobs.spark.keep_alive import HasEnded
from streamtopology.jobs.spark.watched_executors import WatchedExecutors
from streamtopology.jobs.spark.worker_variables import worker_variables
from streamtopology.topology import Topology, to_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.02
# Variables that differ from one terminal, or one command, to the next.
_OF_TERMINALS = (
    "_",
    "COLUMNS",
    "LINES",
    "OLDPWD",
    "PWD",
    "SHLVL",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "TERM",
    "WINDOWID",
)


def purpose_of(
    topology: Topology, work_dir: Path, base_dir: Path, settings: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> Purpose:
    """What the workers of a topology are for. Only to the very same manifest, software and environment are they of use."""
    inherited = {name: text for name, text in environ.items() if name not in _OF_TERMINALS}
    software = [sys.version, sys.executable, version("streamtopology"), str(base_dir)]
    identity = json.dumps([to_manifest(topology), software, dict(settings), inherited], sort_keys=True, default=str)
    return Purpose(checkpoint_uri(topology, work_dir), hashlib.sha256(identity.encode()).hexdigest())


class _ProcessEnded(Exception):
    """A worker's process ended before it was ready."""


class WorkerCluster:
    """Implements `Cluster`. Enter it to have the workers of `slots` up; `steps` gets each step, and later each change.

    settings: Spark's, of which a worker gets the variables of executors. purpose: which workers of a dead driver are of use.
    """

    def __init__(
        self,
        slots: tuple[ExecutorSlot, ...],
        work_dir: Path,
        steps: StartSteps,
        settings: Mapping[str, str],
        purpose: Purpose | None = None,
    ) -> None:
        self._purpose = purpose
        self._slots = slots
        self._work_dir = work_dir
        self._steps = steps
        self._settings = {**worker_variables(), **settings}
        self._undo = ExitStack()
        self._cluster: LocalCluster | None = None
        self._watch: ExecutorWatch | None = None
        self._processes: _ProcessScheduler | None = None
        self._runs: list[ProcessWorkers] = []
        self._warm: set[str] = set()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._cluster = undo.enter_context(LocalCluster(self._slots, self._work_dir, self._steps.detail, self._purpose))
            self._cluster.run(_WorkerProgram(self._cluster, self._settings))
            self._steps.executors(0)
            self._processes = _ProcessScheduler(self._cluster)
            watch = ExecutorWatch(
                self._processes,
                self._processes.await_ready,
                self._steps.detail,
                self._lost,
                self._admit,
                self._cluster.check,
                self.slot_of,
            )
            self._watch = undo.enter_context(watch)
            self._watch.await_admitted(len(self._slots))
            self._undo = undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._undo.close()

    @property
    def cluster(self) -> LocalCluster:
        assert self._cluster is not None, "enter the cluster first"
        return self._cluster

    @property
    def spark(self) -> SparkSession:
        raise AssertionError("there is no Spark here, and nothing in real time asks for it")

    @property
    def watch(self) -> ExecutorWatch:
        assert self._watch is not None, "enter the cluster first"
        return self._watch

    @property
    def slots(self) -> tuple[ExecutorSlot, ...]:
        return self.cluster.slots

    @property
    def is_warm(self) -> bool:
        return self.cluster.is_taken_over

    @property
    def served(self) -> int:
        folders = [self.cluster.directory / slot.name for slot in self.cluster.slots]
        given = [find(folder) for folder in folders if folder.exists()]
        return max((summons.generation for summons in given if summons is not None), default=0)

    @property
    def secret(self) -> str:
        return self.cluster.secret

    @property
    def desk_listens(self) -> str:
        return "127.0.0.1:0"

    def workers(self, run: WorkersRun) -> Workers:
        self._runs.append(ProcessWorkers(self.cluster, self.watch, self.slot_of, run))
        return self._runs[-1]

    def slot_of(self, executor: ExecutorInfo) -> str:
        return self.cluster.slot_at(executor.host)

    def check_room(self, slots: Collection[ExecutorSlot]) -> None:
        """Raise NoRoom if this machine cannot hold the executors of `slots`."""
        self.cluster.check_room(slots)

    def start(self, slots: Sequence[ExecutorSlot]) -> None:
        for slot in slots:
            self._steps.detail(f"starting executor {slot.name}")
            self.cluster.add(slot)

    def release(self, slots: Collection[str]) -> None:
        """End the workers of these slots at once."""
        self.watch.release(slots)
        for name in slots:
            self._steps.detail(f"stopping executor {name}")
            self.cluster.remove(name)

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """While entered, workers may use all CPU there is: for warming up."""
        for slot in self.cluster.slots:
            self.cluster.lift(slot.name)
        try:
            yield
        finally:
            self.cluster.limit()

    def resize(self, class_name: str, cpu: float) -> None:
        """Change the CPU of every executor of a class, at once where the limit is in force."""
        self.cluster.resize(class_name, cpu)

    def _lost(self, executor: ExecutorInfo) -> None:
        """Tell the runs, and let the slot's next process start without a limit, as the first one did."""
        for workers in self._runs:
            workers.lost(executor)
        if self._is_there(executor):
            self.cluster.lift(self.slot_of(executor))

    def _admit(self, executor: ExecutorInfo) -> None:
        self._warm.add(executor.id)
        if len(self._warm) <= len(self._slots):
            self._steps.executors(len(self._warm))
        if self._is_there(executor):
            self.cluster.limit(self.slot_of(executor))

    def _is_there(self, executor: ExecutorInfo) -> bool:
        """True if its slot has not been released meanwhile."""
        return self.slot_of(executor) in {slot.name for slot in self.cluster.slots}


@dataclass(frozen=True)
class _WorkerProgram:
    """Implements `Program`."""

    cluster: LocalCluster
    settings: Mapping[str, str]

    def is_awaited(self) -> bool:
        return True

    def started_by(self, slot: ExecutorSlot, host: str, number: int) -> tuple[Sequence[str], Mapping[str, str]]:
        cluster, arguments = self.cluster, (host, str(self.cluster.keeper), str(number))
        command = [sys.executable, "-m", "streamtopology.jobs.local.worker_process", *arguments]
        return command, executor_environment(slot, host, cluster.directory, cluster.secret, self.settings)


class _ProcessScheduler:
    """Implements `Scheduler`: an executor is the process in a slot. It has no jobs, and no thread of ours waits for one."""

    failures = (_ProcessEnded,)

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def alive(self) -> frozenset[str]:
        return frozenset(str(running.number) for running in self._cluster.running())

    def executors(self) -> list[ExecutorInfo]:
        classes = {slot.name: slot.class_name for slot in self._cluster.slots}
        return [
            ExecutorInfo(str(one.number), one.host, {"SLOT": one.slot, "CLASS": classes.get(one.slot, "")})
            for one in self._cluster.running()
        ]

    def await_ready(self, executor: ExecutorInfo) -> None:
        """Wait until the process has loaded what it needs. Raises _ProcessEnded."""
        folder = self._cluster.directory / executor.attributes["SLOT"]
        while not ready_mark(folder, int(executor.id)).exists():
            if executor.id not in self.alive():
                raise _ProcessEnded(f"the process of executor {executor.attributes['SLOT']} has ended")
            time.sleep(_LOOK_SECONDS)

    def ping(self, executor: ExecutorInfo) -> HasEnded:
        return lambda: True

    def add_tag(self, tag: str) -> None:
        pass

    def remove_tag(self, tag: str) -> None:
        pass

    def cancel(self, tag: str) -> None:
        pass

    def thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=run, name=name, daemon=True)


class ProcessWorkers(WatchedExecutors):
    """Implements `Workers` on the processes of a cluster: a worker is started by a summons."""

    def __init__(
        self, cluster: LocalCluster, watch: ExecutorWatch, slot_of: Callable[[ExecutorInfo], str], run: WorkersRun
    ) -> None:
        super().__init__(watch, slot_of)
        self._cluster = cluster
        self._run = run
        self._lock = threading.Lock()
        self._summoned = 0
        self._serving: dict[str, tuple[str, Callable[[Exception], None]]] = {}
        """By executor its worker's name, and whom to tell of its end."""

    def start(self, executor: Executor, name: str, ended: Callable[[Exception], None]) -> None:
        with self._lock:
            self._summoned += 1
            self._serving[executor.id] = name, ended
            summons = Summons(self._run.generation, self._summoned, self._run.run, self._run.driver, name, self._run.batches)
            summons.give(self._cluster.directory / executor.slot)

    def lost(self, executor: ExecutorInfo) -> None:
        """Take note of the end of an executor's process."""
        with self._lock:
            _, ended = self._serving.pop(executor.id, ("", None))
        if ended is not None:
            ended(ExecutorLost([self._slot_of(executor)]))

    def give_up(self, name: str) -> None:
        """Kill the worker's process, which is started again."""
        with self._lock:
            executors = {executor for executor, (worker, _) in self._serving.items() if worker == name}
        for running in self._cluster.running():
            if str(running.number) in executors:
                running.process.kill()

    def await_ends(self) -> None:
        """Forget the workers that have been told to end: their processes stay for the next summons."""
        with self._lock:
            ended, self._serving = self._serving, {}
        for _, tell in ended.values():
            tell(PythonWorkerDied())
