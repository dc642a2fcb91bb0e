"""The demo knows what other programs took of the machine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from streamtopology.lab.bench.cpu_times import CpuTimes, cpu_times
from streamtopology.lab.demo.others_cpu import others_cores

TICKS = os.sysconf("SC_CLK_TCK")


def stat_of(process: int, parent: int, user: int, ended_children: int = 0) -> str:
    return f"{process} (a (b) c) S {parent} {'0 ' * 9}{user} 0 {ended_children} 0 20 0 1 0"


def test_own_time_is_that_of_all_processes_below_and_of_those_that_have_ended(tmp_path: Path) -> None:
    tree = {7: stat_of(7, 1, 100, ended_children=30), 8: stat_of(8, 7, 20), 9: stat_of(9, 8, 3), 10: stat_of(10, 1, 4000)}
    for process, text in tree.items():
        (tmp_path / str(process)).mkdir()
        (tmp_path / str(process) / "stat").write_text(text)
    (tmp_path / "stat").write_text("cpu  1000 1 200 99999 9 10 5 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    times = cpu_times(tmp_path, root=7)
    assert times.own == 153 / TICKS
    assert times.machine == 1223 / TICKS


def test_times_of_this_machine_grow() -> None:
    first, second = cpu_times(), cpu_times()
    assert 0 < first.own <= second.own
    assert first.machine <= second.machine


def test_others_have_what_is_not_ours() -> None:
    begin = CpuTimes(at=100.0, machine=50.0, own=20.0)
    assert others_cores(begin, CpuTimes(at=110.0, machine=65.0, own=30.0)) == 0.5
    assert others_cores(begin, replace(begin, at=110.0, machine=59.0, own=30.0)) == 0.0
