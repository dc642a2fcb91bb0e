"""The queue of topologies to reconcile: each at most once at a time, now or later, again after a failure.

Events come in bursts, one for each pod of a topology. The queue holds names and not events, so a burst costs one pass. A
name that is added while its topology is being reconciled is handed out again afterwards, so no change is missed.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

# Seconds until a failed look is retried: doubled from the first to the longest.
FIRST_DELAY = 0.5
LONGEST_DELAY = 60.0


@dataclass(frozen=True, order=True)
class TopologyKey:
    """One topology of the cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Queue:
    """A controller's work queue. A key that is added while it is being worked on is handed out again afterwards."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds, as the event loop's."""
        self._clock = clock
        self._ready: dict[TopologyKey, None] = {}  # in order of arrival
        self._working: set[TopologyKey] = set()
        self._again: set[TopologyKey] = set()
        self._later: list[tuple[float, int, TopologyKey]] = []
        self._due: dict[TopologyKey, float] = {}
        self._failures: dict[TopologyKey, int] = {}
        self._held: set[TopologyKey] = set()
        self._order = itertools.count()
        self._moved_at = clock()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Keys that wait to be looked at now."""
        return len(self._ready)

    @property
    def stuck_seconds(self) -> float:
        """For how long no key was handed out and no look has ended, while keys wait; 0 without any."""
        return self._clock() - self._moved_at if self._ready else 0.0

    def add(self, key: TopologyKey) -> None:
        """Look at it as soon as a worker is free; after a failure that holds it back, at the end of its pause."""
        if key in self._held:
            return
        if key in self._working:
            self._again.add(key)
        else:
            if not self._ready:
                self._moved_at = self._clock()
            self._ready[key] = None
            self._wake.set()

    def add_after(self, key: TopologyKey, seconds: float) -> None:
        """Look at it in `seconds`; an earlier time that is already set stays."""
        due = self._clock() + seconds
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, next(self._order), key))
        self._wake.set()

    def done(self, key: TopologyKey) -> None:
        """End a look that succeeded."""
        self._failures.pop(key, None)
        self._release(key)

    def failed(self, key: TopologyKey, has_moved: bool = False, longest: float = LONGEST_DELAY, holds: bool = False) -> float:
        """End a look that failed: it is retried after the returned delay, longer each time; if that `holds`, not before it.

        A look that was no retry, as an event came during the pause, makes the pause no longer. One that has moved on before
        it failed (`has_moved`) begins again with the first delay.
        """
        is_retry = key not in self._due
        failures = self._failures.get(key, 0) + is_retry
        failures = self._failures[key] = 1 if has_moved else max(failures, 1)
        delay = min(FIRST_DELAY * 2 ** (failures - 1), longest)
        if holds:
            self._held.add(key)
            self._again.discard(key)
        self._release(key)
        self.add_after(key, delay)
        return delay

    def failures(self, key: TopologyKey) -> int:
        """The number of looks in a row that have failed."""
        return self._failures.get(key, 0)

    def forget(self, key: TopologyKey) -> None:
        """Remove a topology that is gone."""
        self._held.discard(key)
        self._ready.pop(key, None)
        self._again.discard(key)
        self._due.pop(key, None)
        self._failures.pop(key, None)

    async def take(self) -> TopologyKey:
        """The next key; it is the caller's until `done` or `failed`."""
        while True:
            self._move_due()
            if self._ready:
                key = next(iter(self._ready))
                del self._ready[key]
                self._working.add(key)
                self._moved_at = self._clock()
                return key
            self._wake.clear()
            pause = self._later[0][0] - self._clock() if self._later else None
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):  # Python 3.11's wait_for swallows a cancellation that comes with the event
                    await self._wake.wait()

    def _release(self, key: TopologyKey) -> None:
        self._moved_at = self._clock()
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _move_due(self) -> None:
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            if self._due.get(key) == due:  # else it was brought forward, or forgotten
                del self._due[key]
                self._held.discard(key)
                self.add(key)
