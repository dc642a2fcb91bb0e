"""Executors as processes, and the driver's port to them: the stages of an attempt on their threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.driver.attempt_runner import Executor, ExecutorLost, ShuffleLost
from streamtopology.jobs.exchange.collect import collect
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.results import Results
from streamtopology.jobs.worker import stage_tasks
from streamtopology.jobs.worker.attempt_context import AttemptContext
from streamtopology.jobs.worker.cache import WorkerCache
from streamtopology.jobs.worker.compactor import Background, Compactor
from streamtopology.lab.faults.scheduler import Process, Scheduler, Task

# After so long without an answer the driver takes an executor for lost.
HEARTBEAT_SECONDS = 60.0

Envelopes = list[list[bytes]]
StageTask = Callable[[AttemptContext], list[pa.Buffer]]


class Worker(WorkerCache):
    """The memory of a worker process; its checkpoint is the one that its process opened."""

    def __init__(self, open_checkpoint: Callable[[], Checkpoint], background: Background) -> None:
        super().__init__(background)
        self._open = open_checkpoint
        self._opened: Checkpoint | None = None

    def serve(self, run: str, open_checkpoint: Callable[[], Checkpoint], background: Background) -> None:
        """Go on, for a driver that takes it over, in a process that is the executor's from now on."""
        self.inherit(run)
        self._open, self._opened = open_checkpoint, None
        self.compactor = Compactor(background)

    def checkpoint(self, uri: str) -> Checkpoint:
        if self._opened is None:
            self._opened = self._open()
        return self._opened


@dataclass(eq=False)
class SimulatedExecutor:
    """One executor: its process, the memory of its Python worker, the newest of its tasks, which run one after the other."""

    id: str
    slot: str
    process: Process
    worker: Worker
    admitted_at: float
    newest: Task | None = None

    def is_admitted(self, now: float) -> bool:
        return self.process.alive and now >= self.admitted_at


@dataclass(eq=False)
class _Started:
    """A task on an executor; `envelopes` once it has ended well, `error` if it raised."""

    executor: SimulatedExecutor
    task: Task
    envelopes: list[bytes] | None = None
    error: Exception | None = None


@dataclass(eq=False)
class Cluster:
    """The executors of one driver's life.

    `new_process` makes the process of an executor of a slot, `open_checkpoint` opens the checkpoint there.
    `arrival_seconds`: from the loss of an executor to its successor. `left`: by slot the memory that the driver before has
    left, for `run`.
    """

    scheduler: Scheduler
    new_process: Callable[[str], Process]
    open_checkpoint: Callable[[Process], Checkpoint]
    arrival_seconds: Callable[[], float]
    run: str = ""
    left: dict[str, Worker] = field(default_factory=dict[str, Worker])
    executors: dict[str, SimulatedExecutor] = field(default_factory=dict[str, SimulatedExecutor])
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    def start(self, slot: str, seconds: float = 0.0) -> None:
        """Start an executor for `slot`, admitted after `seconds`."""
        process = self.new_process(slot)
        worker = self._worker(slot, process)
        admitted_at = self.scheduler.now + seconds
        self.executors[slot] = SimulatedExecutor(f"{slot}.{next(self._ids)}", slot, process, worker, admitted_at)

    def _worker(self, slot: str, process: Process) -> Worker:
        def opened() -> Checkpoint:
            return self.open_checkpoint(process)

        def background(work: Callable[[], None]) -> Task:
            return self.scheduler.spawn(process, work, "compaction")

        left = self.left.pop(slot, None)
        if left is None:
            return Worker(opened, background)
        left.serve(self.run, opened, background)
        return left

    def release(self, slot: str) -> None:
        self.executors.pop(slot).process.alive = False

    def replace_lost(self) -> None:
        for slot, executor in list(self.executors.items()):
            if not executor.process.alive:
                self.start(slot, self.arrival_seconds())

    def drop(self, executor: SimulatedExecutor) -> None:
        """Take an executor for lost that does not answer; it may be alive."""
        if self.executors.get(executor.slot) is executor:
            self.start(executor.slot, self.arrival_seconds())


class SimulatedExecutors:
    """The executors of a cluster, as runners see them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._scheduler = cluster.scheduler

    def executors(self) -> list[Executor]:
        self._cluster.replace_lost()
        now = self._scheduler.now
        here = [executor for executor in self._cluster.executors.values() if executor.is_admitted(now)]
        return [Executor(executor.id, executor.process.host, executor.slot) for executor in here]

    def await_executors(self, wanted: Callable[[Executor], bool]) -> list[Executor]:
        while not (found := [executor for executor in self.executors() if wanted(executor)]):
            self._scheduler.wait(None, 1.0)
        return found

    def begin_batch(self, batch: int) -> None:
        pass

    def known(self) -> dict[str, SimulatedExecutor]:
        """Those that the cluster has, by id."""
        return {executor.id: executor for executor in self._cluster.executors.values()}


class SimulatedRunner(SimulatedExecutors):
    """Implements `AttemptRunner` on a cluster.

    `loses_shuffle`: whether what a stage sent arrives nowhere. `repeats_task`: whether an executor's task runs once more.
    `is_too_busy`: whether an executor has had no room for so long that Spark starts its next task on another one.
    """

    def __init__(
        self,
        cluster: Cluster,
        loses_shuffle: Callable[[], bool],
        repeats_task: Callable[[Process], bool],
        is_too_busy: Callable[[Process], bool],
    ) -> None:
        super().__init__(cluster)
        self._loses_shuffle = loses_shuffle
        self._repeats_task = repeats_task
        self._is_too_busy = is_too_busy

    def run(
        self, attempt: Attempt, depth: int, executors: Sequence[Executor], rows: None = None, prefetched: Any = None
    ) -> Results:
        refs = self._refs(executors)
        if prefetched is None:
            sent = self._exchange(attempt, self._begin(attempt, refs, attempt.reading_partitions, stage_tasks.read_sources))
        else:
            sent = self._exchange(attempt, prefetched)
            if attempt.hands_over:
                state = self._begin(attempt, refs, range(attempt.partitions), stage_tasks.send_state)
                sent = [[*rows, *moved] for rows, moved in zip(sent, self._exchange(attempt, state), strict=True)]
        for level in range(1, depth + 1):
            started = self._begin(attempt, refs, range(attempt.partitions), _node_stage(level, sent))
            sent = self._exchange(attempt, started)
        return collect(itertools.chain.from_iterable(sent))

    def prefetch(self, attempt: Attempt, executors: Sequence[Executor]) -> list[_Started] | None:
        """None where an executor is gone: who uses it will find out."""
        try:
            refs = self._refs(executors)
        except ExecutorLost:
            return None
        return self._begin(attempt, refs, attempt.reading_partitions, stage_tasks.read_sources)

    def _refs(self, executors: Sequence[Executor]) -> list[SimulatedExecutor]:
        known = self.known()
        gone = [executor.slot for executor in executors if executor.id not in known]
        if gone:
            raise ExecutorLost(gone)
        return [known[executor.id] for executor in executors]

    def _begin(
        self, attempt: Attempt, refs: Sequence[SimulatedExecutor], partitions: Sequence[int], stage: StageTask
    ) -> list[_Started]:
        return [self._start(attempt, refs[partition], partition, stage) for partition in partitions]

    def _start(self, attempt: Attempt, pinned: SimulatedExecutor, partition: int, stage: StageTask) -> _Started:
        executor = self._substitute(pinned) if self._is_too_busy(pinned.process) else pinned
        before = executor.newest

        def once() -> list[bytes]:
            return [envelope.to_pybytes() for envelope in stage(AttemptContext(attempt, partition, executor.worker))]

        def run() -> None:
            self._scheduler.wait(lambda: before is None or before.is_done)
            try:
                started.envelopes = once()
                if self._repeats_task(executor.process):
                    started.envelopes = once()
            except Exception as error:  # noqa: BLE001 - the driver gets it
                started.error = error

        task = self._scheduler.spawn(executor.process, run, f"batch {attempt.number}.{attempt.attempt} p{partition}")
        started = _Started(executor, task)
        executor.newest = task
        return started

    def _substitute(self, executor: SimulatedExecutor) -> SimulatedExecutor:
        """Another executor, itself if there is none."""
        here = [other for other in self._cluster.executors.values() if other.is_admitted(self._scheduler.now)]
        return next((other for other in here if other is not executor), executor)

    def _exchange(self, attempt: Attempt, started: Sequence[_Started]) -> Envelopes:
        """By receiving partition, the envelope of each task, in no order that may be relied upon."""
        self._await(started)
        if self._loses_shuffle():
            raise ShuffleLost
        received: Envelopes = [[] for _ in range(attempt.partitions)]
        for one in started:
            assert one.envelopes is not None
            assert len(one.envelopes) == attempt.partitions * attempt.blobs, "an exchange wants the same number per partition"
            for number, envelope in enumerate(one.envelopes):
                received[number // attempt.blobs].insert(0, envelope)
        return received

    def _await(self, started: Sequence[_Started]) -> None:
        def is_over() -> bool:
            return all(one.task.is_done for one in started) or any(not one.executor.process.alive for one in started)

        if not self._scheduler.wait(is_over, HEARTBEAT_SECONDS):
            for one in started:
                if not one.task.is_done and one.executor.process.frozen_until > self._scheduler.now:
                    self._cluster.drop(one.executor)
                    raise ExecutorLost([one.executor.slot])
            self._scheduler.wait(is_over, 100 * HEARTBEAT_SECONDS)
        lost = [one.executor.slot for one in started if not one.executor.process.alive]
        if lost:
            raise ExecutorLost(sorted(set(lost)))
        for one in started:
            if one.error is not None:
                raise one.error


def _node_stage(level: int, sent: Envelopes) -> StageTask:
    return lambda context: stage_tasks.run_instances(context, level, sent[context.partition])
