"""Faults on purpose."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from streamtopology.jobs.local.local_cluster import LocalCluster


def kill_executor(cluster: LocalCluster, slot: str) -> None:
    """kill -9 of the slot's executor and its Python processes, not of the worker that will start another."""
    for pid in cluster.processes(slot):
        with suppress(FileNotFoundError, ProcessLookupError):  # killed with the one before it
            command = Path("/proc", str(pid), "cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in command or b"streamtopology.jobs.spark.worker_daemon" in command:
                os.kill(pid, signal.SIGKILL)


def stop_python_workers(cluster: LocalCluster, slot: str) -> int:
    """Let the slot's Python workers stand still, not the daemon that forks them; how many there are."""
    daemons = {pid for pid in cluster.processes(slot) if b"streamtopology.jobs.spark.worker_daemon" in _file(pid, "cmdline")}
    workers = [pid for pid in daemons if int(_file(pid, "stat").rpartition(b")")[2].split()[1]) in daemons]
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    return len(workers)


def _file(pid: int, name: str) -> bytes:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path("/proc", str(pid), name).read_bytes()
    return b""


def kill_python(cluster: LocalCluster, slot: str) -> int:
    """kill -9 of the slot's Python workers and the daemon that forks them; how many there were."""
    killed = 0
    for pid in cluster.processes(slot):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"streamtopology.jobs.spark.worker_daemon" in Path("/proc", str(pid), "cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                killed += 1
    return killed
