"""Choice of the CPU limiter: cgroups if this user may make them, else the duty cycle, else none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from streamtopology.jobs.local.cgroups import THIS_MACHINE, CgroupsUnavailable, CgroupView, make_cpu_cgroups
from streamtopology.jobs.local.cleanup import members
from streamtopology.jobs.local.duty_cycle import DutyCycle, duty_cycle_works


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
        """Return the CPU seconds used by the slot's processes so far, including those that have ended."""
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


def best_limiter(
    cluster: str,
    warn: Callable[[str], None],
    view: CgroupView = THIS_MACHINE,
    can_stop: Callable[[], bool] = duty_cycle_works,
) -> CpuLimiter:
    """Return the most exact limiter for the cluster of that name; `warn` gets a sentence if it is not the kernel's.

    `can_stop`: if executors can be limited by stopping and continuing their processes.
    """
    try:
        return make_cpu_cgroups(cluster, view)
    except CgroupsUnavailable as reason:
        if can_stop():
            warn(f"no CPU cgroups here ({reason}): executors are limited by stopping and continuing their processes")
            return DutyCycle(partial(members, cluster))
        warn(
            f"WARNING: executors run WITHOUT CPU limits, all are equally fast: no CPU cgroups here ({reason}), "
            "and the CPU time of other processes cannot be read"
        )
        return Unlimited()
