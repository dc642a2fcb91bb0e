"""The time by the API server's clock, which dates the objects that we observe.

Pods are created, evicted and deleted at times of the API server's host; conditions are dated by the replica that led
then, perhaps on another host. An age, now minus such a time, is only right by one clock. So `now` is the server's, as far
as the `Date` of its answers tells: to the second.
"""

from __future__ import annotations

from collections.abc import Callable
from email.utils import parsedate_to_datetime

# A `Date` has whole seconds, and an answer takes its time: below this the server's clock is taken for the known one.
UNSURE_SECONDS = 2.0


class ServerClock:
    """Seconds since 1970 by the API server's clock; by ours until it has answered."""

    def __init__(self, own: Callable[[], float]) -> None:
        """`own`: seconds since 1970 by the clock of this host."""
        self.own = own
        self._ahead = 0.0

    def now(self) -> float:
        return self.own() + self._ahead

    def hear(self, date: str | None) -> None:
        """An answer came with this header `Date`; None, or one that is no date, is passed over."""
        try:
            served = parsedate_to_datetime(date or "").timestamp() + 0.5
        except ValueError:
            return
        ahead = served - self.own()
        if abs(ahead - self._ahead) > UNSURE_SECONDS:
            self._ahead = ahead
