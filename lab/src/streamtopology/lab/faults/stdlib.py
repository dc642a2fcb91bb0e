"""The standard library's clocks, locks, pools and random names, as simulated threads see them.

While `simulated` is entered, a thread of the simulation that asks for the time, sleeps, makes a lock or submits to a pool
gets the simulation's; all other threads get the real thing. The project's code needs no change for it, and its
threads are those of the scheduler.
"""

from __future__ import annotations

import concurrent.futures.thread as pools
import functools
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numba  # noqa: F401 - it makes its locks as it is loaded, which is else in the middle of a simulation

from streamtopology.lab.faults.scheduler import Died, Scheduler, Task

_EPOCH = 1_750_000_000.0
_READING_SECONDS = 1e-6


class Clocks:
    """The clocks of the hosts. `skew`: seconds that a host's wall clock is ahead."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.skew: dict[str, float] = {}

    def wall(self) -> float:
        return _EPOCH + self.monotonic() + self.skew.get(self._scheduler.current.process.host, 0.0)

    def monotonic(self) -> float:
        """Never twice the same: a division by a duration shall not fail for the simulation's sake."""
        self._scheduler.now += _READING_SECONDS
        return self._scheduler.now


class Lock:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: Task | None = None
        self._times = 0
        self.reentrant = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._scheduler.is_inside:
            return True
        me = self._scheduler.current
        if self._owner is not None and not (self.reentrant and self._owner is me):
            if not blocking:
                return False
            if not self._scheduler.wait(lambda: self._owner is None, None if timeout < 0 else timeout):
                return False
        self._owner, self._times = me, self._times + 1
        return True

    def release(self) -> None:
        self._times = max(self._times - 1, 0)
        if not self._times:
            self._owner = None

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Condition:
    def __init__(self, scheduler: Scheduler, lock: Lock) -> None:
        self._scheduler = scheduler
        self._lock = lock
        self._waiting: list[list[bool]] = []
        self.acquire, self.release = lock.acquire, lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        called = [False]
        self._waiting.append(called)
        self._lock.release()
        try:
            return self._scheduler.wait(lambda: called[0], timeout)
        finally:
            self._waiting = [waiting for waiting in self._waiting if waiting is not called]
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        while not (holds := predicate()) and self.wait(timeout):
            pass
        return holds or predicate()

    def notify(self, n: int = 1) -> None:
        for called in [called for called in self._waiting if not called[0]][:n]:
            called[0] = True

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class _Pool:
    """The jobs of one ThreadPoolExecutor that a simulated thread has made."""

    def __init__(self, scheduler: Scheduler, name: str, threads: int) -> None:
        self._scheduler = scheduler
        self._process = scheduler.current.process
        self._name = name
        self._threads = threads
        self._jobs: list[Callable[[], None]] = []
        self._running = 0

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        future = Future[Any]()

        def run() -> None:
            try:
                answer = job()
            except Died:
                raise
            except BaseException as error:  # noqa: BLE001 - as the real pool
                future.set_exception(error)
            else:
                future.set_result(answer)

        future.set_running_or_notify_cancel()
        self._jobs.append(run)
        if self._running < self._threads:
            self._running += 1
            self._scheduler.spawn(self._process, self._work, self._name)
        return future

    def _work(self) -> None:
        try:
            while self._jobs:
                self._jobs.pop(0)()
        finally:
            self._running -= 1

    def wait(self) -> None:
        self._scheduler.wait(lambda: not self._jobs and not self._running)


def _get(cached: Any, instance: Any, owner: Any = None) -> Any:
    """The value of a cached property as from Python 3.12 on: without the lock that 3.11 holds while it is computed."""
    if instance is None:
        return cached
    if cached.attrname not in instance.__dict__:
        instance.__dict__[cached.attrname] = cached.func(instance)
    return instance.__dict__[cached.attrname]


@contextmanager
def simulated(scheduler: Scheduler, clocks: Clocks, names: Callable[[], int]) -> Iterator[None]:
    """While entered, threads of `scheduler` get its time, its locks and pools; `names` gives the bits of a UUID."""
    of_pool: dict[int, _Pool] = {}

    def inside(simulation: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: (simulation if scheduler.is_inside else real)(*given, **named)

    def lock() -> Lock:
        return Lock(scheduler)

    def rlock() -> Lock:
        made = Lock(scheduler)
        made.reentrant = True
        return made

    def submit(pool: ThreadPoolExecutor, job: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        if getattr(pool, "_shutdown"):  # noqa: B009 - as the real pool
            raise RuntimeError("cannot schedule new futures after shutdown")
        if id(pool) not in of_pool:
            threads, name = getattr(pool, "_max_workers"), getattr(pool, "_thread_name_prefix")  # noqa: B009
            of_pool[id(pool)] = _Pool(scheduler, name, threads)
            kept.append(pool)  # its id shall not be another's
        return of_pool[id(pool)].submit(lambda: job(*given, **named))

    def shutdown(pool: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False) -> None:
        setattr(pool, "_shutdown", True)  # noqa: B010
        if wait and id(pool) in of_pool:
            of_pool[id(pool)].wait()

    kept: list[ThreadPoolExecutor] = []
    patches: list[tuple[Any, str, Callable[..., Any]]] = [
        (time, "time", clocks.wall),
        (time, "monotonic", clocks.monotonic),
        (time, "perf_counter", clocks.monotonic),
        (time, "sleep", lambda seconds: scheduler.wait(None, max(seconds, 0.0))),
        (threading, "Lock", lock),
        (threading, "RLock", rlock),
        (threading, "Condition", lambda given=None: Condition(scheduler, given or rlock())),
        (random, "uniform", lambda low, high: low + (high - low) * scheduler.random.random()),
        (uuid, "uuid4", lambda: uuid.UUID(int=names(), version=4)),
        (functools.cached_property, "__get__", _get),
        (pools.ThreadPoolExecutor, "submit", submit),
        (pools.ThreadPoolExecutor, "shutdown", shutdown),
    ]
    undo = [mock.patch.object(where, name, inside(simulation, getattr(where, name))) for where, name, simulation in patches]
    for patch in undo:
        patch.start()
    try:
        yield
    finally:
        for patch in undo:
            patch.stop()
