"""Several tasks at once, each in a process that was forked beforehand; without processes, in turn in this one."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from streamtopology.contract.errors import Unavailable

Task = TypeVar("Task")
Result = TypeVar("Result")
Advance = Callable[[float], None]


class WorkerEnded(Unavailable):
    """A worker's process ended before its task was done; the message has its exit code."""


class Workers(Generic[Task, Result]):
    """Entered while tasks are carried out.

    `carry_out` is what a process does with a task, given what to call with the share that is done; tasks, shares and results
    cross between processes, so they are plain values. `count` 0: no process, everything in this one.
    """

    def __init__(self, carry_out: Callable[[Task, Advance], Result], count: int) -> None:
        self._carry_out = carry_out
        self._count = count
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []

    def __enter__(self) -> Self:
        forked = multiprocessing.get_context("fork")
        for _ in range(self._count):
            ours, theirs = forked.Pipe()
            process = forked.Process(target=_work, args=(theirs, [*self._pipes, ours], self._carry_out), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()

    def results(self, tasks: Sequence[Task], advance: Advance) -> list[Result]:
        """Each task's result, in their order; `advance` is called with the share of all that is done. WorkerEnded."""
        shares = [0.0] * len(tasks)

        def advanced(index: int, share: float) -> None:
            shares[index] = share
            advance(sum(shares) / len(shares))

        if not self._pipes:
            return [self._carry_out(task, lambda share, at=at: advanced(at, share)) for at, task in enumerate(tasks)]
        return self._shared_out(tasks, advanced)

    def _shared_out(self, tasks: Sequence[Task], advanced: Callable[[int, float], None]) -> list[Result]:
        found: dict[int, Result] = {}
        left = list(enumerate(tasks))
        free, busy = list[Any](self._pipes), dict[Any, int]()
        while left or busy:
            while left and free:
                index, task = left.pop(0)
                pipe = free.pop()
                pipe.send(task)
                busy[pipe] = index
            for pipe in wait(list(busy)):
                done, value = self._received(pipe)
                if done:
                    found[busy[pipe]] = value
                    advanced(busy.pop(pipe), 1.0)
                    free.append(pipe)
                else:
                    advanced(busy[pipe], value)
        return [found[index] for index in range(len(tasks))]

    def _received(self, pipe: Any) -> tuple[bool, Any]:
        try:
            return pipe.recv()
        except EOFError:
            process = self._processes[self._pipes.index(pipe)]
            process.join()
            raise WorkerEnded(f"a process ended with exit code {process.exitcode} (-9: killed, out of memory?)") from None


def _work(pipe: Connection, inherited: Sequence[Connection], carry_out: Callable[[Any, Advance], Any]) -> None:
    """Carry out what comes until the sender ends, which shows once the ends `inherited` are closed here.

    Ctrl-C is the sender's to handle.
    """
    for end in inherited:
        end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            task = pipe.recv()
            pipe.send((True, carry_out(task, lambda share: pipe.send((False, share)))))
