"""The driver's end: what it knows of its workers, and the calls that wait for their answers."""

from __future__ import annotations

import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from streamtopology.jobs.driver.attempt_runner import AttemptLost, ShuffleLost
from streamtopology.jobs.realtime import messages
from streamtopology.jobs.realtime.messages import Bytes

Frames = Sequence[Bytes]

# Spark's word on the end of a worker comes so soon.
CAUSE_SECONDS = 5.0


class WorkerSilent(AttemptLost):
    """The driver has no connection to a worker, or lost it."""

    def __init__(self, worker: str) -> None:
        super().__init__(f"the worker of {_executor_of(worker)} does not answer")
        self.worker = worker


@dataclass
class PendingOrder:
    """An order that waits for answers. `workers`: their names, by partition. `changed` is held by who calls `tell`."""

    number: int
    workers: tuple[str, ...]
    changed: threading.Condition
    _events: deque[tuple[str, Frames | Exception]] = field(default_factory=deque[tuple[str, Frames | Exception]])

    def tell(self, worker: str, event: Frames | Exception) -> None:
        self._events.append((worker, event))
        self.changed.notify_all()

    def answers(self) -> list[Frames]:
        """Wait for the answers of all workers, by partition. Raises what went wrong at one of them."""
        answers: dict[str, Frames] = {}
        with self.changed:
            while len(answers) < len(self.workers):
                self.changed.wait_for(lambda: self._events)
                worker, event = self._events.popleft()
                if isinstance(event, WorkerSilent):
                    raise self._cause(worker, event)
                if isinstance(event, Exception):
                    raise event
                answers[worker] = event
        return [answers[worker] for worker in self.workers]

    def _cause(self, silent: str, loss: WorkerSilent) -> Exception:
        """Why a worker is silent: its end, of which Spark tells a moment after its connection does, or no more than that."""
        until = time.monotonic() + CAUSE_SECONDS
        while self.changed.wait_for(lambda: self._events, until - time.monotonic()):
            worker, event = self._events.popleft()
            if worker == silent and isinstance(event, Exception) and not isinstance(event, WorkerSilent):
                return event  # its silence is told twice, if the call has an order ahead
        return loss


class Desk:
    """All methods may be called from any thread. `put` sends frames to the worker that the first of them names."""

    def __init__(self, put: Callable[[list[bytes]], None]) -> None:
        self._put = put
        self._changed = threading.Condition()
        self._addresses: dict[str, str] = {}
        self._heard: set[str] = set()
        self._ended: dict[str, Exception] = {}
        self._calls: dict[int, PendingOrder] = {}
        self._number = 0
        self._void = 0

    @contextmanager
    def calling(self, workers: Sequence[str], ahead: int | None = None) -> Iterator[PendingOrder]:
        """A call under a new number, while entered. What goes wrong with the order `ahead` goes wrong with it, too."""
        number = self.new_number()
        call = PendingOrder(number, tuple(workers), self._changed)
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

    def has_heard(self, worker: str) -> bool:
        """True if `worker` has once said hello."""
        return worker in self._heard

    def gone(self, worker: str, loss: Exception) -> None:
        """Note that a worker has ended; calls that need it end with `loss`."""
        with self._changed:
            self._ended[worker] = loss
            self._addresses.pop(worker, None)
            self._lost(worker, loss, self._number)

    # --- what comes from workers ---

    def heard(self, worker: str, kind: bytes, frames: Frames) -> None:
        """Take a message: `kind` and the `frames` after it."""
        with self._changed:
            if kind == messages.HELLO:
                self._hello(worker, bytes(frames[0]).decode())
                return
            number = messages.number_of(frames[0])
            call = self._calls.get(number)
            if kind == messages.LOST:
                self._lost(worker, ShuffleLost((_executor_of(worker), self._at(bytes(frames[1]).decode()))), number)
            elif kind == messages.FAILED:
                self._void = max(self._void, number)
                if call is not None:
                    call.tell(worker, _raised(frames[1], bytes(frames[2]).decode()))
            elif call is not None:
                call.tell(worker, frames[1:])

    def disconnected(self, worker: str) -> None:
        """Note that the connection to `worker` has ended; it may connect again."""
        with self._changed:
            self._addresses.pop(worker, None)
            self._lost(worker, WorkerSilent(worker), self._number)

    def _hello(self, worker: str, address: str) -> None:
        if worker in self._addresses:  # it has connected again before we saw that its connection had ended
            self._lost(worker, WorkerSilent(worker), self._number)
        self._heard.add(worker)
        self._addresses[worker] = address
        self._changed.notify_all()

    def _at(self, address: str) -> str:
        """Return what a sentence calls the executor whose worker has, or had, this address."""
        return next((_executor_of(one) for one, at in self._addresses.items() if at == address), f"a worker at {address}")

    def _lost(self, worker: str, loss: Exception, last: int) -> None:
        """Orders up to `last` may have lost what `worker` got or sent."""
        self._void = max(self._void, last)
        for number, call in self._calls.items():
            if number <= last and worker in call.workers:
                call.tell(worker, loss)
        self._changed.notify_all()


def _executor_of(worker: str) -> str:
    """What a sentence calls the executor in the name of a worker."""
    return f"executor {worker.rpartition('/')[0]}"


def _raised(pickled: Bytes, text: str) -> Exception:
    """The exception of a worker; one that this process cannot load as its `text`."""
    try:
        error = pickle.loads(pickled)
    except Exception:  # noqa: BLE001 - whatever the class of a user's exception does, or is not here
        error = None
    return error if isinstance(error, Exception) else RuntimeError(text)
