"""Cleanup of all that a cluster holds in the system (processes, cgroups, a folder), however its owner ended.

All of it is found by the cluster's name, and the name states its owner, so that a later process can distinguish the
remains of a dead owner from the belongings of a living one without any register. Only the standard library is imported:
the supervisor must start at once.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from streamtopology.jobs.local.ownership import is_kept

CLUSTER_MARK = "STREAMTOPOLOGY_CLUSTER"
SLOT_MARK = "STREAMTOPOLOGY_SLOT"
SWEEP_SECONDS = 20.0

_NAME = re.compile(r"streamtopology-(?P<namespace>\d+)-(?P<pid>\d+)-(?P<start>\d+)-(?P<serial>\d+)")


class RemainsError(Exception):
    """Something of a cluster could not be removed."""


def new_cluster_name(serial: int) -> str:
    """Return the name of this process's `serial`-th cluster: pid namespace, pid and start time make it unique."""
    pid = os.getpid()
    return f"streamtopology-{_pid_namespace()}-{pid}-{_start_time(pid)}-{serial}"


def owner_is_dead(name: str) -> bool:
    """True if `name` was given in this pid namespace by a process that has ended."""
    match = _NAME.fullmatch(name)
    if match is None or int(match["namespace"]) != _pid_namespace():
        return False
    return _start_time(int(match["pid"])) != int(match["start"])


def members(name: str, slot: str | None = None) -> list[int]:
    """Return the ids of processes whose environment has the cluster's mark (and the slot's); children inherit the mark."""
    wanted = f"{CLUSTER_MARK}={name}".encode()
    wanted_slot = None if slot is None else f"{SLOT_MARK}={slot}".encode()
    found: list[int] = []
    for pid, marks in _marked_processes():
        if wanted in marks and (wanted_slot is None or wanted_slot in marks):
            found.append(pid)
    return found


def kill_members(name: str, slot: str) -> None:
    """Kill every process of a slot. Raises `RemainsError` when one resists for `SWEEP_SECONDS`."""
    deadline = time.monotonic() + SWEEP_SECONDS
    while alive := members(name, slot):
        if time.monotonic() > deadline:
            raise RemainsError(f"processes {sorted(alive)} of {name}, executor {slot}, do not end; kill them by hand")
        for pid in alive:
            _kill(pid)
        time.sleep(0.01)


@dataclass(frozen=True)
class ClusterResources:
    """A cluster's name, its folder, and the cgroups it made (one folder per hierarchy, slots below)."""

    name: str
    directory: Path
    cgroups: tuple[Path, ...]

    def sweep(self) -> None:
        """Kill every process of the cluster and remove its cgroups and folder; may be repeated.

        Raises `RemainsError` when something resists for `SWEEP_SECONDS`.
        """
        deadline = time.monotonic() + SWEEP_SECONDS
        while alive := self._processes():
            if time.monotonic() > deadline:
                raise RemainsError(f"processes {sorted(alive)} of {self.name} do not end; kill them by hand")
            for pid in alive:
                _kill(pid)
            time.sleep(0.01)
        while not self._remove_folders():
            if time.monotonic() > deadline:
                raise RemainsError(f"cannot remove {self.directory} or {[str(c) for c in self.cgroups]}")
            time.sleep(0.05)

    def _processes(self) -> set[int]:
        inside = {
            int(pid) for cgroup in self.cgroups for procs in cgroup.glob("**/cgroup.procs") for pid in _read(procs).split()
        }
        return inside.union(members(self.name))

    def _remove_folders(self) -> bool:
        shutil.rmtree(self.directory, ignore_errors=True)
        for cgroup in self.cgroups:
            for below in sorted(cgroup.glob("*/"), reverse=True):
                _remove_cgroup(below)
            _remove_cgroup(cgroup)
        return not any(path.exists() for path in (self.directory, *self.cgroups))


def sweep_dead_clusters(work_dir: Path, cgroup_parents: Iterable[Path]) -> list[str]:
    """Remove the remains of dead owners' clusters that nobody keeps: folders, cgroups, processes. Returns their names."""
    parents = tuple(cgroup_parents)
    names = {path.name for folder in (work_dir, *parents) if folder.is_dir() for path in folder.iterdir()}
    names.update(mark.partition(b"=")[2].decode() for _, marks in _marked_processes() for mark in marks)
    dead = sorted(name for name in names if owner_is_dead(name) and not is_kept(name))
    for name in dead:
        cgroups = tuple(parent / name for parent in parents if (parent / name).is_dir())
        ClusterResources(name, work_dir / name, cgroups).sweep()
    return dead


def _marked_processes() -> Iterable[tuple[int, set[bytes]]]:
    """Yield each of our processes with a mark in its environment, and its marks as `NAME=value`."""
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            environment = Path("/proc", entry, "environ").read_bytes()
        except OSError:  # ended meanwhile, or another user's
            continue
        if CLUSTER_MARK.encode() in environment:
            yield int(entry), {item for item in environment.split(b"\0") if item.startswith(b"STREAMTOPOLOGY_")}


def _start_time(pid: int) -> int | None:
    """Return the clock ticks from boot to the start of a process; None if it has ended (a zombie has)."""
    fields = _read(Path("/proc", str(pid), "stat")).rpartition(")")[2].split()
    return int(fields[19]) if fields and fields[0] not in ("Z", "X") else None


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process or cgroup has just gone, which is what the callers wait for
        return ""


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _remove_cgroup(cgroup: Path) -> None:
    with suppress(OSError):  # gone already, or still busy: the caller looks again
        cgroup.rmdir()
