"""Chooses what holds executors to their CPU here: cgroups where we may make them, else the duty cycle, else nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from streamtopology.jobs.local.cgroups import CgroupsUnavailable, make_cpu_cgroups
from streamtopology.jobs.local.claim import members
from streamtopology.jobs.local.dutycycle import DutyCycle, duty_cycle_works


class CpuLimiter(Protocol):
    """Holds groups of processes (slots) to a number of cores and counts what they use."""

    @property
    def kind(self) -> str: ...
    @property
    def roots(self) -> tuple[Path, ...]:
        """The cgroup folders that must be removed in the end."""
        ...

    def add(self, slot: str) -> tuple[Path, ...]:
        """Make the slot's group, unlimited; a process joins it by writing its id into each of the files returned."""
        ...

    def limit(self, slot: str, cpu: float | None) -> None:
        """Let the slot's processes together use `cpu` cores from now on (None: as many as they like)."""
        ...

    def cpu_seconds(self, slot: str) -> float:
        """CPU seconds used by the slot's processes so far, those that have ended included."""
        ...

    def close(self) -> None:
        """Stop limiting."""
        ...


class Unlimited:
    """No limits and no accounting: the last resort."""

    kind = "nothing: executors run unlimited"
    roots: tuple[Path, ...] = ()

    def add(self, slot: str) -> tuple[Path, ...]:
        return ()

    def limit(self, slot: str, cpu: float | None) -> None:
        return

    def cpu_seconds(self, slot: str) -> float:
        return float("nan")

    def close(self) -> None:
        return


def best_limiter(cluster: str, warn: Callable[[str], None]) -> CpuLimiter:
    """The most exact limiter to be had for the cluster of that name; `warn` gets a sentence when it is a lesser one."""
    try:
        return make_cpu_cgroups(cluster)
    except CgroupsUnavailable as reason:
        if duty_cycle_works():
            warn(f"no CPU cgroups here ({reason}): executors are limited by stopping and continuing their processes")
            return DutyCycle(partial(members, cluster))
        warn(
            f"WARNING: executors run WITHOUT CPU limits, all are equally fast: no CPU cgroups here ({reason}), "
            "and the CPU time of other processes cannot be read"
        )
        return Unlimited()
