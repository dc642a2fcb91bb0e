"""The data plane in one process, without Spark: a worker per slot, and envelopes handed from stage to stage."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamtopology.jobs.driver.attempt_runner import Executor, ExecutorLost
from streamtopology.jobs.exchange.collect import collect
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.results import Results
from streamtopology.jobs.worker import stage_tasks
from streamtopology.jobs.worker.attempt_context import AttemptContext
from streamtopology.jobs.worker.cache import WorkerCache
from streamtopology.jobs.worker.compactor import in_thread

Envelopes = list[list[bytes]]
StageTask = Callable[[AttemptContext], list[pa.Buffer]]


@dataclass
class OneProcess:
    """Implements `AttemptRunner`. `workers`: by slot what the worker of its executor remembers.

    `dying`: the slot whose executor dies in the middle of the next attempt, and starts again with nothing in memory.
    """

    workers: dict[str, WorkerCache] = field(default_factory=dict[str, WorkerCache])
    dying: str | None = None

    def start(self, slots: Iterable[str]) -> None:
        """Start an executor for each of `slots` that has none."""
        for slot in slots:
            self.workers.setdefault(slot, WorkerCache(in_thread))

    def keep(self, slots: Iterable[str]) -> None:
        """End all executors but those of `slots`."""
        kept = set(slots)
        self.workers = {slot: worker for slot, worker in self.workers.items() if slot in kept}

    def executors(self) -> list[Executor]:
        return [Executor(slot, "here", slot) for slot in self.workers]

    def await_executors(self, wanted: Callable[[Executor], bool]) -> list[Executor]:
        return [executor for executor in self.executors() if wanted(executor)]

    def begin_batch(self, batch: int) -> None:
        pass

    def run(
        self, attempt: Attempt, depth: int, executors: Sequence[Executor], rows: None = None, prefetched: Any = None
    ) -> Results:
        slots = [executor.slot for executor in executors]
        sent: Envelopes = prefetched or self._read(attempt, slots)
        for level in range(1, depth + 1):
            self._die(slots)
            sent = self._exchange(attempt, slots, range(attempt.partitions), _node_stage(level, sent))
        return collect(itertools.chain.from_iterable(sent))

    def prefetch(self, attempt: Attempt, executors: Sequence[Executor]) -> Envelopes:
        return self._read(attempt, [executor.slot for executor in executors])

    def _read(self, attempt: Attempt, slots: Sequence[str]) -> Envelopes:
        return self._exchange(attempt, slots, attempt.reading_partitions, stage_tasks.read_sources)

    def _die(self, slots: Sequence[str]) -> None:
        slot, self.dying = self.dying, None
        if slot is not None and slot in slots:
            self.workers[slot] = WorkerCache(in_thread)
            raise ExecutorLost([slot])

    def _exchange(self, attempt: Attempt, slots: Sequence[str], partitions: Iterable[int], task: StageTask) -> Envelopes:
        """By receiving partition, the envelope of each task."""
        received: Envelopes = [[] for _ in range(attempt.partitions)]
        for partition in partitions:
            for number, envelope in enumerate(task(AttemptContext(attempt, partition, self.workers[slots[partition]]))):
                received[number // attempt.blobs].append(envelope.to_pybytes())
        return received


def _node_stage(level: int, sent: Envelopes) -> StageTask:
    return lambda context: stage_tasks.run_instances(context, level, sent[context.partition])
