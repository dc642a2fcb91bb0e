"""Waiting for what other processes bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

# On a busy machine less would be a bet on its speed.
SHORTEST_CAP_SECONDS = 60.0


def eventually(what: Callable[[], bool], seconds: float = SHORTEST_CAP_SECONDS) -> None:
    """Return when `what` holds; fail when it does not within `seconds`, which is only there so that a test ends."""
    assert seconds >= SHORTEST_CAP_SECONDS, f"a cap of {seconds:.0f} s bets on the machine's speed"
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"did not come about within {seconds:.0f} s"
        time.sleep(0.05)
