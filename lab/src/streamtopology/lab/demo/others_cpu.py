"""The cores that other programs use while the demo runs."""

from __future__ import annotations

from streamtopology.lab.bench.cpu_times import CpuTimes


def others_cores(before: CpuTimes, after: CpuTimes) -> float:
    """The cores that other programs used between two times, on average."""
    used = (after.machine - before.machine) - (after.own - before.own)
    return max(0.0, used / (after.at - before.at))
