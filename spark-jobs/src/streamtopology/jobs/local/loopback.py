"""Loopback addresses of a cluster's own, 127.x.y.*: clusters run side by side, and each executor has its own host."""

from __future__ import annotations

import random
import socket
from types import TracebackType
from typing import Self


class Subnet:
    """A 127.x.y that no other live cluster of this machine uses.

    An abstract Unix socket named after it is the lock: it lives in the same network namespace as the addresses, and the
    kernel drops it with its owner.
    """

    MOST_HOSTS = 240
    _TRIES = 1000

    def __init__(self, prefix: str, lock: socket.socket) -> None:
        self.hosts = self._hosts_of(prefix)
        self._lock = lock

    @property
    def descriptor(self) -> int:
        """A process that inherits it holds the subnet, too."""
        return self._lock.fileno()

    @classmethod
    def hosts_beside(cls, *taken: str) -> list[str]:
        """The other hosts of the subnet that has those that are `taken`."""
        return [host for host in cls._hosts_of(taken[0].rpartition(".")[0]) if host not in taken]

    @classmethod
    def _hosts_of(cls, prefix: str) -> list[str]:
        return [f"{prefix}.{10 + index}" for index in range(cls.MOST_HOSTS)]

    @classmethod
    def take(cls) -> Self:
        """Take a free subnet until `close`. Raises OSError if none is free."""
        for _ in range(cls._TRIES):
            prefix = f"127.{random.randint(1, 254)}.{random.randint(0, 254)}"
            lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                lock.bind(f"\0streamtopology-{prefix}")
            except OSError:  # another cluster's
                lock.close()
            else:
                return cls(prefix, lock)
        raise OSError("no loopback subnet 127.x.y is free for another cluster")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._lock.close()
