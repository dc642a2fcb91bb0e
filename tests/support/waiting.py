"""Waiting for what other processes bring about."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(what: Callable[[], bool], seconds: float = 20) -> None:
    """Return when `what` holds; fail when it does not within `seconds`, which is only there so that a test ends."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"did not come about within {seconds:.0f} s"
        time.sleep(0.05)
