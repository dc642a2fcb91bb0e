"""Executors get the CPU of their class and no more; bounds are wide, because the machine under the tests is shared."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamtopology.jobs.local.cgroups import CgroupsUnavailable, make_cpu_cgroups
from streamtopology.jobs.local.cleanup import CLUSTER_MARK, SLOT_MARK, ClusterResources, members, new_cluster_name
from streamtopology.jobs.local.cpu_limits import CpuLimiter
from streamtopology.jobs.local.duty_cycle import DutyCycle
from streamtopology.jobs.local.local_cluster import LocalCluster
from streamtopology.jobs.spark.executor_watch import ExecutorWatch
from streamtopology.jobs.spark.executors import ExecutorRef
from streamtopology.jobs.spark.pinned_rdd import placed, stage

pytestmark = pytest.mark.clusters  # it measures real processes

FULL, THIRD = 0.09, 0.03  # cores; small, so that the limit binds even on a crowded machine
BURNERS = """
import subprocess, sys
burn = [sys.executable, "-c", "while True: pass"]
subprocess.Popen(burn, start_new_session=True)
subprocess.run(burn)
"""


def duty_cycle(name: str) -> CpuLimiter:
    return DutyCycle(lambda slot: members(name, slot))


def cgroups(name: str) -> CpuLimiter:
    try:
        return make_cpu_cgroups(name)
    except CgroupsUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=[cgroups, duty_cycle])
def burning(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CpuLimiter]:
    """The limiter of two slots, `a` and `b`, each a process tree that would use more than a core."""
    name = new_cluster_name(hash(request.node.name) % 10_000 + 1000)
    limiter: CpuLimiter = request.param(name)
    resources = ClusterResources(name, tmp_path / name, limiter.roots)
    join = 'while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@"'
    try:
        started = [
            subprocess.Popen(
                ["/bin/sh", "-c", join, "sh", *map(str, limiter.add(slot)), "--", sys.executable, "-c", BURNERS],
                env={CLUSTER_MARK: name, SLOT_MARK: slot},
            )
            for slot in "ab"
        ]
        while any(len(members(name, slot)) < 3 for slot in "ab"):
            time.sleep(0.01)
        yield limiter
    finally:
        limiter.close()
        resources.sweep()
    for process in started:
        process.wait()


def rates(seconds_of: Callable[[str], float], slots: tuple[str, str], wall_seconds: float = 3.0) -> tuple[float, float]:
    """Cores that two slots use within the same stretch of time."""
    start, before = time.monotonic(), [seconds_of(slot) for slot in slots]
    time.sleep(wall_seconds)
    now, after = time.monotonic(), [seconds_of(slot) for slot in slots]
    first, second = ((b - a) / (now - start) for a, b in zip(before, after, strict=True))
    return first, second


def test_cpu_used_before_a_limit_is_not_paid_back(burning: CpuLimiter) -> None:
    while burning.cpu_seconds("a") < 1.0:
        time.sleep(0.05)
    burning.limit("a", FULL)  # paying a second of debt back would take eleven
    a, _ = rates(burning.cpu_seconds, ("a", "b"))
    assert a > FULL / 4


def test_limits_hold_for_whole_process_trees_and_can_be_changed(burning: CpuLimiter) -> None:
    burning.limit("a", FULL)
    burning.limit("b", THIRD)
    a, b = rates(burning.cpu_seconds, ("a", "b"))
    assert a < 1.4 * FULL
    assert b < 1.4 * THIRD
    assert a > 1.5 * b
    burning.limit("b", FULL)
    _, raised = rates(burning.cpu_seconds, ("a", "b"))
    assert 1.5 * b < raised < 1.4 * FULL
    burning.limit("b", None)
    a, b = rates(burning.cpu_seconds, ("a", "b"))
    assert b > a


def test_closing_a_duty_cycle_resumes_its_stopped_processes(tmp_path: Path) -> None:
    name = new_cluster_name(2000)
    limiter = duty_cycle(name)
    limiter.add("a")
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], env={CLUSTER_MARK: name, SLOT_MARK: "a"})
    try:
        limiter.limit("a", 0.001)
        while state(process.pid) != "T":
            time.sleep(0.01)
        limiter.close()
        assert state(process.pid) != "T"  # it runs, or waits for a core, or for the disk while Python starts
    finally:
        ClusterResources(name, tmp_path / name, ()).sweep()
        process.wait()


def state(pid: int) -> str:
    return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]


def test_executors_get_their_classes_cpu_and_resizing_takes_effect_at_once(
    spark: SparkSession, cluster: LocalCluster, watch: ExecutorWatch, tmp_path: Path
) -> None:
    release, started = tmp_path / "release", tmp_path / "started"
    started.mkdir()
    slots = [executor.ref for executor in watch.admitted()]
    job = threading.Thread(target=burn, args=(spark, slots, started, release))
    job.start()
    try:
        while len(list(started.iterdir())) < len(slots):
            time.sleep(0.02)
        cluster.resize("large", FULL)
        cluster.resize("small", THIRD)
        cluster.limit()
        large, small = rates(cluster.cpu_seconds, ("large-0", "small-0"))
        assert large < 1.4 * FULL
        assert small < 1.4 * THIRD
        assert large > 1.5 * small
        cluster.resize("small", FULL)
        _, raised = rates(cluster.cpu_seconds, ("large-0", "small-0"))
        assert 1.5 * small < raised < 1.4 * FULL
        with pytest.raises(ValueError, match="no executor class 'medium'; there are: large, small"):
            cluster.resize("medium", 1.0)
        with pytest.raises(ValueError, match="more than 0 cores"):
            cluster.resize("small", 0)
    finally:
        for class_name in ("large", "small"):
            cluster.resize(class_name, 1.0)
        for slot in cluster.slots:
            cluster.lift(slot.name)
        release.touch()
        job.join()


def burn(spark: SparkSession, slots: list[ExecutorRef], started: Path, release: Path) -> None:
    """Use all the CPU that each executor can get until `release` is there."""

    def work(partition: int, blobs: Iterator[bytes]) -> Iterator[bytes]:
        import os

        (started / str(os.getpid())).touch()
        while not release.exists():
            sum(range(100_000))
        yield from blobs

    stage(placed(spark, slots), work).collect()
