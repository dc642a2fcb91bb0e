"""The worker of real time: the loop of one long task, in the Python worker of an executor.

It takes orders from the driver, runs the same stage tasks as Spark's runner, and sends their envelopes to the other workers.
One thread does all, so an order waits for the one before. Its state stays in `WorkerCache`, as between Spark's tasks.
"""

from __future__ import annotations

import math
import pickle
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from streamtopology.jobs.exchange.blobs import Blob
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.realtime import messages
from streamtopology.jobs.realtime.link_waits import LinkWaits, Way
from streamtopology.jobs.realtime.messages import Address, Bytes, Order, OrderPart
from streamtopology.jobs.worker.attempt_context import AttemptContext
from streamtopology.jobs.worker.cache import WorkerCache
from streamtopology.jobs.worker.stage_tasks import read_sources, run_instances, send_state


@dataclass(frozen=True)
class Arrival:
    """What another worker has sent. `sent_at`: by its clock."""

    address: Address
    sent_at: float
    blobs: Sequence[Bytes]

    @staticmethod
    def of(address: Bytes, sent_at: Bytes, blobs: Sequence[Bytes]) -> Arrival:
        """From its frames."""
        return Arrival(Address.unpacked(address), messages.seconds_of(sent_at), blobs)


@dataclass(frozen=True)
class _Arrived:
    """The blobs of an envelope. `way`: None of those that a worker gives itself."""

    blobs: Sequence[Bytes]
    way: tuple[float, float] | None = None


@dataclass(frozen=True)
class LostPeer:
    """What was sent to `worker`, an address, may not have arrived."""

    worker: str


# None: the driver ends this worker.
Event = OrderPart | Arrival | LostPeer | None


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
    """`obeyed` is called after each order with their number so far. `clock` gives monotonic seconds."""

    def __init__(self, lines: Lines, cache: WorkerCache, obeyed: Callable[[int], None], clock: Callable[[], float]) -> None:
        self._lines = lines
        self._cache = cache
        self._obeyed = obeyed
        self._clock = clock
        self._links = LinkWaits()
        self._link_seconds: list[float] = []
        self._orders: deque[OrderPart | None] = deque()
        self._arrived: dict[Address, _Arrived] = {}
        self._order: Order | None = None
        self._done = 0

    def serve(self) -> None:
        """Do what the driver orders, until it ends this worker."""
        while (part := self._next()) is not None:
            self._obey(part)

    def _next(self) -> OrderPart | None:
        while not self._orders:
            self._receive()
        return self._orders.popleft()

    def _obey(self, part: OrderPart) -> None:
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
            waited = sum(self._link_seconds) if self._link_seconds else math.nan
            self._answer(messages.DONE, order, [messages.timed(waited), *blobs])
        self._done += 1
        self._obeyed(self._done)

    def _run(self, part: OrderPart) -> Sequence[Blob]:
        """The tasks of an order, one after the other; returns the reports that were gathered here."""
        order, attempt = part.order, part.order.attempt
        self._link_seconds = []
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

    def _task(self, part: OrderPart) -> AttemptContext:
        return AttemptContext(part.attempt, part.partition, self._cache)

    def _await(self, awaited: Sequence[Address]) -> Iterator[Bytes]:
        """Return the blobs of these envelopes, in their order. Raises _Superseded."""
        began_at = self._clock()
        while not all(address in self._arrived for address in awaited):
            if any(part is None or part.order.depth for part in self._orders):
                raise _Superseded
            if self._orders:  # what runs ahead may run while others are awaited
                ahead, running, since = self._next(), self._order, self._clock()
                assert ahead is not None
                self._obey(ahead)
                self._order, began_at = running, began_at + self._clock() - since
            else:
                self._receive()
        came = {address: self._arrived.pop(address) for address in awaited}
        self._note_links(came, began_at)
        return (blob for address in awaited for blob in came[address].blobs)

    def _note_links(self, came: Mapping[Address, _Arrived], began_at: float) -> None:
        """Note how long rows that instances have sent were awaited for the links' sake."""
        assert self._order is not None
        ways = [
            Way(self._order.workers[address.sender], *arrived.way, sum(memoryview(blob).nbytes for blob in arrived.blobs))
            for address, arrived in came.items()
            if arrived.way is not None and address.level > 1
        ]
        waited = self._links.seconds(ways, began_at)
        if waited is not None:
            self._link_seconds.append(waited)

    def _forget(self, order: Order) -> None:
        """Drop what has come for orders that are over, and connections to workers that have gone."""
        self._arrived = {
            address: arrived
            for address, arrived in self._arrived.items()
            if address.order >= order.number or address.order == order.ahead
        }
        self._lines.keep(order.workers)
        self._links.forget_others(order.workers)

    def _send(self, part: OrderPart, level: int, blobs: Sequence[pa.Buffer]) -> None:
        address = Address(part.order.number, level, part.partition)
        for partition, worker in enumerate(part.order.workers):
            envelope = blobs[_blobs_of(part.order.attempt, partition)]
            if partition == part.partition:
                self._arrived[address] = _Arrived([memoryview(blob) for blob in envelope])
            else:
                self._lines.send(worker, messages.ENVELOPE, address.packed(), messages.timed(self._clock()), *envelope)

    def _answer(self, kind: bytes, order: Order, blobs: Iterable[Blob]) -> None:
        self._lines.tell(kind, messages.numbered(order.number), *blobs)

    def _receive(self) -> None:
        """Wait for messages, and take those that have come."""
        for event in self._lines.receive():
            match event:
                case Arrival():
                    self._arrived[event.address] = _Arrived(event.blobs, (event.sent_at, self._clock()))
                case LostPeer():
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
