"""The CPU of a peer's workers: a cgroup for each, of which the peer's script knows the files that a process joins it by."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from streamtopology.jobs.local.cgroups import CgroupsUnavailable, make_cpu_cgroups
from streamtopology.lab.arena.engines import EngineMissing

SECONDS_TO_END = 10


class WorkerGroups:
    """The cgroups of the workers `slots` below `name`; those that are there already are taken as they are."""

    def __init__(self, name: str, slots: Sequence[str]) -> None:
        try:
            self._groups = make_cpu_cgroups(name)
        except CgroupsUnavailable as reason:
            raise EngineMissing(f"its CPU cannot be limited here: {reason}") from reason
        self._slots = tuple(slots)

    def make(self, cpus: Sequence[float]) -> list[list[str]]:
        """Make a group of each of `cpus` cores; the files to join each by."""
        joined = [[str(file) for file in self._groups.add(slot)] for slot in self._slots]
        for worker, cpu in enumerate(cpus):
            self.limit(worker, cpu)
        return joined

    def limit(self, worker: int, cpu: float) -> None:
        self._groups.limit(self._slots[worker], cpu)

    def cpu_seconds(self) -> list[float]:
        """What each worker has used so far."""
        return [self._groups.cpu_seconds(slot) for slot in self._slots]

    def remove(self) -> None:
        for root in self._groups.roots:
            for folder in (*(root / slot for slot in self._slots), root):
                _remove(folder)


@contextmanager
def limited(name: str, cpus: Sequence[float]) -> Iterator[tuple[WorkerGroups, list[list[str]]]]:
    """While entered, a cgroup of each of `cpus` cores, and the files to join it by. Raises EngineMissing."""
    groups = WorkerGroups(name, [f"worker-{number}" for number in range(len(cpus))])
    try:
        yield groups, groups.make(cpus)
    finally:
        groups.remove()


def _remove(folder: Path) -> None:
    """Remove a cgroup, whose killed processes may need a moment to be gone."""
    until = time.monotonic() + SECONDS_TO_END
    while time.monotonic() < until:
        with suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.1)
