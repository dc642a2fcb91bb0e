"""Compaction in the background: a worker writes snapshots of the state of its instances, one after the other.

It reads and writes only files of the checkpoint. So it shares nothing with the batches but the worker's time, and needs no
lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from streamtopology.jobs.checkpoint import StateRef
from streamtopology.jobs.plan.results import Compacted

InstanceKey = tuple[str, str, int]  # (run, node, instance)
Work = Callable[[], None]
Background = Callable[[Work], object]


def at_once(work: Work) -> None:
    """Do `work` now: the task waits for it."""
    work()


def in_thread(work: Work) -> None:
    """Do `work` in a thread that ends with this process, whatever it is at."""
    threading.Thread(target=work, name="compaction", daemon=True).start()


class Compactor:
    """The compactions of one worker. `background` does one piece of work, and may return before that is done."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._running: InstanceKey | None = None
        self._done: dict[InstanceKey, Compacted] = {}

    def compacted(self, key: InstanceKey, held: StateRef, deltas: int, compact: Callable[[StateRef], str]) -> Compacted | None:
        """Return the snapshot of the first `deltas` of `held`, or why there is none; None while it is being made.

        It is begun as soon as the worker has nothing else to compact, with `compact`, which returns its path. What was begun
        before the instance was drained covers files that `held` no longer has: who adopts it compares.
        """
        if key not in self._done and self._running is None:
            covered = replace(held, deltas=held.deltas[:deltas])
            self._running = key
            self._background(lambda: self._run(key, covered, compact))
        return self._done.pop(key, None)

    def retain(self, is_here: Callable[[InstanceKey], bool]) -> None:
        """Forget what has become of instances that are not here any more."""
        for key in tuple(self._done):  # a copy: a compaction may end meanwhile
            if not is_here(key):
                self._done.pop(key, None)

    def _run(self, key: InstanceKey, covered: StateRef, compact: Callable[[StateRef], str]) -> None:
        try:
            self._done[key] = Compacted(covered, snapshot=compact(covered))
        except Exception as error:  # noqa: BLE001 - out of memory, too: the deltas are all there
            self._done[key] = Compacted(covered, failure=str(error) or type(error).__name__)
        finally:
            self._running = None
