"""For how long rows between executors keep links busy, by when envelopes are sent and when they come. Pure.

Hosts' clocks differ. But the quickest of a sender's envelopes took next to no time, and what another took more is the time of
the links. A worker that waits for a slow instance does not wait for links: that envelope was sent late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

# Newest envelopes of a sender among which the quickest is looked for: clocks drift by some milliseconds meanwhile.
KEPT = 64

# A smaller envelope takes as long as any message does, and not for its rows.
LEAST_BYTES = 1 << 16


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
    """What a worker learns of its links."""

    def __init__(self) -> None:
        self._taken: dict[str, deque[float]] = {}

    def seconds(self, ways: Iterable[Way], began_at: float) -> float | None:
        """How long a stage, waiting since `began_at`, has waited for links; None where no envelope is large enough to tell."""
        waited: float | None = None
        for way in ways:
            taken = self._taken.setdefault(way.sender, deque(maxlen=KEPT))
            taken.append(way.seconds)
            if way.size >= LEAST_BYTES:
                waited = max(waited or 0.0, min(way.came_at - began_at, way.seconds - min(taken)))
        return waited

    def forget_others(self, senders: Iterable[str]) -> None:
        """Keep what is known of these alone."""
        self._taken = {sender: self._taken[sender] for sender in senders if sender in self._taken}
