"""A tiny process that outlives its cluster's owner and removes what the owner held: kill -9 leaves nothing behind.

    python -m streamtopology.jobs.local.supervisor OWNER_PID NAME DIRECTORY [CGROUP ...]

It waits for its standard input to close or for the owner to die, whichever is first: a fork of the owner may hold the pipe
open.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

from streamtopology.jobs.local.claim import Claim


def main(arguments: list[str]) -> None:
    owner, name, directory, *cgroups = arguments
    waiting = select.poll()
    waiting.register(sys.stdin, select.POLLIN | select.POLLHUP)
    try:
        waiting.register(os.pidfd_open(int(owner)), select.POLLIN)
    except ProcessLookupError:  # the owner died before we came
        pass
    else:
        waiting.poll()
    Claim(name, Path(directory), tuple(Path(cgroup) for cgroup in cgroups)).sweep()


if __name__ == "__main__":
    main(sys.argv[1:])
