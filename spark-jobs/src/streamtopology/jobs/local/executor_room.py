"""The most executors that one machine can hold: more are refused before one is started."""

from __future__ import annotations

import os

from streamtopology.contract import formatting
from streamtopology.contract.errors import Unavailable
from streamtopology.jobs.local.loopback import Subnet

# Memory of a warm executor that holds no state, two JVMs and its Python processes (measured: 587 to 604 MiB).
EXECUTOR_BYTES = 600 << 20

# Of the machine's memory; the rest is for the driver, the operators' state and everybody else.
_SHARE = 0.75


class NoRoom(Unavailable):
    """This machine cannot hold as many executors."""


def machine_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def room(memory_bytes: int) -> int:
    """The most executors at a time on a machine with this memory: at least 1."""
    return max(1, min(Subnet.MOST_HOSTS, int(memory_bytes * _SHARE) // EXECUTOR_BYTES))


def refuse_too_many(executors: int, memory_bytes: int) -> None:
    """Raise NoRoom if a machine with this memory cannot hold that number of executors at a time."""
    most = room(memory_bytes)
    if executors > most:
        raise NoRoom(
            f"found {executors:,} executors, this machine has room for {most}: each takes "
            f"{formatting.size(EXECUTOR_BYTES)} of its {formatting.size(memory_bytes)} of memory before it holds anything; "
            "ask for fewer replicas, or run on a cluster"
        )
