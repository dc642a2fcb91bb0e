"""The worker of real time: the loop of one long task, in the Python worker of an executor.

It takes orders from the driver, runs the same stage tasks as Spark's runner, and sends their envelopes to the other workers.
One thread does all, so an order waits for the one before. Its state stays in `WorkerCache`, as between Spark's tasks.
"""

from __future__ import annotations

import pickle
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from streamtopology.jobs.exchange.blobs import Blob
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.realtime import messages
from streamtopology.jobs.realtime.messages import Address, Bytes, Order, Part
from streamtopology.jobs.worker.attempt_context import AttemptContext
from streamtopology.jobs.worker.cache import WorkerCache
from streamtopology.jobs.worker.stage_tasks import read_sources, run_instances, send_state


@dataclass(frozen=True)
class Envelope:
    """What another worker has sent."""

    address: Address
    blobs: Sequence[Bytes]


@dataclass(frozen=True)
class Unreachable:
    """What was sent to `worker`, an address, may not have arrived."""

    worker: str


# None: the driver ends this worker.
Event = Part | Envelope | Unreachable | None


class Lines(Protocol):
    """A worker's lines to its driver and to the others. Each worker is reached by its address."""

    def receive(self) -> Iterable[Event]:
        """Wait until something has come; return that."""
        ...

    def tell(self, *frames: Blob) -> None:
        """Send to the driver."""
        ...

    def send(self, worker: str, *frames: Bytes) -> None:
        """Send to another worker, without waiting."""
        ...

    def keep(self, workers: Sequence[str]) -> None:
        """Hang up on all others."""
        ...


class _Superseded(Exception):
    """The order that waits for envelopes is over: a newer one has come, or the end."""


class Worker:
    """`obeyed` is called after each order with their number so far."""

    def __init__(self, lines: Lines, cache: WorkerCache, obeyed: Callable[[int], None]) -> None:
        self._lines = lines
        self._cache = cache
        self._obeyed = obeyed
        self._orders: deque[Part | None] = deque()
        self._arrived: dict[Address, Sequence[Bytes]] = {}
        self._order: Order | None = None
        self._done = 0

    def serve(self) -> None:
        """Do what the driver orders, until it ends this worker."""
        while (part := self._next()) is not None:
            self._obey(part)

    def _next(self) -> Part | None:
        while not self._orders:
            self._receive()
        return self._orders.popleft()

    def _obey(self, part: Part) -> None:
        self._order = order = part.order
        try:
            if order.depth == 0:
                self._send(part, 1, read_sources(self._task(part)))
                return
            self._forget(order)
            blobs = self._run(part)
        except _Superseded:
            return
        except Exception as error:  # noqa: BLE001 - the driver raises it again
            self._answer(messages.FAILED, order, [_pickled(error), traceback.format_exc().encode()])
        else:
            self._answer(messages.DONE, order, blobs)
        self._done += 1
        self._obeyed(self._done)

    def _run(self, part: Part) -> Sequence[Blob]:
        """The tasks of an order, one after the other; returns the reports that were gathered here."""
        order, attempt = part.order, part.order.attempt
        if order.ahead is not None:
            if attempt.hands_over:
                self._send(part, 1, send_state(self._task(part)))
        elif part.partition in attempt.reading_partitions:
            self._send(part, 1, read_sources(self._task(part)))
        sent: Sequence[Blob] = ()
        for level in range(1, order.depth + 1):
            awaited = order.first if level == 1 else [Address(order.number, level, p) for p in range(attempt.partitions)]
            sent = run_instances(self._task(part), level, self._await(awaited))
            if level < order.depth:
                self._send(part, level + 1, sent)
        return sent[_blobs_of(attempt, part.partition)]

    def _task(self, part: Part) -> AttemptContext:
        return AttemptContext(part.order.attempt, part.partition, self._cache)

    def _await(self, awaited: Sequence[Address]) -> Iterator[Bytes]:
        """Return the blobs of these envelopes, in their order. Raises _Superseded."""
        while not all(address in self._arrived for address in awaited):
            if any(part is None or part.order.depth for part in self._orders):
                raise _Superseded
            if self._orders:  # what runs ahead may run while others are awaited
                ahead, running = self._next(), self._order
                assert ahead is not None
                self._obey(ahead)
                self._order = running
            else:
                self._receive()
        return (blob for address in awaited for blob in self._arrived.pop(address))

    def _forget(self, order: Order) -> None:
        """Drop what has come for orders that are over, and connections to workers that have gone."""
        self._arrived = {
            address: blobs
            for address, blobs in self._arrived.items()
            if address.order >= order.number or address.order == order.ahead
        }
        self._lines.keep(order.workers)

    def _send(self, part: Part, level: int, blobs: Sequence[pa.Buffer]) -> None:
        address = Address(part.order.number, level, part.partition)
        for partition, worker in enumerate(part.order.workers):
            envelope = blobs[_blobs_of(part.order.attempt, partition)]
            if partition == part.partition:
                self._arrived[address] = [memoryview(blob) for blob in envelope]
            else:
                self._lines.send(worker, messages.ENVELOPE, address.packed(), *envelope)

    def _answer(self, kind: bytes, order: Order, blobs: Iterable[Blob]) -> None:
        self._lines.tell(kind, messages.numbered(order.number), *blobs)

    def _receive(self) -> None:
        """Wait for messages, and take those that have come."""
        for event in self._lines.receive():
            match event:
                case Envelope():
                    self._arrived[event.address] = event.blobs
                case Unreachable():
                    if self._order is not None:
                        self._answer(messages.LOST, self._order, [event.worker.encode()])
                case _:
                    self._orders.append(event)


def _blobs_of(attempt: Attempt, partition: int) -> slice:
    return slice(partition * attempt.blobs, (partition + 1) * attempt.blobs)


def _pickled(error: Exception) -> bytes:
    """`error` as bytes; nothing if it cannot be pickled."""
    try:
        return pickle.dumps(error)
    except Exception:  # noqa: BLE001 - whatever a user's exception holds
        return b""
