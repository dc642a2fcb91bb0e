"""CPU limits and CPU accounting of groups of processes by Linux cgroups, version 1 or 2.

A slot's CPU is its own, as what a pod requests: among all processes its cluster counts as `PRECEDENCE` for each core, and a
slot in it by its CPU. Without weights a busy machine would make all slots equal, and each cluster count as one process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from streamtopology.contract.errors import Unavailable

PERIOD_MICROSECONDS = 100_000
SMALLEST_QUOTA_MICROSECONDS = 1_000  # the kernel refuses less
# The kernel's weight of a process, in version 1 and 2.
SHARES, WEIGHT = 1024, 100
PRECEDENCE = 10


class CgroupsUnavailable(Unavailable):
    """This user may not make CPU cgroups here; the message has the reason."""


def read_lines(path: str) -> list[str]:
    """Return the lines of a file in /proc; none if there is no such file, hence no cgroups."""
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


@dataclass(frozen=True)
class CgroupView:
    """This process's view of the machine's cgroups: the lines of files in /proc, and paths below the mounts."""

    lines: Callable[[str], list[str]] = read_lines
    path: Callable[[str], Path] = Path


THIS_MACHINE = CgroupView()


@dataclass(frozen=True)
class Hierarchy:
    """A mounted cgroup hierarchy: our own group's folder in it, its root, and its controllers (empty for version 2)."""

    own: Path
    root: Path
    controllers: frozenset[str]


class CpuCgroupsV1:
    """Version 1: a `cpu` hierarchy limits, a `cpuacct` hierarchy (often the same) counts.

    Groups are `<our own group>/<cluster>/<slot>`, here and in version 2.
    """

    kind = "cgroup v1"

    def __init__(self, cpu: Path, accounting: Path) -> None:
        self._cpu = cpu
        self._accounting = accounting
        self.roots = tuple(dict.fromkeys((cpu, accounting)))
        for root in self.roots:
            root.mkdir(exist_ok=True)
        (cpu / "cpu.shares").write_text(str(_weight(PRECEDENCE * (os.cpu_count() or 1), SHARES)))

    def add(self, slot: str) -> tuple[Path, ...]:
        for root in self.roots:
            (root / slot).mkdir(exist_ok=True)
        self.limit(slot, None)
        return tuple(root / slot / "cgroup.procs" for root in self.roots)

    def limit(self, slot: str, cpu: float | None) -> None:
        group = self._cpu / slot
        (group / "cpu.cfs_quota_us").write_text("-1")  # so that the period may be set whatever quota there was
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
        (group / "cpu.shares").write_text(str(_weight(cpu, SHARES)))
        if cpu is None:
            return
        quota = _quota(cpu)
        outer = int((self._cpu.parent / "cpu.cfs_quota_us").read_text()) if _has_quota(self._cpu.parent) else -1
        outer_period = int((self._cpu.parent / "cpu.cfs_period_us").read_text()) if outer > 0 else 1
        if outer > 0 and quota / PERIOD_MICROSECONDS >= outer / outer_period:
            return  # the group around ours is tighter already, and the kernel refuses a child that promises more
        (group / "cpu.cfs_quota_us").write_text(str(quota))

    def cpu_seconds(self, slot: str) -> float:
        return int((self._accounting / slot / "cpuacct.usage").read_text()) / 1e9

    def close(self) -> None:
        """Do nothing: the groups are removed with the processes in them, as part of the cluster's resources."""


class CpuCgroupsV2:
    """Version 2: one hierarchy does both, below a group whose `cpu` controller is handed on to its children."""

    kind = "cgroup v2"

    def __init__(self, root: Path) -> None:
        self._root = root
        self.roots = (root,)
        root.mkdir(exist_ok=True)
        _hand_on_cpu(root)
        (root / "cpu.weight").write_text(str(_weight(PRECEDENCE * (os.cpu_count() or 1), WEIGHT)))

    def add(self, slot: str) -> tuple[Path, ...]:
        (self._root / slot).mkdir(exist_ok=True)
        self.limit(slot, None)
        return (self._root / slot / "cgroup.procs",)

    def limit(self, slot: str, cpu: float | None) -> None:
        quota = "max" if cpu is None else str(_quota(cpu))
        (self._root / slot / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
        (self._root / slot / "cpu.weight").write_text(str(_weight(cpu, WEIGHT)))

    def cpu_seconds(self, slot: str) -> float:
        for line in (self._root / slot / "cpu.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "usage_usec":
                return int(value) / 1e6
        raise CgroupsUnavailable(f"{self._root / slot / 'cpu.stat'} has no usage_usec")

    def close(self) -> None:
        """Do nothing: the groups are removed with the processes in them, as part of the cluster's resources."""


def cgroup_parents(view: CgroupView = THIS_MACHINE) -> tuple[Path, ...]:
    """Return the folders that can hold clusters' cgroups: every place that `make_cpu_cgroups` would choose."""
    hierarchies = _hierarchies(view)
    own_v1 = [h.own for h in hierarchies if h.controllers & {"cpu", "cpuacct"}]
    own_v2 = [place for h in hierarchies if not h.controllers for place in _and_ancestors(h)]
    return tuple(dict.fromkeys((*own_v1, *own_v2)))


def make_cpu_cgroups(name: str, view: CgroupView = THIS_MACHINE) -> CpuCgroupsV1 | CpuCgroupsV2:
    """Make CPU cgroups for the cluster `name` below our own group. Raises `CgroupsUnavailable`."""
    hierarchies = _hierarchies(view)
    reasons: list[str] = []
    by_controller = {controller: h for h in hierarchies for controller in h.controllers}
    if "cpu" in by_controller and "cpuacct" in by_controller:
        try:
            return CpuCgroupsV1(by_controller["cpu"].own / name, by_controller["cpuacct"].own / name)
        except OSError as refusal:
            reasons.append(f"cgroup v1: {refusal}")
    for hierarchy in hierarchies:
        if hierarchy.controllers:
            continue
        for place in _and_ancestors(hierarchy):
            try:
                _hand_on_cpu(place)
                return CpuCgroupsV2(place / name)
            except OSError as refusal:
                reasons.append(f"cgroup v2: {refusal}")
        try:
            _move_processes_into_a_leaf(hierarchy.own)
            _hand_on_cpu(hierarchy.own)
            return CpuCgroupsV2(hierarchy.own / name)
        except OSError as refusal:
            reasons.append(f"cgroup v2: {refusal}")
    raise CgroupsUnavailable("; ".join(reasons) or "no cgroup hierarchy with a cpu controller is mounted")


def _hand_on_cpu(group: Path) -> None:
    """Give the group's children the cpu controller. OSError: the group lacks it, is not ours, or has processes of its own."""
    if "cpu" not in (group / "cgroup.controllers").read_text().split():
        raise OSError(f"{group} has no cpu controller (not delegated)")
    if "cpu" in (group / "cgroup.subtree_control").read_text().split():
        if not os.access(group, os.W_OK):
            raise PermissionError(f"{group} is not writable")
        return
    (group / "cgroup.subtree_control").write_text("+cpu")


def _move_processes_into_a_leaf(group: Path) -> None:
    """Make a group that was delegated to us (a scope, a container) free of processes, as version 2 demands of inner groups."""
    if "cpu" not in (group / "cgroup.controllers").read_text().split():
        raise OSError(f"{group} has no cpu controller (not delegated)")
    leaf = group / "streamtopology-others"
    leaf.mkdir(exist_ok=True)
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):  # it has ended since
            (leaf / "cgroup.procs").write_text(pid)


def _and_ancestors(hierarchy: Hierarchy) -> list[Path]:
    """Return our own group, then its ancestors up to the root: a group with processes cannot pass controllers on."""
    chain = [hierarchy.own, *hierarchy.own.parents]
    return chain[: chain.index(hierarchy.root) + 1] if hierarchy.root in chain else [hierarchy.own]


def _hierarchies(view: CgroupView) -> list[Hierarchy]:
    """Return every mounted cgroup hierarchy with the folder of our own group in it."""
    own_paths: dict[frozenset[str], str] = {}
    for line in view.lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        own_paths[frozenset(filter(None, controllers.split(",")))] = path
    found: list[Hierarchy] = []
    for line in view.lines("/proc/self/mountinfo"):
        mount, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        root_in_hierarchy, mounted_at = mount.split(" ")[3:5]
        if kind == "cgroup":
            names = frozenset(options.split(","))
            controllers = next((c for c in own_paths if c and c <= names), None)
        elif kind == "cgroup2":
            controllers = frozenset[str]()
        else:
            continue
        if controllers is None or controllers not in own_paths:
            continue
        found.append(_hierarchy(view.path(mounted_at), root_in_hierarchy, own_paths[controllers], controllers))
    return found


def _hierarchy(mounted_at: Path, root_in_hierarchy: str, own_path: str, controllers: frozenset[str]) -> Hierarchy:
    """Return the hierarchy; in a container the mount may show only a part of it, and our path may start at its real root."""
    inner = own_path.removeprefix(root_in_hierarchy.rstrip("/")).lstrip("/")
    own = mounted_at / inner
    return Hierarchy(own if own.is_dir() else mounted_at, mounted_at, controllers)


def _has_quota(group: Path) -> bool:
    return (group / "cpu.cfs_quota_us").exists()  # the root group has no limit of its own


def _weight(cores: float | None, of_one: int) -> int:
    """The weight of as many processes as `cores`, within what the kernel takes; None: of one."""
    return min(max(round((1.0 if cores is None else cores) * of_one), 2), 100 * of_one)


def _quota(cpu: float) -> int:
    return max(SMALLEST_QUOTA_MICROSECONDS, round(cpu * PERIOD_MICROSECONDS))
