"""CPU time of the parts of a program, by calls that are replaced while it is measured: profilers slow small calls most."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar
from unittest import mock

# A call by where it is looked up, a class or a module, and its name there.
Call = tuple[object, str]

P = ParamSpec("P")
Result = TypeVar("Result")


class PartTimes:
    """CPU seconds of one thread by part. What a part calls of another part counts for that one alone.

    `clock`: the thread's seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._inner: list[float] = []

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
            yield

    def timed(self, part: str, call: Callable[P, Result]) -> Callable[P, Result]:
        """`call`, whose time counts for `part`."""

        @wraps(call)
        def measured(*args: P.args, **kwargs: P.kwargs) -> Result:
            self._inner.append(0.0)
            began = self._clock()
            try:
                return call(*args, **kwargs)
            finally:
                seconds = self._clock() - began
                self._seconds[part] += seconds - self._inner.pop()
                if self._inner:
                    self._inner[-1] += seconds

        return measured
