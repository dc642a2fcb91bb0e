"""A tiny process that outlives its cluster's owner and removes the cluster: kill -9 of the owner leaves nothing behind.

    python -m streamtopology.jobs.local.supervisor OWNER_PID NAME DIRECTORY [CGROUP ...]

It waits until its standard input closes or the owner dies: a fork of the owner may hold the pipe open.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

from streamtopology.jobs.local.cleanup import ClusterResources


def main(arguments: list[str]) -> None:
    owner, name, directory, *cgroups = arguments
    waiting = select.poll()
    waiting.register(sys.stdin, select.POLLIN | select.POLLHUP)
    try:
        waiting.register(os.pidfd_open(int(owner)), select.POLLIN)
    except ProcessLookupError:  # the owner died before this process started
        pass
    else:
        waiting.poll()
    ClusterResources(name, Path(directory), tuple(Path(cgroup) for cgroup in cgroups)).sweep()


if __name__ == "__main__":
    main(sys.argv[1:])
