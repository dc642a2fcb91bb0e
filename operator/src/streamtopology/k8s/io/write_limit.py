"""A limit of the writes of each topology: no fault of ours, and no fight with others, floods an API server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamtopology.contract.errors import Unavailable
from streamtopology.k8s.io.queue import TopologyKey

# Writes at once: a topology of the most classes is made by a hundred, with the records of it.
LEAST_BURST = 200

# Further ones for each object that it has: every pod of a thousand may be resized, replaced and resized again.
PER_OBJECT = 4

# The time after which the allowance is whole again.
REFILL_SECONDS = 60.0


class WritesLimitedError(Unavailable):
    """A topology has used its writes up; the next one is due in `seconds`."""

    def __init__(self, key: TopologyKey, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"{key}: no write for {seconds:.0f} s, as too many were made; please report this")


@dataclass
class _Allowance:
    used: float
    at: float


class WriteLimit:
    """Counts the writes of each topology. `clock`: seconds since 1970."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._allowances: dict[TopologyKey, _Allowance] = {}

    def spend(self, key: TopologyKey, objects: int) -> None:
        """Count one more write of a topology with this number of objects. WritesLimitedError: it may not be made now."""
        burst, now = LEAST_BURST + PER_OBJECT * objects, self._clock()
        known = self._allowances.setdefault(key, _Allowance(0.0, now))
        known.used = max(known.used - max(now - known.at, 0.0) * burst / REFILL_SECONDS, 0.0)
        known.at = now
        if known.used + 1 > burst:
            raise WritesLimitedError(key, REFILL_SECONDS / 2)
        known.used += 1

    def forget(self, key: TopologyKey) -> None:
        """A topology is gone."""
        self._allowances.pop(key, None)
