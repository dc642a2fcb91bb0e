"""Whose a cluster is that can outlive its driver: its keeper's, the supervisor, as long as that waits for another driver.

As in `cleanup`, only the standard library is imported.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

_OWNER = "owner"
# What a successor needs to know of the cluster.
KEPT = "kept.json"


def keeping(name: str) -> socket.socket:
    """Keep the cluster `name` until the socket is closed, or this process has ended. Raises OSError if another one does."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(f"\0{_lock_of(name)}")
    except OSError:
        lock.close()
        raise
    return lock


def is_kept(name: str) -> bool:
    """True if a keeper lives."""
    return any(line.endswith(f"@{_lock_of(name)}") for line in Path("/proc/net/unix").read_text().splitlines())


def _lock_of(name: str) -> str:
    return f"{name}-kept"


def own(directory: Path) -> None:
    """Make this process the owner of the cluster in `directory`, whose owner has died."""
    unseen = directory / f".{_OWNER}.{os.getpid()}"
    unseen.write_text(str(os.getpid()))
    unseen.replace(directory / _OWNER)


def withdraw(directory: Path) -> None:
    """Leave nothing to take over: a process that makes itself the owner, and then finds nothing, is none."""
    (directory / KEPT).unlink(missing_ok=True)


def owner_after(dead: int, directory: Path) -> int | None:
    """The process that has made itself the owner since `dead` was."""
    with suppress(OSError, ValueError):
        owner = int((directory / _OWNER).read_text())
        return None if owner == dead else owner
    return None
