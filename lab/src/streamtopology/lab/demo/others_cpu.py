"""The cores that other programs use while each run of the demo runs: where these are many or differ, a ratio says little."""

from __future__ import annotations

from streamtopology.lab.bench.cpu_times import CpuTimes

# The difference of two runs, as a share of the machine, from which their ratio is not to be trusted.
_MUCH = 0.1
# What others use in one run, as a share of the machine, from which the same holds: their load comes and goes within a run, too.
_MOST = 0.5


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
