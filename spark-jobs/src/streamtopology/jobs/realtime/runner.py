"""Attempts without a Spark job each: orders to long-lived workers, one on each executor.

A batch of a few rows takes as long as its messages then, and not what Spark's scheduler needs for a job of several stages.
Which executors there are, and who replaces one that died, stays Spark's business, behind `Workers`. What an attempt promises
does not change: its number is in the names of its files, and the commit record comes last.
"""

from __future__ import annotations

import math
import pickle
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from streamtopology.jobs.driver.attempt_runner import AttemptLost, Executor, ForeignRows
from streamtopology.jobs.exchange.collect import collect
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.results import Results
from streamtopology.jobs.realtime import messages
from streamtopology.jobs.realtime.desk import Desk, Frames, WorkerSilent
from streamtopology.jobs.realtime.messages import Address, Order

# What a new worker needs until it answers: it is forked from a process with all modules, on an executor that is warm.
HELLO_SECONDS = 60.0


class Workers(Protocol):
    """The executors, and the start of a worker on each."""

    def executors(self) -> list[Executor]: ...

    def await_executors(self, wanted: Callable[[Executor], bool]) -> list[Executor]: ...

    def begin_batch(self, batch: int) -> None: ...

    def rehearsing(self, rehearse: Callable[[Executor], None]) -> AbstractContextManager[None]: ...

    def start(self, executor: Executor, name: str, ended: Callable[[Exception], None]) -> None:
        """Start a worker called `name`, without waiting; `ended` is called once, with the loss, when it is no more."""
        ...

    def give_up(self, name: str) -> None:
        """End the worker `name`, which does not answer."""
        ...

    def await_ends(self) -> None:
        """Wait for the workers that have been told to end."""
        ...


@dataclass(frozen=True)
class Ahead:
    """A first stage that runs ahead: its order, and who sends in it."""

    order: int
    senders: tuple[int, ...]


class RealTimeRunner:
    """Implements `AttemptRunner`."""

    def __init__(self, desk: Desk, workers: Workers) -> None:
        self._desk = desk
        self._workers = workers
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._newest = 0
        self._remote_seconds = 0.0

    def executors(self) -> list[Executor]:
        return self._workers.executors()

    def await_executors(self, wanted: Callable[[Executor], bool]) -> list[Executor]:
        return self._workers.await_executors(wanted)

    def begin_batch(self, batch: int) -> None:
        self._workers.begin_batch(batch)

    def rehearsing(self, rehearse: Callable[[Executor], None]) -> AbstractContextManager[None]:
        """As of Spark's runner."""
        return self._workers.rehearsing(rehearse)

    def run(
        self,
        attempt: Attempt,
        depth: int,
        executors: Sequence[Executor],
        rows: ForeignRows = None,
        prefetched: Ahead | None = None,
    ) -> Results:
        assert rows is None, "sources that Spark reads are refused with this trigger"
        names = self._staffed(executors)
        addresses = self._reached(names)
        ahead = None if prefetched is None or self._is_void(prefetched) else prefetched
        after = None if ahead is None else ahead.order
        with self._desk.calling(names, after) as call:
            if not attempt.dry:
                self._newest = call.number
            first = _first_senders(attempt, call.number, ahead)
            self._order(call.number, attempt, names, addresses, depth, after, first)
            return self._results(call.answers())

    def _results(self, answers: Sequence[Frames]) -> Results:
        """What workers have answered, with the time of links as last measured."""
        results = collect(blob for _, *blobs in answers for blob in blobs)
        said = [messages.seconds_of(seconds) for seconds, *_ in answers]
        waited = [seconds for seconds in said if not math.isnan(seconds)]
        if waited and results.remote_rows:
            self._remote_seconds = sum(waited) / results.remote_rows
        results.remote_seconds = self._remote_seconds
        return results

    def prefetch(self, attempt: Attempt, executors: Sequence[Executor]) -> Ahead | None:
        number = self._desk.new_number()  # before we look who is there: who goes later makes this order void
        with self._lock:
            names = [self._names.get(executor.id, "") for executor in executors]
        try:
            addresses = self._desk.await_addresses(names, 0.0)
        except AttemptLost:
            return None  # the attempt that runs is lost, too; the next one reads for itself
        readers = attempt.reading_partitions
        self._order(number, attempt, names, addresses, 0, None, (), readers)
        return Ahead(number, readers)

    def _is_void(self, ahead: Ahead) -> bool:
        """True if workers may lack what was sent ahead. They drop that, too, when an order comes that is numbered later."""
        return ahead.order < self._newest or self._desk.is_void(ahead.order)

    def close(self) -> None:
        """End all workers. The next attempt starts others."""
        with self._lock:
            names = list(self._names.values())
        for name in names:
            self._desk.send(name, messages.END)
        self._workers.await_ends()

    def _order(
        self,
        number: int,
        attempt: Attempt,
        names: Sequence[str],
        addresses: Sequence[str],
        depth: int,
        ahead: int | None,
        first: Sequence[Address],
        partitions: Sequence[int] | None = None,
    ) -> None:
        order = Order(number, messages.without_descriptors(attempt), addresses, depth, ahead, first)
        pickled = pickle.dumps(order, protocol=pickle.HIGHEST_PROTOCOL)
        for partition in range(len(names)) if partitions is None else partitions:
            own = pickle.dumps(attempt.descriptors[partition] if attempt.descriptors else ())
            self._desk.send(names[partition], messages.RUN, pickled, messages.numbered(partition), own)

    def _reached(self, names: Sequence[str]) -> list[str]:
        """Return the addresses of workers. Raises AttemptLost; one that has answered and does not any more is replaced then."""
        try:
            return self._desk.await_addresses(names, HELLO_SECONDS)
        except WorkerSilent as silent:
            if self._desk.has_heard(silent.worker):
                self._workers.give_up(silent.worker)
            raise

    def _staffed(self, executors: Sequence[Executor]) -> list[str]:
        """Return the names of the executors' workers; starts those that there are not."""
        with self._lock:
            for executor in executors:
                if executor.id not in self._names:
                    self._names[executor.id] = name = f"{executor.slot}/{uuid.uuid4().hex[:8]}"
                    self._workers.start(executor, name, lambda loss, id=executor.id, name=name: self._ended(id, name, loss))
            return [self._names[executor.id] for executor in executors]

    def _ended(self, executor: str, name: str, loss: Exception) -> None:
        with self._lock:
            if self._names.get(executor) == name:
                del self._names[executor]
        self._desk.gone(name, loss)


def _first_senders(attempt: Attempt, number: int, ahead: Ahead | None) -> list[Address]:
    """The envelopes that the first level waits for."""
    if ahead is None:
        return [Address(number, 1, partition) for partition in attempt.reading_partitions]
    state = range(attempt.partitions) if attempt.hands_over else ()
    return [*(Address(ahead.order, 1, sender) for sender in ahead.senders), *(Address(number, 1, p) for p in state)]
