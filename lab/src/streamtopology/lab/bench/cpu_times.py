"""The CPU that this program and all processes below it have used, and that of the whole machine."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds so far: of the whole machine, and of this program with all processes below it. `at`: monotonic seconds."""

    at: float
    machine: float
    own: float


def cpu_times(proc: Path = Path("/proc"), root: int | None = None) -> CpuTimes:
    """The times now, as `proc` has them. `root`: the topmost process that is ours (default: this one)."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, (proc / "stat").read_text().split()[1:9])
    ticks, below = dict[int, int](), defaultdict[int, list[int]](list)
    for file in proc.glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile; its parent has its time
            continue
        process = int(file.parent.name)
        ticks[process] = sum(map(int, fields[11:15]))  # with those of its children that have ended
        below[int(fields[1])].append(process)
    ours, found = 0, [os.getpid() if root is None else root]
    while found:
        process = found.pop()
        ours += ticks.get(process, 0)
        found += below[process]
    return CpuTimes(time.monotonic(), (user + nice + system + irq + softirq + steal) / _TICKS, ours / _TICKS)
