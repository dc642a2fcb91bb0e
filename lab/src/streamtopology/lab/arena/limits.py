"""The CPU of a peer's workers: a cgroup for each, of which the peer's script knows the files that a process joins it by."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from streamtopology.jobs.local.cgroups import CgroupsUnavailable, make_cpu_cgroups
from streamtopology.lab.arena.engines import EngineMissing

SECONDS_TO_END = 10


@contextmanager
def limited(name: str, cpus: Sequence[float]) -> Iterator[list[list[str]]]:
    """While entered, a cgroup of each of `cpus` cores, as the files to join it by. Raises EngineMissing."""
    try:
        groups = make_cpu_cgroups(name)
    except CgroupsUnavailable as reason:
        raise EngineMissing(f"its CPU cannot be limited here: {reason}") from reason
    slots = [f"worker-{number}" for number in range(len(cpus))]
    try:
        joined = [[str(file) for file in groups.add(slot)] for slot in slots]
        for slot, cpu in zip(slots, cpus, strict=True):
            groups.limit(slot, cpu)
        yield joined
    finally:
        for root in groups.roots:
            for folder in (*(root / slot for slot in slots), root):
                _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a cgroup, whose killed processes may need a moment to be gone."""
    until = time.monotonic() + SECONDS_TO_END
    while time.monotonic() < until:
        with suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.1)
