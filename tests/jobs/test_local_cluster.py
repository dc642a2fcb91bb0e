"""The embedded cluster finds its Java, keeps its secret, and leaves nothing behind, however its owner ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.waiting import eventually

from streamtopology.jobs.local.cgroups import cgroup_parents
from streamtopology.jobs.local.class_archive import ARCHIVE
from streamtopology.jobs.local.cleanup import (
    CLUSTER_MARK,
    RemainsError,
    members,
    new_cluster_name,
    owner_is_dead,
    sweep_dead_clusters,
)
from streamtopology.jobs.local.executor_room import NoRoom, refuse_too_many, room
from streamtopology.jobs.local.local_cluster import ClusterError, LocalCluster
from streamtopology.jobs.local.loopback import Subnet
from streamtopology.jobs.spark.cluster import ExecutorSlot
from streamtopology.jobs.spark.java import JavaMissing, find_java
from streamtopology.jobs.spark.java_options import MODULE_OPTIONS
from streamtopology.jobs.spark.pinned_rdd import executors
from streamtopology.jobs.spark.processes import SPARK_ENVIRONMENT, DriverAddress, backend_command

HERE = ("127.0.0.1", 0)
OWNER = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
from streamtopology.jobs.local.spark_session import create_local_session
from streamtopology.jobs.local.local_cluster import LocalCluster
from streamtopology.jobs.spark.cluster import ExecutorSlot
slots = [ExecutorSlot(f"e-{i}", "small", 0.5, 512 << 20) for i in range(2)]
with LocalCluster(slots, Path(sys.argv[1]), lambda _: None) as cluster:
    create_local_session(cluster, "owner")
    cluster.limit()
    print(cluster.name, flush=True)
    if sys.argv[2] == "raise":
        raise RuntimeError("the owner's own mistake")
    time.sleep(600)
"""


def a_java(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def test_java_home_is_taken_when_it_fits(tmp_path: Path) -> None:
    a_java(tmp_path / "jvm" / "a", "17.0.1")
    home = a_java(tmp_path / "mine", "21.0.2")
    java = find_java({"JAVA_HOME": str(home), "PATH": ""}, [tmp_path / "jvm"])
    assert (java.home, java.version) == (home, 21)


def test_a_java_that_spark_does_not_know_is_passed_over(tmp_path: Path) -> None:
    newer = a_java(tmp_path / "mine", "25.0.3")
    for name, version in [("jdk-25", "25"), ("jdk-21", "21.0.1"), ("jdk-17", "17.0.9"), ("jdk-8", "1.8.0_392")]:
        a_java(tmp_path / "jvm" / name, version)
    java = find_java({"JAVA_HOME": str(newer), "PATH": str(newer / "bin")}, [tmp_path / "jvm"])
    assert (java.home.name, java.version) == ("jdk-17", 17)


@pytest.mark.parametrize(
    ("version", "modules", "named"),
    [("25.0.3", "java.base jdk.incubator.vector", "Java 25"), ("17.0.2", "java.base", "without jdk.incubator.vector")],
)
def test_without_a_fitting_java_one_line_says_what_to_install(tmp_path: Path, version: str, modules: str, named: str) -> None:
    a_java(tmp_path / "jvm" / "only", version, modules)
    with pytest.raises(JavaMissing, match=f"(?s)^Spark needs Java 17 or 21.*{named}.*install") as missing:
        find_java({"PATH": ""}, [tmp_path / "jvm"])
    assert "\n" not in str(missing.value)


def test_live_clusters_have_different_addresses() -> None:
    taken = [Subnet.take() for _ in range(50)]
    try:
        assert len({host for subnet in taken for host in subnet.hosts[:2]}) == 100
    finally:
        for subnet in taken:
            subnet.close()


@pytest.mark.parametrize(("gibibytes", "most"), [(0.5, 1), (4, 5), (8, 10), (24, 30), (64, 81), (1024, 240)])
def test_a_machine_has_room_for_what_its_memory_holds(gibibytes: float, most: int) -> None:
    memory = int(gibibytes * (1 << 30))
    assert room(memory) == most
    refuse_too_many(most, memory)
    with pytest.raises(NoRoom, match=f"found {most + 1} executors, this machine has room for {most}: each takes 629 MB"):
        refuse_too_many(most + 1, memory)


def test_a_wrong_cluster_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one executor"):
        LocalCluster([], tmp_path, print)
    with pytest.raises(NoRoom, match="found 100,000 executors, this machine has room for"):
        LocalCluster([ExecutorSlot(f"a-{index}", "x", 1, 1 << 30) for index in range(100_000)], tmp_path, print)
    with pytest.raises(ValueError, match="unique"):
        LocalCluster([ExecutorSlot("a", "x", 1, 1 << 30)] * 2, tmp_path, print)
    with pytest.raises(ValueError, match="more than 0 cores"):
        ExecutorSlot("a", "x", 0, 1 << 30)
    with pytest.raises(ValueError, match="letters"):
        ExecutorSlot("../a", "x", 1, 1 << 30)
    assert list(tmp_path.iterdir()) == []


def test_remains_of_the_dead_are_removed_and_the_living_are_left_alone(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from streamtopology.jobs.local.cleanup import new_cluster_name; print(new_cluster_name(1))"],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    dead, living = ended.stdout.strip(), new_cluster_name(999)
    assert owner_is_dead(dead)
    assert not owner_is_dead(living)
    sleepers = {
        name: subprocess.Popen(["sleep", "300"], env={CLUSTER_MARK: name, "PATH": os.defpath}, start_new_session=True)
        for name in (dead, living)
    }
    for name, sleeper in sleepers.items():  # a process has its environment a moment after it has its program
        environment = Path(f"/proc/{sleeper.pid}/environ")
        eventually(lambda environment=environment, name=name: name.encode() in environment.read_bytes())
        (tmp_path / name / "below").mkdir(parents=True)
    (tmp_path / "somebody-elses").mkdir()
    try:
        assert sweep_dead_clusters(tmp_path, ()) == [dead]
        assert sleepers[dead].wait() == -signal.SIGKILL
        assert sleepers[living].poll() is None
        assert {path.name for path in tmp_path.iterdir()} == {living, "somebody-elses"}
    finally:
        sleepers[living].kill()
        sleepers[living].wait()


def test_remains_that_resist_are_an_error_for_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def resist(*_: object) -> list[str]:
        raise RemainsError("processes [7] do not end; kill them by hand")

    monkeypatch.setattr("streamtopology.jobs.local.local_cluster.sweep_dead_clusters", resist)
    with pytest.raises(ClusterError, match="kill them by hand"):
        LocalCluster([ExecutorSlot("a", "x", 1, 1 << 30)], tmp_path, print).start()


def remains(name: str, work_dir: Path) -> list[str]:
    """Everything of a cluster that is still there."""
    folders = [folder / name for folder in (work_dir, *cgroup_parents())]
    return [*(f"process {pid}" for pid in members(name)), *(str(path) for path in folders if path.exists())]


@pytest.mark.clusters
@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda owner: owner.send_signal(signal.SIGKILL), -signal.SIGKILL),
        (lambda owner: owner.send_signal(signal.SIGTERM), -signal.SIGTERM),
        (lambda owner: owner.send_signal(signal.SIGINT), -signal.SIGINT),
        (None, 1),
    ],
    ids=["kill-9", "terminate", "ctrl-c", "exception"],
)
def test_nothing_is_left_behind(tmp_path: Path, end: Callable[[subprocess.Popen[str]], None] | None, code: int) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path), "raise" if end is None else "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        name = owner.stdout.readline().strip()
        if end is not None:
            while len(members(name)) < 3:  # a process is known by its environment, which is empty as it begins
                time.sleep(0.01)
            folders = [one for one in remains(name, tmp_path) if not one.startswith("process")]
            end(owner)
            assert folders
        assert owner.wait() == code
    while left := remains(name, tmp_path):  # pytest's timeout ends it, and then says what was left
        time.sleep(0.05)
    assert left == []


@pytest.mark.clusters
def test_the_secret_is_in_no_command_line_and_nothing_listens_beyond_loopback(cluster: LocalCluster, spark: object) -> None:
    ours = members(cluster.name)
    command_lines = [Path("/proc", str(pid), "cmdline").read_text() for pid in ours]
    assert len(ours) > 2 * len(cluster.slots)
    assert not any(cluster.secret in line for line in command_lines)
    assert {address for pid in ours for address in listening_addresses(pid) if not is_loopback(address)} == set()


@pytest.mark.clusters
def test_every_jvm_of_the_cluster_maps_the_archive_of_classes(cluster: LocalCluster, spark: object) -> None:
    """An archive that does not fit the class path is left out without a word, and costs a second of CPU for each JVM."""
    processes = [pid for slot in cluster.slots for pid in cluster.processes(slot.name) if is_java(pid)]
    assert len(processes) == len(cluster.slots)
    assert all(str(ARCHIVE) in Path(f"/proc/{pid}/maps").read_text() for pid in processes)


@pytest.mark.clusters
def test_jvms_keep_their_temporary_files_in_the_folder_of_the_cluster(cluster: LocalCluster, spark: object) -> None:
    """A killed JVM leaves them, such as the library that it compresses with."""
    processes = [pid for pid in members(cluster.name) if is_java(pid)]
    options = [Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in processes]
    assert all(f"-Djava.io.tmpdir={cluster.scratch}" in line for line in options)
    libraries = {
        line.split()[-1] for pid in processes for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/lib" in line
    }
    assert all(Path(path).parent == cluster.scratch for path in libraries if "liblz4-java" in path)


@pytest.mark.clusters
def test_a_stranger_without_the_secret_is_not_let_in(cluster: LocalCluster, spark: SparkSession, tmp_path: Path) -> None:
    conf = spark.sparkContext.getConf()
    driver = DriverAddress(f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}", "stranger")
    backend = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    command = backend_command(find_java(), backend, MODULE_OPTIONS, driver, "1000", "127.0.0.1")
    environment = {**os.environ, **SPARK_ENVIRONMENT, "SPARK_LOCAL_IP": "127.0.0.1"}
    stranger = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert stranger.returncode != 0
    assert "Expected SaslMessage" in stranger.stdout + stranger.stderr
    assert "1000" not in {executor.id for executor in executors(spark)}


@pytest.mark.clusters
def test_an_executor_that_cannot_start_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    with LocalCluster([ExecutorSlot("a", "x", 1, 1 << 30)], tmp_path, print) as cluster, socket.create_server(HERE) as driver:
        address = f"127.0.0.1:{driver.getsockname()[1]}"
        cluster.serve(DriverAddress(address, "none"), {"spark.executor.extraJavaOptions": "-XX:NoSuchOption"})
        said = r"executor a has ended \d+ times as it started, with code 1:(.|\n)*NoSuchOption"
        with pytest.raises(ClusterError, match=said):
            check_until_it_raises(cluster)


def check_until_it_raises(cluster: LocalCluster) -> None:
    while True:
        cluster.check()
        time.sleep(0.05)


def listening_addresses(pid: int) -> set[str]:
    """Local addresses (hexadecimal, as the kernel prints them) of the process's listening TCP sockets."""
    sockets = {os.readlink(fd) for fd in Path("/proc", str(pid), "fd").iterdir() if fd.exists() or fd.is_symlink()}
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc", str(pid), "net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].partition(":")[0])
    return found


def is_java(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").resolve().name == "java"


def is_loopback(address: str) -> bool:
    """127.*.*.* as `tcp` prints it (bytes reversed), or mapped into IPv6 as `tcp6` does, or ::1."""
    return address[-2:] == "7F" if len(address) == 8 else address[-2:] == "7F" or address == "0" * 24 + "01000000"
