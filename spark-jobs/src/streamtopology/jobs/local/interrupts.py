"""Ctrl-C and SIGTERM during a run: the first one stops it after its batch, a further one ends the process at once.

Only the standard library is imported: signals are caught before anything slow is loaded.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}

# A signal this soon after the first is the same one, passed on by a parent such as `make`, too.
_REPEATED_SECONDS = 0.5


class Interrupts:
    """The signals of one command. `leave` ends the process at once with an exit code; `clock` gives monotonic seconds.

    Last words that take longer than `last_words_seconds` are cut short.
    """

    def __init__(
        self,
        leave: Callable[[int], object] = os._exit,
        clock: Callable[[], float] = time.monotonic,
        last_words_seconds: float = 3.0,
    ) -> None:
        self.received: signal.Signals | None = None
        self._received_at = 0.0
        self._leave = leave
        self._clock = clock
        self._last_words_seconds = last_words_seconds
        self._stop: Callable[[], object] | None = None
        self.last_words: Callable[[], object] = lambda: None
        """Called before the process ends at once, while any other thread may be in the middle of anything."""

    @property
    def name(self) -> str:
        """The name of the signal that was received, as users know it."""
        return "" if self.received is None else NAMES[self.received]

    @property
    def exit_code(self) -> int:
        """The exit code after the signal that was received, as shells have it; 0 if there was none."""
        return 0 if self.received is None else 128 + self.received

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals while entered, in the main thread, as no other gets any; one that is ignored stays ignored."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        wanted = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup, or a script's `&`
        before = {number: signal.signal(number, self.take) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def stopping(self, stop: Callable[[], object]) -> Iterator[None]:
        """While entered, the first signal calls `stop`, in a thread of its own; without it a signal ends the process."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    def take(self, number: int, _: FrameType | None = None) -> None:
        """Handle a signal."""
        now = self._clock()
        is_first = self.received is None
        if not is_first and now - self._received_at < _REPEATED_SECONDS:
            return
        if is_first:
            self.received, self._received_at = signal.Signals(number), now
            logging.disable(logging.CRITICAL)  # py4j would log what breaks off now, with tracebacks
        if is_first and self._stop is not None:
            # Not here: the main thread may hold, right now, a lock that `stop` needs.
            threading.Thread(target=self._stop, name="interrupted", daemon=True).start()
        else:
            self.leave()

    def leave(self) -> None:
        """End the process at once, after `last_words`. The cluster's supervisor removes what it leaves behind."""
        words = threading.Thread(target=self.last_words, name="last-words", daemon=True)
        words.start()
        words.join(self._last_words_seconds)
        self._leave(self.exit_code)
