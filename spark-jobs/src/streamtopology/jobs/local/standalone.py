"""A real Spark standalone cluster on this machine, one worker process per executor, each held to its executor class's CPU.

    slots = [ExecutorSlot("large-0", "large", cpu=0.45, memory_bytes=2 << 30), ExecutorSlot("small-0", "small", 0.135, 1 << 30)]
    with LocalCluster(slots, Path("build/cluster"), print) as cluster:
        spark = create_local_session(cluster)    # executors start unlimited: they warm up in a third of the time
        cluster.limit()
        cluster.resize("small", 0.3)

Nothing leaves the loopback interface, and nothing is left behind, however this process ends (see `supervisor`).
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from streamtopology.contract.errors import Unavailable
from streamtopology.contract.formatting import counted
from streamtopology.jobs.local.cgroups import cgroup_parents
from streamtopology.jobs.local.class_archive import SHARED_CLASSES
from streamtopology.jobs.local.cleanup import (
    CLUSTER_MARK,
    SLOT_MARK,
    ClusterResources,
    RemainsError,
    kill_members,
    members,
    new_cluster_name,
    sweep_dead_clusters,
)
from streamtopology.jobs.local.cpu_limits import CpuLimiter, best_limiter
from streamtopology.jobs.local.executor_room import NoRoom, machine_bytes, refuse_too_many
from streamtopology.jobs.local.loopback import Subnet
from streamtopology.jobs.local.spelling import spelling
from streamtopology.jobs.spark.cluster import MEBIBYTE, ExecutorSlot
from streamtopology.jobs.spark.java import Java, find_java
from streamtopology.jobs.spark.java_options import temporary_folder
from streamtopology.jobs.spark.processes import SPARK_ENVIRONMENT, master_command, worker_command

SMALLEST_HEAP_BYTES = 512 * MEBIBYTE  # Spark refuses executors below 450 MiB
LARGEST_HEAP_BYTES = 4096 * MEBIBYTE
HEAP_SHARE = 0.4  # the operators' state lives in the Python worker, not in the JVM
START_SECONDS = 120.0
SUPERVISOR_SECONDS = 30.0

_MASTER_READY = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
_JOIN_GROUPS_THEN_EXEC = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift; exec "$@"'
_NOT_INHERITED = ("SPARK_", "PYSPARK_", "PYTHONDONTWRITEBYTECODE")
_serials = itertools.count(1)


class ClusterError(Unavailable):
    """The embedded cluster cannot start or be removed, or has lost a process that it cannot do without."""


@contextmanager
def _remains_reported() -> Iterator[None]:
    """Raise RemainsError as ClusterError: `cleanup` has the standard library alone, without the project's errors."""
    try:
        yield
    except RemainsError as error:
        raise ClusterError(str(error)) from error


class LocalCluster:
    """Master and workers, as a context manager; see the module's example.

    `work_dir` is created when missing; the cluster keeps everything in one folder of its own below it. `progress` gets
    a sentence for every step. `limiter` makes the CPU limiter from the cluster's name and a callback for warnings.
    Starting raises `JavaMissing` or `ClusterError`; more executors than this machine can hold are `NoRoom`.
    """

    master: str
    _limiter: CpuLimiter
    _java: Java
    _properties: Path
    _free_hosts: Iterator[str]

    def __init__(
        self,
        executors: Sequence[ExecutorSlot],
        work_dir: Path,
        progress: Callable[[str], None],
        limiter: Callable[[str, Callable[[str], None]], CpuLimiter] = best_limiter,
    ) -> None:
        if not executors:
            raise ValueError("a local cluster has at least one executor")
        refuse_too_many(len(executors), machine_bytes())
        if len({slot.name for slot in executors}) < len(executors):
            raise ValueError(f"executor names must be unique: {[slot.name for slot in executors]}")
        self.name = new_cluster_name(next(_serials))
        self.directory = work_dir.absolute() / self.name
        self.secret = secrets.token_hex(32)
        self._slots = {slot.name: slot for slot in executors}
        self._heap_bytes = heap_bytes(executors)
        self._progress = progress
        self._make_limiter = limiter
        self._limited: set[str] = set()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._hosts: dict[str, str] = {}
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def slots(self) -> tuple[ExecutorSlot, ...]:
        """The executors, those of the start in the order given, each with its class's present CPU."""
        return tuple(self._slots.values())

    @property
    def heap_bytes(self) -> int:
        """The JVM heap of every executor, also of those that come later."""
        return self._heap_bytes

    @property
    def scratch(self) -> Path:
        """The folder of the temporary files of all its JVMs; it goes with the cluster."""
        return self.directory / "tmp"

    @property
    def limits(self) -> str:
        """The mechanism that enforces the CPU limits, in words."""
        return self._limiter.kind

    def host(self, slot: str) -> str:
        """The loopback address at which the slot's executor shows up in Spark."""
        return self._hosts[slot]

    def slot_at(self, host: str) -> str:
        """The name of the slot whose executor shows up, or showed up before it was removed, at `host`."""
        return next(name for name, address in self._hosts.items() if address == host)

    def processes(self, slot: str) -> list[int]:
        """Process ids of the slot: the worker, its executor, the Python daemon and workers."""
        return members(self.name, slot)

    def start(self) -> Self:
        """Start the master and all workers; returns when the master listens and every worker process runs."""
        java = find_java()
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with _remains_reported():
            swept = sweep_dead_clusters(self.directory.parent, cgroup_parents())
        for name in swept:
            self._progress(f"removed the remains of a dead process: {name}")
        with ExitStack() as undo:
            subnet = undo.enter_context(Subnet.take())
            self._limiter = self._make_limiter(self.name, self._progress)
            resources = ClusterResources(self.name, self.directory, self._limiter.roots)
            self._start_supervisor(resources, undo)
            undo.callback(self._end, resources)
            undo.callback(self._limiter.close)
            self.directory.mkdir(mode=0o700, exist_ok=True)  # the driver's JVM may have begun there
            self.scratch.mkdir()
            properties = self._write_properties()
            self._progress("starting the Spark master")
            command = master_command(java, properties, subnet.master, SHARED_CLASSES, temporary_folder(self.scratch))
            self._spawn("master", command, {"SPARK_LOCAL_IP": subnet.master})
            self.master = self._await_master()
            workers = counted(len(self._slots), "executor's worker", "executors' workers")
            self._progress(f"starting {workers} (CPU limits: {self._limiter.kind})")
            self._java, self._properties, self._free_hosts = java, properties, iter(subnet.hosts)
            for slot in self.slots:
                self._start_worker(slot)
            self._undo = undo.pop_all()
        return self

    def stop(self) -> None:
        """End every process of the cluster and remove its cgroups and folder. May be called again."""
        self._undo.close()

    def check_room(self, slots: Collection[ExecutorSlot]) -> None:
        """Raise NoRoom if `slots` cannot be the cluster's executors, in place of those that it has."""
        refuse_too_many(len(slots), machine_bytes())
        if len(self._hosts.keys() | {slot.name for slot in slots}) > Subnet.MOST_HOSTS:
            raise NoRoom(
                f"{len(self._hosts)} executors have had an address of their own, and one run here has {Subnet.MOST_HOSTS}: "
                "stop the topology and run it again; it resumes from its checkpoint"
            )

    def add(self, slot: ExecutorSlot) -> None:
        """Start one more executor's worker, unlimited until `limit`; there is room. Raises ValueError if its name exists."""
        if slot.name in self._slots:
            raise ValueError(f"an executor {slot.name} exists already")
        self._slots = {**self._slots, slot.name: slot}
        self._start_worker(slot)

    def remove(self, name: str) -> None:
        """End the worker, the executor and all its processes; raises KeyError if none of that name exists."""
        self._slots = {other: slot for other, slot in self._slots.items() if other != name}
        self._limited.discard(name)
        process = self._processes.pop(name)
        with _remains_reported():
            kill_members(self.name, name)
        process.wait()

    def check(self) -> None:
        """Raise `ClusterError` with the end of its log when the master or a worker has died."""
        for name, process in tuple(self._processes.items()):
            if process.poll() is not None:
                log = (self.directory / f"{name}.log").read_text(errors="replace").splitlines()
                raise ClusterError("\n".join([f"the Spark process {name} ended with code {process.returncode}:", *log[-15:]]))

    def limit(self, slot: str | None = None) -> None:
        """Hold the slot (or every slot) to its class's CPU from now on: call it after the warm-up."""
        for name in self._slots if slot is None else (slot,):
            self._limiter.limit(name, self._slots[name].cpu)
            self._limited.add(name)

    def lift(self, slot: str) -> None:
        """Let the slot run unlimited until `limit` is called again: for an executor that has to start again."""
        self._limiter.limit(slot, None)
        self._limited.discard(slot)

    def resize(self, class_name: str, cpu: float) -> None:
        """Change the CPU of every executor of a class, at once where the limit is in force. Raises ValueError."""
        if class_name not in {slot.class_name for slot in self.slots}:
            known = ", ".join(sorted({slot.class_name for slot in self.slots}))
            raise ValueError(f"no executor class {class_name!r}; there are: {known}")
        for name, slot in self._slots.items():
            if slot.class_name == class_name:
                self._slots[name] = replace(slot, cpu=cpu)
                if name in self._limited:
                    self._limiter.limit(name, cpu)

    def cpu_seconds(self, slot: str) -> float:
        """CPU seconds used by all processes of the slot so far (NaN where nothing can count them)."""
        return self._limiter.cpu_seconds(slot)

    def _start_worker(self, slot: ExecutorSlot) -> None:
        """At an address of the slot's own, the same one when a slot of that name has been there before."""
        host = self._hosts.get(slot.name) or next(self._free_hosts)
        self._hosts = {**self._hosts, slot.name: host}
        memory = max(slot.memory_bytes, self.heap_bytes) // MEBIBYTE
        folder = self.directory / slot.name
        options = (SHARED_CLASSES, temporary_folder(self.scratch))
        command = worker_command(self._java, self._properties, host, memory, folder, self.master, *options)
        self._spawn(slot.name, command, _worker_environment(slot, host, self.directory), self._limiter.add(slot.name))

    def _start_supervisor(self, resources: ClusterResources, undo: ExitStack) -> None:
        roots = [str(root) for root in resources.cgroups]
        command = [sys.executable, "-m", "streamtopology.jobs.local.supervisor", str(os.getpid()), resources.name]
        supervisor = subprocess.Popen(
            [*command, str(resources.directory), *roots], stdin=subprocess.PIPE, start_new_session=True
        )
        undo.callback(supervisor.wait, SUPERVISOR_SECONDS)
        assert supervisor.stdin is not None
        undo.callback(supervisor.stdin.close)

    def _end(self, resources: ClusterResources) -> None:
        with _remains_reported():
            resources.sweep()
        for process in self._processes.values():
            process.wait()

    def _write_properties(self) -> Path:
        """Settings of master and workers; the secret is in this file (ours alone to read) and in no command line."""
        settings = {
            "spark.authenticate": "true",
            "spark.authenticate.secret": self.secret,
            "spark.worker.cleanup.enabled": "false",
        }
        path = self.directory / "spark.properties"
        path.touch(mode=0o600)
        path.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        return path

    def _spawn(self, name: str, command: Sequence[str], environment: dict[str, str], groups: Sequence[Path] = ()) -> None:
        """Start a process that bears the cluster's and the slot's mark and joins the slot's groups before anything else."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(_NOT_INHERITED)}
        marks = {CLUSTER_MARK: self.name, SLOT_MARK: name}
        with (self.directory / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                ["/bin/sh", "-c", _JOIN_GROUPS_THEN_EXEC, "sh", *map(str, groups), "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**inherited, **environment, **marks, **SPARK_ENVIRONMENT, **spelling()},
                start_new_session=True,
            )

    def _await_master(self) -> str:
        """The master's URL, read from its log because it takes a free port."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            ready = _MASTER_READY.search((self.directory / "master.log").read_text(errors="replace"))
            if ready:
                return ready[1]
            self.check()
            time.sleep(0.02)
        raise ClusterError(f"the Spark master did not start within {START_SECONDS:.0f} s")


def heap_bytes(executors: Sequence[ExecutorSlot]) -> int:
    """The JVM heap of every executor: Spark knows one size per application, so the smallest executor decides."""
    smallest = min(slot.memory_bytes for slot in executors)
    return max(SMALLEST_HEAP_BYTES, min(LARGEST_HEAP_BYTES, int(smallest * HEAP_SHARE)))


def _worker_environment(slot: ExecutorSlot, host: str, directory: Path) -> dict[str, str]:
    return {
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(directory / slot.name),
        # Installers such as uv compile nothing: without a cache every executor would compile all it imports, 1 s of CPU.
        "PYTHONPYCACHEPREFIX": str(cache_folder() / "bytecode"),
        "SPARK_EXECUTOR_ATTRIBUTE_CLASS": slot.class_name,
        "SPARK_EXECUTOR_ATTRIBUTE_SLOT": slot.name,
    }


def cache_folder() -> Path:
    """Return the folder of files that are made once per user and machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamtopology"
