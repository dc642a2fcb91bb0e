"""Times of tasks, each by the monotonic clock of the host it ran on; clocks of different hosts have nothing in common."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Span:
    """From the start of a task to an end in it, in seconds of the monotonic clock that `clock` names."""

    clock: str
    began_at: float
    ended_at: float


@cache
def clock_of_this_host() -> str:
    """The name of this host's monotonic clock: processes and containers with the same name read the same clock."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return platform.node()
