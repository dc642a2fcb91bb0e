"""Keeps one executor's process running while drivers come and go: starts it again when it has ended.

It imports neither Spark nor numpy: in a pod the executor lacks all memory that its launcher uses.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

LOOK_SECONDS = 0.5
REPEAT_SECONDS = 10.0
# Time for a decommissioned executor to finish its task; then it is terminated, and 5 s later killed.
DRAIN_SECONDS = 20.0

_KILL_SECONDS = DRAIN_SECONDS + 5.0


def answers(host: str, port: int) -> bool:
    """True if a process listens there."""
    try:
        with socket.create_connection((host, port), timeout=2.0):
            return True
    except OSError:
        return False


@dataclass(frozen=True)
class Pauses:
    """Seconds between two lives: `first` after a life of `short_life` or longer, doubled for each shorter one in a row."""

    first: float = 0.5
    longest: float = 30.0
    short_life: float = 20.0

    def short(self, lives: Sequence[float]) -> int:
        """How many of the newest lives (seconds, newest last) were short, without one between them that lasted."""
        count = 0
        for life in reversed(lives):
            if life >= self.short_life:
                break
            count += 1
        return count

    def after(self, lives: Sequence[float]) -> float:
        """The seconds to wait before the next start."""
        return min(self.first * 2 ** max(self.short(lives) - 1, 0), self.longest)


class Process(Protocol):
    """A process, as `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Launcher:
    """Calls `start` again and again, each time once the driver `answers`, and waits for the end of the process.

    `driver` names it; `notify` gets a sentence for each start and end.
    """

    def __init__(
        self,
        start: Callable[[], Process],
        driver_answers: Callable[[], bool],
        driver: str,
        notify: Callable[[str], None],
        pauses: Pauses = Pauses(),
    ) -> None:
        self._start = start
        self._driver_answers = driver_answers
        self._driver = driver
        self._notify = notify
        self._pauses = pauses
        self._ending = threading.Event()
        self._process: Process | None = None
        self.lives: tuple[float, ...] = ()
        """Seconds that the newest processes lived, newest last."""
        self.code: int | None = None
        """With which the last one ended."""

    @property
    def short_lives(self) -> int:
        """How many of the newest processes in a row ended soon after their start."""
        return self._pauses.short(self.lives)

    def run(self) -> None:
        while self._await_driver():
            self._notify(f"starting an executor for the driver at {self._driver}")
            began = time.monotonic()
            self.code = self._run_once()
            self.lives = (*self.lives[-8:], time.monotonic() - began)
            if self._ending.is_set():
                self._notify(f"the executor ended with code {self.code} after {self.lives[-1]:.0f} s, as requested")
                return
            pause = self._pauses.after(self.lives)
            self._notify(
                f"the executor ended with code {self.code} after {self.lives[-1]:.0f} s; starting it again in {pause:g} s"
            )
            self._ending.wait(pause)

    def no_more(self) -> None:
        """Start no other process; the one that runs is somebody else's to end."""
        self._ending.set()

    def end(self) -> None:
        """Let the executor finish its task and move its blocks (SIGPWR decommissions it), and start no other."""
        self.no_more()
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGPWR)
        for seconds, act in ((DRAIN_SECONDS, process.terminate), (_KILL_SECONDS, process.kill)):
            timer = threading.Timer(seconds, act)
            timer.daemon = True
            timer.start()

    def _run_once(self) -> int:
        """Start the process and wait for its end."""
        self._process = self._start()
        if self._ending.is_set():  # `end` was called during the start
            self.end()
        code = self._process.wait()
        self._process = None
        return code

    def _await_driver(self) -> bool:
        """Wait until the driver answers. Returns False if no more executors are to be started."""
        began = shown = time.monotonic()
        while not self._ending.is_set():
            if self._driver_answers():
                return True
            now = time.monotonic()
            if now - shown >= REPEAT_SECONDS:
                shown = now
                self._notify(f"waiting for the driver at {self._driver}, {now - began:.0f} s so far")
            self._ending.wait(LOOK_SECONDS)
        return False
