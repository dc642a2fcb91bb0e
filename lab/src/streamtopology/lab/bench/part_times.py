"""CPU time of the parts of a program, by calls that are replaced while it is measured: profilers slow small calls most."""

from __future__ import annotations

import gc
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar
from unittest import mock

# A call by where it is looked up, a class or a module, and its name there.
Call = tuple[object, str]

GARBAGE = "garbage collected"

P = ParamSpec("P")
Result = TypeVar("Result")


class PartTimes:
    """CPU seconds of one thread by part. What a part calls of another part counts for that one alone.

    So do collections of garbage, whichever part they interrupt. `clock`: the thread's seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._open: list[tuple[float, float]] = []  # of the parts that run: when each began, and the seconds of inner ones
        self._thread = threading.get_ident()

    def take(self) -> dict[str, float]:
        """Return the seconds since the last `take`."""
        taken = dict(self._seconds)
        self._seconds.clear()
        return taken

    @contextmanager
    def measuring(self, parts: Mapping[str, Sequence[Call]]) -> Generator[None]:
        """While entered, time these calls. Objects that keep a bound method must be made meanwhile."""
        with ExitStack() as undo:
            for part, calls in parts.items():
                for where, name in calls:
                    undo.enter_context(mock.patch.object(where, name, self.timed(part, getattr(where, name))))
            gc.callbacks.append(self._collects)
            undo.callback(gc.callbacks.remove, self._collects)
            yield

    def timed(self, part: str, call: Callable[P, Result]) -> Callable[P, Result]:
        """`call`, whose time counts for `part`."""

        @wraps(call)
        def measured(*args: P.args, **kwargs: P.kwargs) -> Result:
            self._begin()
            try:
                return call(*args, **kwargs)
            finally:
                self._end(part)

        return measured

    def _collects(self, phase: str, info: Mapping[str, int]) -> None:
        if self._open and threading.get_ident() == self._thread:
            self._begin() if phase == "start" else self._end(GARBAGE)

    def _begin(self) -> None:
        self._open.append((self._clock(), 0.0))

    def _end(self, part: str) -> None:
        began, inner = self._open.pop()
        seconds = self._clock() - began
        self._seconds[part] += seconds - inner
        if self._open:
            outer_began, of_inner = self._open[-1]
            self._open[-1] = outer_began, of_inner + seconds
