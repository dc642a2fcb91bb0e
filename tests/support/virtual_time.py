"""An event loop whose seconds pass at once: while nothing is ready, its clock moves on to the next timer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

# Seconds since 1970 at the beginning of such a time.
EPOCH = 1_700_000_000.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """For coroutines that wait for each other and for time alone, not for sockets or threads."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = 0.0  # else what is due within it runs early, and may ask for the same time again for ever

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        inside: Any = self
        if not inside._ready and inside._scheduled:
            self._now = max(self._now, math.nextafter(inside._scheduled[0]._when, math.inf))
        super()._run_once()  # type: ignore[misc]


def now() -> float:
    """Seconds since 1970, by the running loop."""
    return EPOCH + asyncio.get_running_loop().time()


def run_virtual(story: Coroutine[Any, Any, Result]) -> Result:
    """Run it to its end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)
