"""Attempts in this process alone: no Spark, no second process.

All of the data plane is the one of a cluster (driver, checkpoint, stages, sinks) but for what Spark does between: it starts
one task per place and stage, and gives each task the blobs that every task of the stage before sent to its place.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.driver.attempt_runner import Executor
from streamtopology.jobs.exchange.collect import collect
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.results import Results
from streamtopology.jobs.rerouting.port import CommittedAttempt
from streamtopology.jobs.worker import stage_tasks
from streamtopology.jobs.worker.attempt_context import AttemptContext
from streamtopology.jobs.worker.cache import WorkerCache
from streamtopology.routing.table.pouring import Pace

Sent = list[list[bytes]]  # by receiving partition: the blobs for it


class OneProcess:
    """Implements `AttemptRunner`: a worker per slot, and envelopes handed from stage to stage.

    One task at a time: all workers share what a process has once, such as open files.
    """

    def __init__(self, slots: Sequence[str]) -> None:
        self._executors = [Executor(str(number), "here", slot) for number, slot in enumerate(slots)]
        self._workers = defaultdict[int, WorkerCache](WorkerCache)
        self._turn = threading.Lock()

    def executors(self) -> list[Executor]:
        return self._executors

    def await_executors(self, wanted: Callable[[Executor], bool]) -> list[Executor]:
        return [executor for executor in self.executors() if wanted(executor)]

    def begin_batch(self, batch: int) -> None:
        pass

    def run(
        self,
        attempt: Attempt,
        depth: int,
        executors: Sequence[Executor],
        rows: None = None,
        prefetched: Sent | None = None,
    ) -> Results:
        sent = self.first_stage(attempt, prefetched)
        for level in range(1, depth + 1):
            sent = self.stage(attempt, level, sent)
        return collect(itertools.chain.from_iterable(sent))

    def prefetch(self, attempt: Attempt, executors: Sequence[Executor]) -> Sent:
        return self.first_stage(attempt, None)

    def first_stage(self, attempt: Attempt, prefetched: Sent | None) -> Sent:
        """What level 1 gets: the rows that the sources have or had, and state that moves."""
        if prefetched is None:
            return self._exchange(attempt, attempt.reading_partitions, stage_tasks.read_sources)
        if not attempt.hands_over:
            return prefetched
        state = self._exchange(attempt, range(attempt.partitions), stage_tasks.send_state)
        return [[*rows, *moving] for rows, moving in zip(prefetched, state, strict=True)]

    def stage(self, attempt: Attempt, level: int, sent: Sent) -> Sent:
        """What the next level gets from `level`, to which `sent` was sent."""

        def task(context: AttemptContext) -> list[pa.Buffer]:
            return stage_tasks.run_instances(context, level, sent[context.partition])

        return self._exchange(attempt, range(attempt.partitions), task)

    def worker(self, slot: int) -> WorkerCache:
        """The memory of a slot's worker."""
        return self._workers[slot]

    def _exchange(self, attempt: Attempt, partitions: Iterable[int], task: Callable[[AttemptContext], list[pa.Buffer]]) -> Sent:
        """By receiving partition, the envelope of each task, in no order that may be relied upon."""
        received: Sent = [[] for _ in range(attempt.partitions)]
        for partition in partitions:
            with self._turn:
                envelopes = task(AttemptContext(attempt, partition, self.worker(attempt.slot_by_partition[partition])))
            assert len(envelopes) == attempt.partitions * attempt.blobs, "an exchange wants the same number per partition"
            for number, envelope in enumerate(envelopes):
                received[number // attempt.blobs].insert(0, envelope.to_pybytes())
        return received


class FixedPlan:
    """Implements `Router`: the plan stays what it is, an epoch in the checkpoint. `done`: the attempts that committed."""

    def __init__(self, plan: ExecutionPlan, checkpoint: Checkpoint) -> None:
        self.plan = plan
        self.done: list[CommittedAttempt] = []
        checkpoint.write_epoch(plan.epoch.number, plan.to_json())

    def arrived(self, slots: Collection[str]) -> None:
        pass

    def ready(self) -> ExecutionPlan:
        return self.plan

    def must_flush(self) -> bool:
        return False

    def paces(self, plan: ExecutionPlan) -> Mapping[str, Pace]:
        return {}

    def active(self, epoch: int, batch: int) -> None:
        pass

    def committed(self, done: CommittedAttempt) -> None:
        self.done.append(done)
