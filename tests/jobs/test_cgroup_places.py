"""Sources of CPU limits on a machine: cgroups of version 2 on folders that behave as the kernel's do, and what is left.

CI has version 1, which `test_cpu_limits.py` tries for real.
"""

from __future__ import annotations

import errno
import math
import os
from functools import partial
from pathlib import Path

import pytest

from streamtopology.jobs.local.cgroups import (
    CgroupsUnavailable,
    CgroupView,
    CpuCgroupsV1,
    CpuCgroupsV2,
    cgroup_parents,
    make_cpu_cgroups,
)
from streamtopology.jobs.local.cpu_limits import Unlimited, best_limiter
from streamtopology.jobs.local.duty_cycle import DutyCycle, duty_cycle_works

OTHERS = "streamtopology-others"
GONE = "13"


class Group(type(Path())):
    """A path below a cgroup2 mount: folders and files do what the kernel's documentation of version 2 says."""

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        is_new = not self.exists()
        super().mkdir(mode, parents, exist_ok)
        if is_new:
            outer = self.parent / "cgroup.subtree_control"
            self.fill(controllers=outer.read_text() if outer.exists() else "")

    def fill(self, controllers: str, procs: str = "") -> Group:
        """Give the group the files of a new one."""
        files = {"cgroup.controllers": controllers, "cgroup.subtree_control": "", "cgroup.procs": procs}
        if "cpu" in controllers.split():
            files |= {"cpu.max": "max 100000", "cpu.weight": "100", "cpu.stat": "usage_usec 0\nuser_usec 0\n"}
        for name, text in files.items():
            Path(self / name).write_text(text)
        return self

    def write_text(self, data: str, *_: object, **__: object) -> int:
        if not self.exists():
            raise PermissionError(errno.EACCES, "Permission denied", str(self))  # nobody makes files in a cgroup
        if self.name == "cgroup.subtree_control":
            if (self.parent / "cgroup.procs").read_text().split():
                raise OSError(errno.EBUSY, "Device or resource busy", str(self))  # no processes in inner groups
            data = data.removeprefix("+")
        if self.name == "cgroup.procs":
            before = self.parent.parent / "cgroup.procs"
            Path(before).write_text(" ".join(pid for pid in before.read_text().split() if pid != data))
            if data == GONE:
                raise ProcessLookupError(errno.ESRCH, "No such process", str(self))
            data = f"{self.read_text()} {data}".strip()
        return Path(self).write_text(data)


def view_of(files: dict[str, list[str]]) -> CgroupView:
    """A machine with these lines in its files."""
    return CgroupView(files.__getitem__, Group)


NO_CGROUPS = CgroupView(lambda path: [])


@pytest.fixture
def mount(tmp_path: Path) -> Group:
    """The only hierarchy of this machine, and in it /user/app, the group that this process is in."""
    mount = Group(tmp_path / "mount")
    for place in (mount, mount / "user", mount / "user" / "app"):
        place.mkdir()
    return mount


@pytest.fixture
def view(mount: Group) -> CgroupView:
    """The machine on which `mount` is the only hierarchy, as this process sees it."""
    return view_of(
        {
            "/proc/self/cgroup": ["0::/user/app"],
            "/proc/self/mountinfo": [
                "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw",
                f"35 22 0:30 / {mount} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate",
            ],
        }
    )


def test_a_group_of_our_own_hands_the_cpu_on_and_limits_and_counts(mount: Group, view: CgroupView) -> None:
    (mount / "user" / "app").fill(controllers="cpuset cpu memory")
    made = make_cpu_cgroups("one", view)
    assert isinstance(made, CpuCgroupsV2)
    assert made.roots == (mount / "user" / "app" / "one",)
    assert made.roots[0].parent in cgroup_parents(view)
    slot = made.roots[0] / "large-0"
    assert made.add("large-0") == (slot / "cgroup.procs",)
    assert (made.roots[0] / "cpu.weight").read_text() == str(min(1000 * (os.cpu_count() or 1), 10_000))
    for cpu, quota, weight in ((0.3, "30000", 30), (2, "200000", 200), (0.0001, "1000", 2), (None, "max", 100)):
        made.limit("large-0", cpu)
        assert (slot / "cpu.max").read_text() == f"{quota} 100000"
        assert (slot / "cpu.weight").read_text() == str(weight)
    Path(slot / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert made.cpu_seconds("large-0") == 2.5
    Path(slot / "cpu.stat").write_text("user_usec 1\n")
    with pytest.raises(CgroupsUnavailable, match="has no usage_usec"):
        made.cpu_seconds("large-0")
    assert make_cpu_cgroups("two", view).roots == (mount / "user" / "app" / "two",), "a second cluster is next to the first"


def test_in_version_1_a_slot_weighs_what_its_cpu_does(tmp_path: Path) -> None:
    made = CpuCgroupsV1(tmp_path / "cpu", tmp_path / "cpuacct")
    made.add("large-0")
    for cpu, shares in ((0.45, "461"), (None, "1024")):
        made.limit("large-0", cpu)
        assert (tmp_path / "cpu" / "large-0" / "cpu.shares").read_text() == shares
    assert (tmp_path / "cpu" / "cpu.shares").read_text() == str(min(10 * 1024 * (os.cpu_count() or 1), 102_400))


def test_a_group_with_processes_leaves_the_place_to_one_above_that_hands_the_cpu_on(mount: Group, view: CgroupView) -> None:
    app = (mount / "user" / "app").fill(controllers="cpu", procs="11 12")
    user = (mount / "user").fill(controllers="cpu")
    assert make_cpu_cgroups("one", view).roots == (user / "one",)
    assert (app / "cgroup.procs").read_text() == "11 12", "nobody is moved"


def test_a_group_that_was_delegated_with_processes_in_it_is_cleared_for_ours(mount: Group, view: CgroupView) -> None:
    app = (mount / "user" / "app").fill(controllers="cpu", procs=f"11 {GONE} 12")
    made = make_cpu_cgroups("one", view)
    assert made.roots == (app / "one",)
    assert (app / OTHERS / "cgroup.procs").read_text() == "11 12"
    made.add("large-0")
    assert (app / "one" / "large-0" / "cpu.max").exists()


def test_in_a_container_the_mount_is_our_own_group(mount: Group) -> None:
    view = view_of(
        {
            "/proc/self/cgroup": ["0::/docker/abc"],
            "/proc/self/mountinfo": [f"35 22 0:30 /docker/abc {mount} rw - cgroup2 cgroup rw"],
        }
    )
    mount.fill(controllers="cpu", procs="1")
    assert make_cpu_cgroups("one", view).roots == (mount / "one",)
    assert (mount / OTHERS / "cgroup.procs").read_text() == "1"


def test_without_the_cpu_controller_nobody_is_moved_and_the_reason_is_reported(mount: Group, view: CgroupView) -> None:
    app = (mount / "user" / "app").fill(controllers="memory pids", procs="11")
    with pytest.raises(CgroupsUnavailable, match=rf"cgroup v2: {app} has no cpu controller \(not delegated\)"):
        make_cpu_cgroups("one", view)
    assert (app / "cgroup.procs").read_text() == "11"
    assert not (app / OTHERS).exists()


def test_without_cgroups_executors_are_stopped_and_continued_and_that_is_reported() -> None:
    reported: list[str] = []
    limiter = best_limiter("streamtopology-none", reported.append, NO_CGROUPS)
    limiter.close()
    assert isinstance(limiter, DutyCycle)
    assert reported == [
        "no CPU cgroups here (no cgroup hierarchy with a cpu controller is mounted): executors are limited by stopping and "
        "continuing their processes"
    ]


def test_executors_without_any_limiter_run_unlimited_with_a_warning() -> None:
    can_stop = partial(duty_cycle_works, lambda pid: 999)  # a clock that does not exist
    reported: list[str] = []
    limiter = best_limiter("streamtopology-none", reported.append, NO_CGROUPS, can_stop)
    assert isinstance(limiter, Unlimited)
    (warning,) = reported
    assert warning.startswith("WARNING: executors run WITHOUT CPU limits, all are equally fast: no CPU cgroups here (no cgroup")
    assert limiter.add("a") == ()
    limiter.limit("a", 0.1)
    assert math.isnan(limiter.cpu_seconds("a"))
