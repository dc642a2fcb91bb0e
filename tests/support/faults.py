"""Faults on purpose."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from streamtopology.jobs.local.standalone import LocalCluster


def kill_executor(cluster: LocalCluster, slot: str) -> None:
    """kill -9 of the slot's executor and its Python processes, not of the worker that will start another."""
    for pid in cluster.processes(slot):
        with suppress(FileNotFoundError, ProcessLookupError):  # killed with the one before it
            command = Path("/proc", str(pid), "cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in command or b"streamtopology.jobs.spark.worker_daemon" in command:
                os.kill(pid, signal.SIGKILL)


def kill_python(cluster: LocalCluster, slot: str) -> int:
    """kill -9 of the slot's Python workers and the daemon that forks them; how many there were."""
    killed = 0
    for pid in cluster.processes(slot):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"streamtopology.jobs.spark.worker_daemon" in Path("/proc", str(pid), "cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                killed += 1
    return killed
