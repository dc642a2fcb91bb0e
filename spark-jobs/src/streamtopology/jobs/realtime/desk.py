"""The driver's end: one thread that talks to all workers, and the calls that wait for their answers."""

from __future__ import annotations

import os
import pickle
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import zmq
from zmq.utils.monitor import recv_monitor_message

from streamtopology.jobs.driver.attempt_runner import AttemptLost, ShuffleLost
from streamtopology.jobs.realtime import messages
from streamtopology.jobs.realtime.secure import Keys, secured, server

Frames = Sequence[bytes | memoryview]


# Spark's word on the end of a worker comes so soon.
CAUSE_SECONDS = 5.0


class WorkerSilent(AttemptLost):
    """The driver has no connection to a worker, or lost it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the worker of executor {name.rpartition('/')[0]} does not answer")


@dataclass
class PendingOrder:
    """An order that waits for answers. `workers`: their names, by partition."""

    number: int
    workers: tuple[str, ...]
    _events: queue.SimpleQueue[tuple[str, Frames | Exception]] = field(default_factory=queue.SimpleQueue)

    def tell(self, worker: str, event: Frames | Exception) -> None:
        self._events.put((worker, event))

    def answers(self) -> list[Frames]:
        """Wait for the answers of all workers, by partition. Raises what went wrong at one of them."""
        answers: dict[str, Frames] = {}
        while len(answers) < len(self.workers):
            worker, event = self._events.get()
            if isinstance(event, WorkerSilent):
                raise self._cause(worker, event)
            if isinstance(event, Exception):
                raise event
            answers[worker] = event
        return [answers[worker] for worker in self.workers]

    def _cause(self, silent: str, loss: WorkerSilent) -> Exception:
        """Why a worker is silent: its end, of which Spark tells a moment after its connection does, or no more than that."""
        until = time.monotonic() + CAUSE_SECONDS
        with suppress(queue.Empty):
            while True:
                worker, event = self._events.get(timeout=max(until - time.monotonic(), 0.0))
                if worker == silent and isinstance(event, Exception):
                    return event
        return loss


class Desk:
    """A context manager; while entered, workers reach it at `address`. All other methods may be called from any thread."""

    def __init__(self, keys: Keys, listens: str) -> None:
        self._keys = keys
        self._listens = listens
        self._undo = ExitStack()
        self._changed = threading.Condition()
        self._addresses: dict[str, str] = {}
        self._sockets: dict[int, str] = {}
        self._ended: dict[str, Exception] = {}
        self._calls: dict[int, PendingOrder] = {}
        self._outbox: queue.SimpleQueue[list[bytes] | None] = queue.SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._number = 0
        self._void = 0
        self._thread = threading.Thread(target=self._run, name="real-time desk", daemon=True)

    def __enter__(self) -> Self:
        self._undo.callback(os.close, self._wake)
        context = self._undo.enter_context(secured(self._keys))
        self._router = server(context, self._keys)
        self._router.bind(f"tcp://{self._listens}")
        self.address = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._monitor = self._router.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._undo.callback(self._router.disable_monitor)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._put(None)
        self._thread.join()
        self._undo.close()

    @contextmanager
    def calling(self, workers: Sequence[str], ahead: int | None = None) -> Iterator[PendingOrder]:
        """A call under a new number, while entered. What goes wrong with the order `ahead` goes wrong with it, too."""
        number = self.new_number()
        call = PendingOrder(number, tuple(workers))
        numbers = {number} if ahead is None else {ahead, number}
        with self._changed:
            self._calls.update(dict.fromkeys(numbers, call))
            for worker in workers:
                if worker not in self._addresses:
                    call.tell(worker, self._ended.get(worker, WorkerSilent(worker)))
            if ahead is not None and ahead <= self._void:
                call.tell(workers[0], ShuffleLost())
        try:
            yield call
        finally:
            with self._changed:
                for number in numbers:
                    del self._calls[number]

    def new_number(self) -> int:
        """Return the number of a new order; one that nobody calls has no answers yet."""
        with self._changed:
            self._number += 1
            return self._number

    def is_void(self, ahead: int) -> bool:
        """True if something has been lost since the order `ahead`, so that it may not be complete."""
        with self._changed:
            return ahead <= self._void

    def send(self, worker: str, kind: bytes, *frames: bytes) -> None:
        self._put([worker.encode(), kind, *frames])

    def await_addresses(self, workers: Sequence[str], seconds: float) -> list[str]:
        """Wait until these workers have said where they are; return that. Raises AttemptLost, or why one of them ended."""
        until = time.monotonic() + seconds
        with self._changed:
            while silent := [worker for worker in workers if worker not in self._addresses]:
                for worker in self._ended.keys() & set(silent):
                    raise self._ended[worker]
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise WorkerSilent(silent[0])
            return [self._addresses[worker] for worker in workers]

    def gone(self, worker: str, loss: Exception) -> None:
        """Note that a worker has ended; calls that need it end with `loss`."""
        with self._changed:
            self._ended[worker] = loss
            self._addresses.pop(worker, None)
            self._lost(worker, loss, self._number)

    # --- the thread ---

    def _put(self, frames: list[bytes] | None) -> None:
        self._outbox.put(frames)
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        poller = zmq.Poller()
        for source in (self._router, self._monitor, self._wake):
            poller.register(source, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._wake in ready:
                os.eventfd_read(self._wake)
                while not self._outbox.empty():
                    frames = self._outbox.get()
                    if frames is None:
                        return
                    self._router.send_multipart(frames, copy=False)
            frames = self._router.recv_multipart(copy=False) if self._router in ready else None
            while self._monitor.poll(0):  # first: a new connection may have the socket's number of one that ended
                self._disconnected(recv_monitor_message(self._monitor)["value"])
            if frames is not None:
                self._hear(frames)

    def _hear(self, frames: list[zmq.Frame]) -> None:
        worker, kind = frames[0].bytes.decode(), frames[1].bytes
        with self._changed:
            if kind == messages.HELLO:
                self._hello(worker, frames[2].bytes.decode(), frames[1].get(zmq.SRCFD))
                return
            number = messages.number_of(frames[2].bytes)
            call = self._calls.get(number)
            if kind == messages.LOST:
                self._lost(worker, ShuffleLost(), number)
            elif kind == messages.FAILED:
                self._void = max(self._void, number)
                if call is not None:
                    call.tell(worker, _raised(frames[3].bytes, frames[4].bytes.decode()))
            elif call is not None:
                call.tell(worker, [frame.buffer for frame in frames[3:]])

    def _hello(self, worker: str, address: str, socket: int) -> None:
        if worker in self._addresses:  # it has connected again before we saw that its connection had ended
            self._lost(worker, WorkerSilent(worker), self._number)
        self._sockets = {known: of for known, of in self._sockets.items() if of != worker} | {socket: worker}
        self._addresses[worker] = address
        self._changed.notify_all()

    def _disconnected(self, socket: int) -> None:
        with self._changed:
            if worker := self._sockets.pop(socket, None):
                self._addresses.pop(worker, None)
                self._lost(worker, WorkerSilent(worker), self._number)

    def _lost(self, worker: str, loss: Exception, last: int) -> None:
        """Orders up to `last` may have lost what `worker` got or sent."""
        self._void = max(self._void, last)
        for number, call in self._calls.items():
            if number <= last and worker in call.workers:
                call.tell(worker, loss)
        self._changed.notify_all()


def _raised(pickled: bytes, text: str) -> Exception:
    """The exception of a worker; one that this process cannot load as its `text`."""
    try:
        error = pickle.loads(pickled)
    except Exception:  # noqa: BLE001 - whatever the class of a user's exception does, or is not here
        error = None
    return error if isinstance(error, Exception) else RuntimeError(text)
