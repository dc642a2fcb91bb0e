"""The worker of real time: the loop of one long task, in the Python worker of an executor.

It takes orders from the driver, runs the same stage tasks as Spark's runner, and sends their envelopes to the other workers.
One thread does all, so an order waits for the one before. Its state stays in `PROCESS_CACHE`, as between Spark's tasks.
"""

from __future__ import annotations

import gc
import pickle
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import pyarrow as pa
import zmq
from zmq.utils.monitor import recv_monitor_message

from streamtopology.jobs.exchange.blobs import Blob, StageTask
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.realtime import messages
from streamtopology.jobs.realtime.messages import Address, Order
from streamtopology.jobs.realtime.secure import Keys, client, secured, server
from streamtopology.jobs.worker.attempt_context import AttemptContext
from streamtopology.jobs.worker.cache import PROCESS_CACHE, WorkerCache
from streamtopology.jobs.worker.stage_tasks import exhaust, read_sources, run_instances, send_state

# An executor that cannot be reached for so long makes the attempt lost.
REACH_SECONDS = 20
_LOOK_MS = 1000

Received = Sequence[bytes | memoryview]


@dataclass(frozen=True)
class Post:
    """Where a worker belongs: the run, the address of its driver, its own name there, and where others reach it.

    listens: host and port; port 0: any that is free.
    """

    run: str
    driver: str
    name: str
    listens: str


class _Superseded(Exception):
    """The order that waits for envelopes is over: a newer one has come, or the end."""


class Worker:
    """A context manager; `serve` returns when the driver ends it."""

    def __init__(
        self, post: Post, keys: Keys, cache: WorkerCache = PROCESS_CACHE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._post = post
        self._keys = keys
        self._cache = cache
        self._clock = clock
        self._undo = ExitStack()
        self._orders: deque[Order | None] = deque()
        self._arrived: dict[Address, Received] = {}
        self._peers: dict[str, zmq.Socket[bytes]] = {}
        # Those without a connection yet, and since when.
        self._calling: dict[str, float] = {}
        self._watched: dict[zmq.Socket[bytes], str] = {}
        self._order: Order | None = None
        self._done = 0

    def __enter__(self) -> Self:
        self._context = self._undo.enter_context(secured(self._keys))
        self._poller = zmq.Poller()
        self._inbox = server(self._context, self._keys)
        self._inbox.bind(f"tcp://{self._post.listens}")
        self._address: str = self._inbox.getsockopt_string(zmq.LAST_ENDPOINT)
        self._driver = client(self._context, self._keys, self._post.name)
        self._connected = self._driver.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._driver.connect(self._post.driver)
        for socket in (self._inbox, self._driver, self._connected):
            self._poller.register(socket, zmq.POLLIN)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._undo.close()

    def serve(self) -> None:
        """Do what the driver orders, until it ends this worker."""
        while (order := self._next()) is not None:
            self._obey(order)

    def _next(self) -> Order | None:
        while not self._orders:
            self._receive()
        return self._orders.popleft()

    def _obey(self, order: Order) -> None:
        self._order = order
        try:
            if order.depth == 0:
                self._send(order, 1, read_sources(self._task(order)))
                return
            self._forget(order)
            blobs = self._run(order)
        except _Superseded:
            return
        except Exception as error:  # noqa: BLE001 - the driver raises it again
            self._answer(messages.FAILED, order, [_pickled(error), traceback.format_exc().encode()])
        else:
            self._answer(messages.DONE, order, blobs)
        self._done += 1
        if self._done & (self._done - 1) == 0:  # as `worker_daemon` does after Spark's tasks
            gc.collect()
            gc.freeze()

    def _run(self, order: Order) -> Sequence[Blob]:
        """The tasks of an order, one after the other; returns the reports that were gathered here."""
        attempt = order.attempt
        if order.ahead is not None:
            if attempt.hands_over:
                self._send(order, 1, send_state(self._task(order)))
        elif order.partition in attempt.reading_partitions:
            self._send(order, 1, read_sources(self._task(order)))
        sent: Sequence[Blob] = ()
        for level in range(1, order.depth + 1):
            awaited = order.first if level == 1 else [Address(order.number, level, p) for p in range(attempt.partitions)]
            sent = run_instances(self._task(order), level, self._await(awaited))
            if level < order.depth:
                self._send(order, level + 1, sent)
        return sent[_part(attempt, order.partition)]

    def _task(self, order: Order) -> AttemptContext:
        return AttemptContext(order.attempt, order.partition, self._cache)

    def _await(self, awaited: Sequence[Address]) -> Iterator[bytes | memoryview]:
        """Return the blobs of these envelopes, in their order. Raises _Superseded."""
        while not all(address in self._arrived for address in awaited):
            if any(order is None or order.depth for order in self._orders):
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
        for address in self._peers.keys() - set(order.workers):
            self._hang_up(address)

    def _send(self, order: Order, level: int, blobs: Sequence[pa.Buffer]) -> None:
        address = Address(order.number, level, order.partition)
        for partition, worker in enumerate(order.workers):
            part = blobs[_part(order.attempt, partition)]
            if partition == order.partition:
                self._arrived[address] = [memoryview(blob) for blob in part]
            else:
                self._peer(worker).send_multipart([messages.ENVELOPE, address.packed(), *part], copy=False)

    def _answer(self, kind: bytes, order: Order, blobs: Iterable[Blob]) -> None:
        self._driver.send_multipart([kind, messages.numbered(order.number), *blobs], copy=False)

    def _peer(self, worker: str) -> zmq.Socket[bytes]:
        if worker not in self._peers:
            peer = client(self._context, self._keys, self._post.name)
            monitor = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
            self._watched[monitor] = worker
            self._poller.register(monitor, zmq.POLLIN)
            peer.connect(worker)
            self._peers[worker] = peer
            self._calling[worker] = self._clock()
        return self._peers[worker]

    def _hang_up(self, worker: str) -> None:
        for monitor in [monitor for monitor, watched in self._watched.items() if watched == worker]:
            self._poller.unregister(monitor)
            del self._watched[monitor]
        self._calling.pop(worker, None)
        peer = self._peers.pop(worker)
        peer.disable_monitor()
        peer.close(linger=0)

    def _receive(self) -> None:
        """Wait for messages, and take those that have come."""
        for socket, _ in self._poller.poll(_LOOK_MS if self._calling else None):
            if socket is self._inbox:
                self._take_envelopes()
            elif socket is self._driver:
                self._take_orders()
            elif socket is self._connected:
                recv_monitor_message(socket)
                self._driver.send_multipart([messages.HELLO, self._address.encode()])
            elif socket in self._watched:
                self._look_at_connection(socket)
        for worker in [worker for worker, since in self._calling.items() if self._clock() - since > REACH_SECONDS]:
            self._is_lost(worker)

    def _look_at_connection(self, monitor: zmq.Socket[bytes]) -> None:
        worker = self._watched[monitor]
        if recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._calling.pop(worker, None)
        else:
            self._is_lost(worker)

    def _take_envelopes(self) -> None:
        for frames in _waiting(self._inbox):
            _, _, address, *blobs = frames
            self._arrived[Address.unpacked(address.bytes)] = [blob.buffer for blob in blobs]

    def _take_orders(self) -> None:
        for frames in _waiting(self._driver):
            self._orders.append(None if frames[0].bytes == messages.END else pickle.loads(frames[1].buffer))

    def _is_lost(self, worker: str) -> None:
        """What was sent to `worker` in this order may not have arrived; what comes next gets a connection of its own."""
        self._hang_up(worker)
        if self._order is not None:
            self._answer(messages.LOST, self._order, [worker.encode()])


def _part(attempt: Attempt, partition: int) -> slice:
    return slice(partition * attempt.blobs, (partition + 1) * attempt.blobs)


def _waiting(socket: zmq.Socket[bytes]) -> Iterator[list[zmq.Frame]]:
    """The messages that have come, without waiting for more."""
    while True:
        try:
            yield socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return


def _pickled(error: Exception) -> bytes:
    """`error` as bytes; nothing if it cannot be pickled."""
    try:
        return pickle.dumps(error)
    except Exception:  # noqa: BLE001 - whatever a user's exception holds
        return b""


def serving(post: Post, keys: Callable[[str], Keys]) -> StageTask:
    """The long task of an executor, for Spark; `keys`: of a run, found where the task runs."""
    return partial(_serve, post, keys)


def _serve(post: Post, keys: Callable[[str], Keys], partition: int, anchor: Iterator[bytes]) -> Iterator[Blob]:
    exhaust(anchor)
    with Worker(post, keys(post.run)) as worker:
        worker.serve()
    return iter(())
