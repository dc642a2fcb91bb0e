"""Executors that fit a machine: most of its cores, in equal parts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MOST_EXECUTORS = 8
# Of the cores; the rest is for the driver and for Spark.
_SHARE = 0.75
_DRIVER_GIB = 2


@dataclass(frozen=True)
class Machine:
    """Cores that this process may use, and GiB of memory."""

    cores: float
    memory_gib: float


@dataclass(frozen=True)
class Executors:
    """`replicas` executors of `millicores` each."""

    replicas: int
    millicores: int


def this_machine() -> Machine:
    cores = float(len(os.sched_getaffinity(0)))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Machine(min(cores, _cgroup_cores() or cores), memory)


def executors_for(machine: Machine) -> Executors:
    """At least two executors, as with one there is nothing to balance; of 1 GiB each.

    >>> executors_for(Machine(2, 16)), executors_for(Machine(16, 64))
    (Executors(replicas=2, millicores=750), Executors(replicas=8, millicores=1000))
    """
    by_memory = int(machine.memory_gib - _DRIVER_GIB)
    replicas = max(2, min(MOST_EXECUTORS, by_memory, int(machine.cores) - 1))
    millicores = int(1000 * machine.cores * _SHARE / replicas)
    return Executors(replicas, max(50, min(1000, millicores // 50 * 50)))


def _cgroup_cores() -> float | None:
    """The CPU limit of this container, if there is one (cgroup version 2)."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None
