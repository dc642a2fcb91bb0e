"""Workers that outlive their driver: who may call them, what they hand over, and when they end."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.real_time import LOOPBACK, run_keys

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.checkpoint.layout import is_our_folder, is_ours
from streamtopology.jobs.local.cleanup import members, owner_is_dead, sweep_dead_clusters
from streamtopology.jobs.local.kept_cluster import KeptCluster, KeptProcess, Purpose, claim_kept
from streamtopology.jobs.local.loaded_files import LoadedFiles
from streamtopology.jobs.local.ownership import is_kept, keeping, owner_after, withdraw
from streamtopology.jobs.realtime.desk_socket import DeskSocket
from streamtopology.jobs.realtime.resident import live
from streamtopology.jobs.realtime.summons import Summons, find
from streamtopology.jobs.realtime.worker import Worker
from streamtopology.jobs.realtime.worker_sockets import Post, WorkerSockets
from streamtopology.jobs.state import KeyedState
from streamtopology.jobs.worker.cache import CachedState, WorkerCache

SECONDS = 60.0
OLDER, NEWER = "older/1", "newer/1"


def summons(generation: int, number: int = 1, driver: str = "tcp://nobody", worker: str = OLDER) -> Summons:
    return Summons(generation, number, "run-1", driver, worker, f"lineage/{generation}")


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


# --- whom a worker obeys ---


def test_summons_of_the_newer_generation_is_found_whoever_writes_last(tmp_path: Path) -> None:
    for generation in (2, 3, 2):
        summons(generation).give(tmp_path)
    assert find(tmp_path) == summons(3)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_worker_serves_each_newer_summons_once_and_no_older_one() -> None:
    found = iter([None, summons(2), summons(2), summons(1, 9), summons(2, 2), summons(3), None])
    served: list[Summons] = []
    pauses: list[float] = []
    lives = iter([*[True] * 7, False])
    live(lambda: next(found), lambda one, is_over: served.append(one), lambda: next(lives), pauses.append)
    assert served == [summons(2), summons(2, 2), summons(3)]
    assert len(pauses) == 4


def test_worker_leaves_a_driver_for_a_newer_one_and_when_it_may_not_stay() -> None:
    found, may_stay, over = [summons(1)], [True], list[bool]()

    def serve(one: Summons, is_over: Callable[[], bool]) -> None:
        over.append(is_over())
        found[0] = summons(2)
        over.append(is_over())
        found[0], may_stay[0] = summons(1), False
        over.append(is_over())

    live(lambda: found[0], serve, lambda: may_stay[0], lambda seconds: None)
    assert over == [False, True, True]


@contextmanager
def worker_thread(folder: Path) -> Iterator[None]:
    """A worker that is called by files in `folder`, in a thread of this process."""
    may_stay = threading.Event()

    def serve(one: Summons, is_over: Callable[[], bool]) -> None:
        with WorkerSockets(Post(one.run, one.driver, one.worker, LOOPBACK), run_keys(), is_over=is_over) as sockets:
            Worker(sockets, WorkerCache(), lambda orders: None, time.monotonic).serve()

    thread = threading.Thread(target=live, args=(lambda: find(folder), serve, lambda: not may_stay.is_set(), time.sleep))
    thread.start()
    try:
        yield
    finally:
        may_stay.set()
        thread.join(SECONDS)
        assert not thread.is_alive(), "a worker that may not stay ends itself, although a driver has it"


def test_of_two_drivers_at_one_worker_the_one_of_the_newer_generation_has_it(tmp_path: Path) -> None:
    with (
        DeskSocket(run_keys(), LOOPBACK) as older,
        DeskSocket(run_keys(), LOOPBACK) as newer,
        worker_thread(tmp_path),
    ):
        summons(1, 1, older.address, OLDER).give(tmp_path)
        assert older.desk.await_addresses([OLDER], SECONDS)
        summons(2, 1, newer.address, NEWER).give(tmp_path)
        assert newer.desk.await_addresses([NEWER], SECONDS)
        wait_until(lambda: older.desk.is_void(0))
        summons(1, 2, older.address, OLDER).give(tmp_path)
        time.sleep(0.3)
        assert find(tmp_path) == summons(2, 1, newer.address, NEWER)
        assert newer.desk.await_addresses([NEWER], 0.0)


def test_two_drivers_never_have_one_generation_while_it_is_the_newest(tmp_path: Path) -> None:
    first, second = (Checkpoint.open(str(tmp_path / "checkpoint"), "twice") for _ in range(2))
    assert [first.next_driver(), second.next_driver(), first.next_driver(served=9), second.next_driver()] == [1, 2, 10, 11]
    assert first.files("drivers") == ["drivers/11.json"]
    assert is_ours("drivers/11.json")
    assert is_our_folder("drivers")


# --- what it hands over ---


def cached(base: int, pending: int | None = None, adopted: bool = False) -> CachedState:
    schema_free = object.__new__(KeyedState)
    return CachedState(schema_free, (base, 1), None if pending is None else (pending, 1), (7, None) if adopted else None)


def test_successor_inherits_the_state_of_its_checkpoint_alone() -> None:
    cache = WorkerCache()
    behind, ahead, merged, other = cached(4), cached(5, pending=6), cached(5, adopted=True), cached(5)
    cache.states = {
        ("mine/1", "counts", 0): behind,
        ("mine/1", "counts", 1): ahead,
        ("mine/1", "counts", 2): merged,
        ("theirs/1", "counts", 0): other,
    }
    cache.inherit("mine/2")
    expected = {("theirs/1", "counts", 0): other, ("mine/2", "counts", 0): behind, ("mine/2", "counts", 1): ahead}
    assert cache.states == expected
    cache.inherit("mine/2")
    assert cache.states == expected


def test_process_knows_when_the_code_that_it_has_loaded_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "outlived_module.py").write_text("one = 1\n")
    importlib.import_module("outlived_module")
    files = LoadedFiles()
    files.note()
    assert not files.have_changed()
    (tmp_path / "outlived_module.py").write_text("one = 11\n")
    assert files.have_changed()
    del sys.modules["outlived_module"]


# --- the processes ---

KEPT = """
import os, sys, time
from pathlib import Path
from streamtopology.jobs.local import local_cluster
from streamtopology.jobs.local.kept_cluster import Purpose
from streamtopology.jobs.spark.cluster import ExecutorSlot

local_cluster.OUTLIVE_SECONDS = float(sys.argv[3])

class Sleeping:
    def is_awaited(self): return True
    def started_by(self, slot, host, number): return ["/bin/sleep", "600"], {}

slots = [ExecutorSlot(name, "x", 1, 1 << 30) for name in ("a", "b")]
with local_cluster.LocalCluster(slots, Path(sys.argv[1]), print, Purpose("checkpoint", sys.argv[2])) as cluster:
    cluster.run(Sleeping())
    while len(cluster.running()) < 2:
        time.sleep(0.01)
    print(cluster.is_taken_over, cluster.name, *(one.process.pid for one in cluster.running()), flush=True)
    sys.stdin.read()
"""


class Owner:
    """A process with a cluster that can be taken over."""

    def __init__(self, folder: Path, identity: str, outlive_seconds: float = 30.0) -> None:
        arguments = [sys.executable, "-c", KEPT, str(folder), identity, str(outlive_seconds)]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        said = next(line for line in self._process.stdout if line.startswith(("True", "False"))).split()
        self.has_taken_over, self.name, self.pids = said[0] == "True", said[1], set(said[2:])

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(SECONDS)

    def end(self) -> None:
        self._process.communicate("", SECONDS)
        assert self._process.returncode == 0


def test_owner_that_comes_too_late_finds_nothing_and_the_keeper_sees_it(tmp_path: Path) -> None:
    purpose = Purpose("checkpoint", "same")
    cluster = tmp_path / "some-cluster"
    cluster.mkdir()
    processes = {"a": KeptProcess(0, 1, "127.0.0.1")}
    KeptCluster("some-cluster", "secret", 1, purpose, (), processes).save(cluster)
    with closing(keeping("some-cluster")):
        assert claim_kept(tmp_path, Purpose("another checkpoint", "same")) is None
        kept = claim_kept(tmp_path, purpose)
        assert kept is not None
        assert kept.processes == processes
        assert owner_after(1, cluster) == os.getpid()
        withdraw(cluster)
        assert claim_kept(tmp_path, purpose) is None


@pytest.mark.clusters
def test_processes_of_a_killed_owner_are_taken_over_again_and_again(tmp_path: Path) -> None:
    first = Owner(tmp_path, "same")
    wait_until(lambda: is_kept(first.name))
    first.kill()
    sweep_dead_clusters(tmp_path, [])
    second = Owner(tmp_path, "same")
    second.kill()
    third = Owner(tmp_path, "same")
    assert [owner.has_taken_over for owner in (first, second, third)] == [False, True, True]
    assert first.pids == second.pids == third.pids
    third.end()
    assert not members(first.name)
    assert not list(tmp_path.iterdir())


@pytest.mark.clusters
def test_processes_for_another_manifest_are_ended_and_replaced(tmp_path: Path) -> None:
    first = Owner(tmp_path, "one manifest")
    wait_until(lambda: is_kept(first.name))
    first.kill()
    second = Owner(tmp_path, "another manifest")
    assert not second.has_taken_over
    assert not members(first.name)
    second.end()


@pytest.mark.clusters
def test_processes_that_no_driver_takes_over_end_after_their_time(tmp_path: Path) -> None:
    owner = Owner(tmp_path, "lonely", outlive_seconds=1.0)
    owner.kill()
    assert owner_is_dead(owner.name)
    wait_until(lambda: not members(owner.name) and not list(tmp_path.iterdir()))
    wait_until(lambda: not is_kept(owner.name))
