"""Kills its process group when its standard input closes or its owner dies, then removes what the group held.

    python -S keeper.py OWNER_PID FOLDER [CGROUP ...]

A process of its own, because an owner that is killed by force (kill -9) cleans nothing up itself.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_SECONDS = 20  # for the kernel to tear down what was killed


def main(owner: int, folder: Path, cgroups: list[Path]) -> None:
    waiting = select.poll()
    waiting.register(sys.stdin, select.POLLIN | select.POLLHUP)
    try:
        waiting.register(os.pidfd_open(owner), select.POLLIN)
    except ProcessLookupError:  # the owner died before we came
        pass
    else:
        waiting.poll()
    deadline = time.monotonic() + _SECONDS
    while others := list(_others_of_group()):
        for process in others:
            _kill(process)
        _pause(deadline, f"processes {others} do not end")
    for cgroup in cgroups:
        _remove_cgroup(cgroup, deadline)
    shutil.rmtree(folder)


def _others_of_group() -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        process = int(stat.parent.name)
        if int(group) == os.getpgrp() and state != "Z" and process != os.getpid():
            yield process


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def _remove_cgroup(cgroup: Path, deadline: float) -> None:
    """A cgroup is removed from the leaves up, when the last of its processes is gone."""
    while cgroup.exists():
        for directory in sorted((found.parent for found in cgroup.rglob("cgroup.procs")), reverse=True):
            try:
                directory.rmdir()
            except OSError:  # busy: killed processes are still being torn down
                _pause(deadline, f"cgroup {directory} stays busy")


def _pause(deadline: float, problem: str) -> None:
    if time.monotonic() > deadline:
        sys.exit(f"cannot clean up after a Kubernetes of the tests: {problem}")
    time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), [Path(argument) for argument in sys.argv[3:]])
