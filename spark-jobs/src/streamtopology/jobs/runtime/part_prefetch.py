"""The prefetch of the next part of a range, just before the part that runs ends, as of the next range (decision 18)."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_RECENT_PARTS = 8
_MARGIN_SECONDS = 0.02


class PartPrefetch:
    """`reading_seconds`: the time that sources take for a part. Close it when nothing runs any more."""

    def __init__(self, reading_seconds: Callable[[], float]) -> None:
        self._reading_seconds = reading_seconds
        self._took: deque[float] = deque(maxlen=_RECENT_PARTS)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="part-prefetch")

    @contextmanager
    def before_the_end(self, prefetch: Callable[[], None]) -> Iterator[None]:
        """While entered, a part runs: `prefetch` is called once, in a thread of its own, when it is about to end.

        Not called before it is known how long a part takes. Raises what `prefetch` raises.
        """
        started, over = time.monotonic(), threading.Event()
        waiting = self._thread.submit(self._call, prefetch, over) if self._took else None
        try:
            yield
        finally:
            over.set()
            if waiting is not None:
                waiting.result()
        self._took.append(time.monotonic() - started)

    def close(self) -> None:
        self._thread.shutdown()

    def _call(self, prefetch: Callable[[], None], over: threading.Event) -> None:
        if not over.wait(max(statistics.median(self._took) - self._reading_seconds() - _MARGIN_SECONDS, 0.0)):
            prefetch()
