"""For how long rows between executors keep links busy, by when envelopes are sent and when they come. Pure.

Hosts' clocks differ. But the quickest of a sender's small envelopes took next to no time, and what another takes more is the
time of the links. A worker that waits for a slow instance does not wait for links: that envelope was sent late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# A smaller envelope takes as long as any message does, and not for its rows.
LEAST_BYTES = 1 << 16

# Seconds by which two clocks may part in a second.
DRIFT = 5e-5


@dataclass(frozen=True)
class Way:
    """An envelope's way from another worker. `sent_at`: by the sender's clock, `came_at` by ours, in seconds."""

    sender: str
    sent_at: float
    came_at: float
    size: int

    @property
    def seconds(self) -> float:
        """How long it took, but for the difference between the two clocks."""
        return self.came_at - self.sent_at


class LinkWaits:
    """What a worker learns of its links: by sender, the seconds of its quickest envelope, and when that came."""

    def __init__(self) -> None:
        self._quickest: dict[str, tuple[float, float]] = {}

    def seconds(self, ways: Iterable[Way], began_at: float) -> float | None:
        """How long a stage, waiting since `began_at`, has waited for links.

        None where no envelope is large enough to tell, or its sender has not sent a small one yet.
        """
        waited: float | None = None
        for way in ways:
            least = self._least(way)
            if way.size < LEAST_BYTES or least is not None:
                if least is None or way.seconds < least:
                    self._quickest[way.sender] = way.seconds, way.came_at
                if least is not None and way.size >= LEAST_BYTES:
                    waited = max(waited or 0.0, min(way.came_at - began_at, way.seconds - least))
        return waited

    def forget_others(self, senders: Iterable[str]) -> None:
        """Keep what is known of these alone."""
        self._quickest = {sender: self._quickest[sender] for sender in senders if sender in self._quickest}

    def _least(self, way: Way) -> float | None:
        """What the quickest would take now, by clocks that may have parted since."""
        if way.sender not in self._quickest:
            return None
        seconds, at = self._quickest[way.sender]
        return seconds + DRIFT * (way.came_at - at)
