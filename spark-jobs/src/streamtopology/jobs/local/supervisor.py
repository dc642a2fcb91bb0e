"""A tiny process that outlives its cluster's owner and removes the cluster: kill -9 of the owner leaves nothing behind.

    python -m streamtopology.jobs.local.supervisor SECONDS OWNER_PID NAME DIRECTORY [CGROUP ...]

It waits until its standard input closes or the owner dies: a fork of the owner may hold the pipe open. Then it waits for
SECONDS, 0 for a cluster that nobody can take over, for another process that makes itself the owner.
"""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import closing, nullcontext
from pathlib import Path

from streamtopology.jobs.local.cleanup import ClusterResources
from streamtopology.jobs.local.ownership import keeping, owner_after, withdraw

_LOOK_SECONDS = 0.05


def main(arguments: list[str]) -> None:
    seconds, owner, name, directory, *cgroups = arguments
    place = Path(directory)
    with closing(keeping(name)) if float(seconds) else nullcontext():
        _await_end(int(owner), sys.stdin.fileno())
        if float(seconds):
            _keep(int(owner), place, float(seconds))
        ClusterResources(name, place, tuple(Path(cgroup) for cgroup in cgroups)).sweep()


def _keep(owner: int, directory: Path, seconds: float) -> None:
    """Return when the cluster is nobody's for good: its folder has gone, or no owner has come for `seconds` after the last."""
    newest: int | None = owner if directory.exists() else None
    while newest is not None:
        owner = newest
        _await_end(owner)
        newest = _successor(owner, directory, time.monotonic() + seconds)


def _successor(dead: int, directory: Path, until: float) -> int | None:
    """The next owner. One that comes while this gives up finds nothing left to take over, or is seen here."""
    while directory.exists():
        gives_up = time.monotonic() > until
        if gives_up:
            withdraw(directory)
        successor = owner_after(dead, directory)
        if gives_up or successor is not None:
            return successor
        time.sleep(_LOOK_SECONDS)
    return None


def _await_end(process: int, *pipes: int) -> None:
    """Wait for the end of a process, or of what writes to one of `pipes`."""
    waiting = select.poll()
    for pipe in pipes:
        waiting.register(pipe, select.POLLIN | select.POLLHUP)
    try:
        waiting.register(os.pidfd_open(process), select.POLLIN)
    except OSError:  # it died before this process looked
        return
    waiting.poll()


if __name__ == "__main__":
    main(sys.argv[1:])
