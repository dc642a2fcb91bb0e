"""The cores that other programs use while each run of the demo runs: where these are many or differ, a ratio says little."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
# The difference of two runs, as a share of the machine, from which their ratio is not to be trusted.
_MUCH = 0.1
# What others use in one run, as a share of the machine, from which the same holds: their load comes and goes within a run, too.
_MOST = 0.5


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


def others_cores(before: CpuTimes, after: CpuTimes) -> float:
    """The cores that other programs used between two times, on average."""
    used = (after.machine - before.machine) - (after.own - before.own)
    return max(0.0, used / (after.at - before.at))


def others_text(fixed: float, rerouted: float, cores: int) -> str:
    """A sentence on the cores that others used in both runs, and whether the ratio of these is to be trusted."""
    used = f"other programs used {fixed:.1f} of {cores} cores in the first run and {rerouted:.1f} in the second"
    if abs(rerouted - fixed) < _MUCH * cores and max(rerouted, fixed) < _MOST * cores:
        return used
    return f"{used}: the ratio of the two runs is not to be trusted; run the demo again on a quiet machine"
