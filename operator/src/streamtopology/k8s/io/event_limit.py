"""A limit of events: what flaps fills no namespace with them. (Equal events are counted in one, see apply.py.)"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from streamtopology.k8s.decide.steps import Event
from streamtopology.k8s.io.queue import TopologyKey

# Events of one reason that a topology, or a snapshot, may post at once.
BURST = 25

# The interval in which one more may be.
REFILL_SECONDS = 60.0


@dataclass
class _Allowance:
    left: float
    at: float
    withheld: int = 0


class EventLimit:
    """Decides which events are posted. Times are in seconds."""

    def __init__(self) -> None:
        self._allowances: defaultdict[TopologyKey, dict[str, _Allowance]] = defaultdict(dict)

    def admits(self, key: TopologyKey, reason: str, now: float) -> int | None:
        """The number of events of this reason withheld since the last one posted; None if this one is withheld, too."""
        known = self._allowances[key].setdefault(reason, _Allowance(BURST, now))
        known.left = min(known.left + max(now - known.at, 0.0) / REFILL_SECONDS, BURST)
        known.at = now
        if known.left < 1:
            known.withheld += 1
            return None
        known.left -= 1
        withheld, known.withheld = known.withheld, 0
        return withheld

    def admitted(self, key: TopologyKey, event: Event, now: float) -> Event | None:
        """The event to post, which says how many like it were withheld; None if this one is withheld, too."""
        withheld = self.admits(key, event.reason, now)
        if not withheld:
            return None if withheld is None else event
        return replace(event, message=f"{event.message} ({withheld} more like it were only logged)")

    def forget(self, key: TopologyKey) -> None:
        """Its topology or snapshot is gone."""
        self._allowances.pop(key, None)
