"""A worker's ZeroMQ sockets: one to its driver, one that other workers send to, one to each of those.

A worker that cannot be reached, or no longer, is told as `LostPeer`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import zmq
from zmq.utils.monitor import recv_monitor_message

from streamtopology.contract.errors import Unavailable
from streamtopology.jobs.exchange.blobs import Blob, StageTask
from streamtopology.jobs.realtime import messages
from streamtopology.jobs.realtime.messages import Bytes, OrderPart
from streamtopology.jobs.realtime.secure import Keys, client, secured, server
from streamtopology.jobs.realtime.worker import Arrival, Event, LostPeer, Worker
from streamtopology.jobs.worker.cache import PROCESS_CACHE
from streamtopology.jobs.worker.stage_tasks import exhaust

# An executor that cannot be reached for so long makes the attempt lost.
REACH_SECONDS = 20
_PORT_SECONDS, _PORT_LOOK_SECONDS = 10.0, 0.1
_LOOK_MS = 1000
# Between two looks of a worker that has no driver whether another one calls.
_ALONE_LOOK_MS = 20


@dataclass(frozen=True)
class Post:
    """Where a worker belongs: the run, the address of its driver, its own name there, and where others reach it.

    listens: host and port; port 0: any that is free.
    """

    run: str
    driver: str
    name: str
    listens: str


def never() -> bool:
    return False


class WorkerSockets:
    """A context manager that implements `Lines`.

    is_over: asked again and again, above all while there is no connection to the driver; True ends this worker as its driver
    would.
    """

    def __init__(
        self, post: Post, keys: Keys, clock: Callable[[], float] = time.monotonic, is_over: Callable[[], bool] = never
    ) -> None:
        self._post = post
        self._is_over = is_over
        self._has_driver = False
        self._keys = keys
        self._clock = clock
        self._undo = ExitStack()
        self._peers: dict[str, zmq.Socket[bytes]] = {}
        # Those without a connection yet, and since when.
        self._calling: dict[str, float] = {}
        self._watched: dict[zmq.Socket[bytes], str] = {}

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._context = undo.enter_context(secured(self._keys))
            self._connect()
            self._undo = undo.pop_all()
        return self

    def _connect(self) -> None:
        self._poller = zmq.Poller()
        self._inbox = server(self._context, self._keys)
        self._listen()
        self._address: str = self._inbox.getsockopt_string(zmq.LAST_ENDPOINT)
        self._driver = client(self._context, self._keys, self._post.name)
        self._connected = self._driver.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self._driver.connect(self._post.driver)
        for socket in (self._inbox, self._driver, self._connected):
            self._poller.register(socket, zmq.POLLIN)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._undo.close()

    def _listen(self) -> None:
        """Take the port; the worker before this one may leave it just now. Raises Unavailable."""
        until = self._clock() + _PORT_SECONDS
        while True:
            try:
                self._inbox.bind(f"tcp://{self._post.listens}")
                return
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE or self._clock() > until:
                    what = f"a worker of trigger.realTime cannot listen at {self._post.listens}"
                    raise Unavailable(f"{what}: {zmq.strerror(error.errno or 0)}; free that port") from error
                time.sleep(_PORT_LOOK_SECONDS)

    def receive(self) -> list[Event]:
        events: list[Event] = []
        for socket, _ in self._poller.poll(self._patience_ms()):
            if socket is self._inbox:
                events += map(_envelope, _waiting(self._inbox))
            elif socket is self._driver:
                events += map(_order, _waiting(self._driver))
            elif socket is self._connected:
                self._has_driver = recv_monitor_message(socket)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
                if self._has_driver:
                    self.tell(messages.HELLO, self._address.encode())
            elif socket in self._watched:
                events += self._look_at_connection(socket)
        late = [worker for worker, since in self._calling.items() if self._clock() - since > REACH_SECONDS]
        events += map(self._unreachable, late)
        return [*events, None] if self._is_over() else events

    def _patience_ms(self) -> int | None:
        """How long to wait for a message, before a look at what comes without one."""
        if self._is_over is never:
            return _LOOK_MS if self._calling else None
        return _LOOK_MS if self._has_driver else _ALONE_LOOK_MS

    def tell(self, *frames: Blob) -> None:
        self._driver.send_multipart(frames, copy=False)

    def send(self, worker: str, *frames: Bytes) -> None:
        self._peer(worker).send_multipart(frames, copy=False)

    def keep(self, workers: Sequence[str]) -> None:
        for worker in self._peers.keys() - set(workers):
            self._hang_up(worker)

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

    def _look_at_connection(self, monitor: zmq.Socket[bytes]) -> Iterator[Event]:
        worker = self._watched[monitor]
        if recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._calling.pop(worker, None)
        else:
            yield self._unreachable(worker)

    def _unreachable(self, worker: str) -> LostPeer:
        """Hang up, so that what comes next gets a connection of its own."""
        self._hang_up(worker)
        return LostPeer(worker)


def _waiting(socket: zmq.Socket[bytes]) -> Iterator[list[zmq.Frame]]:
    """The messages that have come, without waiting for more."""
    while True:
        try:
            yield socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return


def _envelope(frames: Sequence[zmq.Frame]) -> Arrival:
    _, _, address, sent_at, *blobs = frames
    return Arrival.of(address.bytes, sent_at.bytes, [blob.buffer for blob in blobs])


def _order(frames: Sequence[zmq.Frame]) -> Event:
    if frames[0].bytes == messages.END:
        return None
    return OrderPart.of(*(frame.buffer for frame in frames[1:]))


def serving(post: Post, keys: Callable[[str], Keys]) -> StageTask:
    """The long task of an executor, for Spark; `keys`: of a run, found where the task runs.

    Its output is what keeps the worker from its work, if anything does: an exception would come in Spark's words.
    """
    return partial(_serve, post, keys)


def _serve(post: Post, keys: Callable[[str], Keys], partition: int, anchor: Iterator[bytes]) -> Iterator[Blob]:
    exhaust(anchor)
    try:
        with WorkerSockets(post, keys(post.run)) as sockets:
            Worker(sockets, PROCESS_CACHE, freeze_at_powers_of_two, time.monotonic).serve()
    except Unavailable as error:
        yield str(error).encode()


def freeze_at_powers_of_two(orders: int) -> None:
    """As `worker_daemon` does after Spark's tasks."""
    if orders & (orders - 1) == 0:
        gc.collect()
        gc.freeze()
