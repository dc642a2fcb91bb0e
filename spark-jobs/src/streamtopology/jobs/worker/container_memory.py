"""The memory of the container that a worker runs in: its limit, and what counts against it.

It is read from the container's own cgroup, in an executor's pod alone: elsewhere several executors share one. What the kernel
can take back at once, file cache that nobody uses, does not count: so a kubelet counts, too.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from pathlib import Path

from streamtopology.contract import environment as variables
from streamtopology.jobs.plan.results import ContainerMemory

_CGROUPS = Path("/sys/fs/cgroup")

# By version of cgroups: what is used, the limit, and the line of memory.stat that has the unused file cache.
_VERSIONS = (
    ("memory.current", "memory.max", "memory.stat", "inactive_file"),
    ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes", "memory/memory.stat", "total_inactive_file"),
)

# A limit from here on is none: version 1 writes a number of pages where nothing is limited.
_UNLIMITED = 1 << 60


def container_memory() -> ContainerMemory | None:
    """The memory of this process's pod, read at most once a second; None without a limit, and outside of an executor's pod."""
    return _read_within(int(time.monotonic())) if variables.EXECUTOR_CLASS in os.environ else None


@lru_cache(maxsize=1)
def _read_within(_second: int) -> ContainerMemory | None:
    return read_container_memory(_CGROUPS)


def read_container_memory(cgroups: Path) -> ContainerMemory | None:
    """The memory of the container whose cgroup `cgroups` shows; None without a limit, or where nothing can be read."""
    for used, limit, figures, unused in _VERSIONS:
        try:
            most = (cgroups / limit).read_text().strip()
            if not most.isdigit() or int(most) >= _UNLIMITED:
                return None
            lines = dict(line.split() for line in (cgroups / figures).read_text().splitlines())
            return ContainerMemory(int((cgroups / used).read_text()) - int(lines[unused]), int(most))
        except (OSError, ValueError, KeyError):
            continue  # of the other version, not shown to us, or in a form that nobody knows: it is a figure, no more
    return None
