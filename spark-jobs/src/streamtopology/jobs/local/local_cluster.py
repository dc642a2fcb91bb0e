"""Spark's executors on this machine, each a process with an address of its own, held to its executor class's CPU.

    slots = [ExecutorSlot("large-0", "large", cpu=0.45, memory_bytes=2 << 30), ExecutorSlot("small-0", "small", 0.135, 1 << 30)]
    with LocalCluster(slots, Path("build/cluster"), print) as cluster:
        spark = create_local_session(cluster)    # starts the executors, unlimited: they warm up in a third of the time
        cluster.limit()
        cluster.resize("small", 0.3)

Nothing leaves the loopback interface, and nothing is left behind, however this process ends (see `supervisor`).
"""

from __future__ import annotations

import itertools
import os
import secrets
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from streamtopology.contract import environment as variables
from streamtopology.contract.errors import Unavailable
from streamtopology.jobs.local.cgroups import cgroup_parents
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
from streamtopology.jobs.local.kept_cluster import AdoptedProcess, KeptCluster, KeptProcess, Purpose, claim_kept
from streamtopology.jobs.local.loopback import Subnet
from streamtopology.jobs.local.spelling import spelling
from streamtopology.jobs.spark.cluster import MEBIBYTE, ExecutorSlot
from streamtopology.jobs.spark.java import Java, find_java
from streamtopology.jobs.spark.launcher import Launcher, Pauses, Process, answers
from streamtopology.jobs.spark.processes import CLASS_PATH, SPARK_ENVIRONMENT, DriverAddress, backend_command
from streamtopology.jobs.spark.worker_variables import OF_EXECUTORS

SMALLEST_HEAP_BYTES = 512 * MEBIBYTE  # Spark refuses executors below 450 MiB
LARGEST_HEAP_BYTES = 4096 * MEBIBYTE
HEAP_SHARE = 0.4  # the operators' state lives in the Python worker, not in the JVM
SUPERVISOR_SECONDS = 30.0
# So long do processes that can be taken over wait for a driver.
OUTLIVE_SECONDS = 30.0

# Spark's own cluster inside the driver's JVM, with no workers: the executors are ours to start. It would refuse executors with
# more memory than its workers have, 1 TB here.
MASTER = "local-cluster[0,1,1048576]"
# An executor that ends within five seconds of its start, so often in a row, cannot start at all.
MOST_SHORT_LIVES = 5
PAUSES = Pauses(first=0.05, short_life=5.0)
_BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_JOIN_GROUPS_THEN_EXEC = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift; exec "$@"'
_NOT_INHERITED = ("SPARK_", "PYSPARK_", "PYTHONDONTWRITEBYTECODE")
_serials = itertools.count(1)


class ClusterError(Unavailable):
    """The embedded cluster cannot start or be removed, or one of its executors cannot start."""


class Program(Protocol):
    """What runs in each slot."""

    def is_awaited(self) -> bool:
        """True if it can be started now."""
        ...

    def started_by(self, slot: ExecutorSlot, host: str, number: int) -> tuple[Sequence[str], Mapping[str, str]]:
        """The command and variables of its environment, in a slot at `host`; no other start has the same `number`."""
        ...


@dataclass(frozen=True)
class RunningProgram:
    """One life of the program in a slot."""

    number: int
    slot: str
    host: str
    process: Process


@dataclass(frozen=True)
class _SparkExecutors:
    """Implements `Program`: executors of the driver at an address, which may not listen any more."""

    java: Java
    driver: DriverAddress
    settings: Mapping[str, str]
    heap_bytes: int
    directory: Path
    secret: str

    def is_awaited(self) -> bool:
        host, _, port = self.driver.address.rpartition(":")
        return answers(host, int(port))

    def started_by(self, slot: ExecutorSlot, host: str, number: int) -> tuple[Sequence[str], Mapping[str, str]]:
        options = [*shlex.split(self.settings["spark.executor.extraJavaOptions"]), f"-Xmx{self.heap_bytes // MEBIBYTE}m"]
        class_path = ":".join(filter(None, [self.settings.get("spark.executor.extraClassPath"), CLASS_PATH]))
        options.append("-Dspark.authenticate=true")
        command = backend_command(self.java, _BACKEND, options, self.driver, str(number), host, class_path)
        return command, executor_environment(slot, host, self.directory, self.secret, self.settings)


@contextmanager
def _remains_reported() -> Iterator[None]:
    """Raise RemainsError as ClusterError: `cleanup` has the standard library alone, without the project's errors."""
    try:
        yield
    except RemainsError as error:
        raise ClusterError(str(error)) from error


class LocalCluster:
    """The executors, as a context manager; see the module's example.

    `work_dir` is created when missing; the cluster keeps everything in one folder of its own below it. `progress` gets
    a sentence for every step. Starting raises `JavaMissing` or `ClusterError`; more executors than this machine can hold are
    `NoRoom`.

    purpose: if given, the processes outlive this one by `OUTLIVE_SECONDS`, and a cluster for the same purpose takes them over.
    """

    _limiter: CpuLimiter
    _free_hosts: Iterator[str]

    def __init__(
        self,
        executors: Sequence[ExecutorSlot],
        work_dir: Path,
        progress: Callable[[str], None],
        purpose: Purpose | None = None,
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
        self._limited: set[str] = set()
        self._launchers: dict[str, tuple[Launcher, threading.Thread]] = {}
        self._hosts: dict[str, str] = {}
        self._ids = itertools.count()
        self._program: Program | None = None
        self._lock = threading.Lock()
        self._running: dict[str, RunningProgram] = {}
        self._purpose = purpose
        self._left: dict[str, RunningProgram] = {}
        self._has_taken_over = False
        self.keeper = 0
        """The process that ends all others in the end, however this one ends."""
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
        """Process ids of the slot: its executor, the Python daemon and workers."""
        return members(self.name, slot)

    def start(self) -> Self:
        """Take what the executors need on this machine. They start once there is a driver to `serve`."""
        work_dir = self.directory.parent
        work_dir.mkdir(parents=True, exist_ok=True)
        with _remains_reported():
            kept = None if self._purpose is None else claim_kept(work_dir, self._purpose)
            swept = sweep_dead_clusters(work_dir, cgroup_parents())
        for name in swept:
            self._progress(f"removed the remains of a dead process: {name}")
        with ExitStack() as undo:
            if kept is None:
                self._begin(undo)
            else:
                self._take_over(kept, undo)
            self._undo = undo.pop_all()
        return self

    def _begin(self, undo: ExitStack) -> None:
        subnet = undo.enter_context(Subnet.take())
        self._limiter = best_limiter(self.name, self._progress)
        resources = ClusterResources(self.name, self.directory, self._limiter.roots)
        self._start_supervisor(resources, subnet, undo)
        undo.callback(self._end, resources)
        undo.callback(self._limiter.close)
        self.directory.mkdir(mode=0o700, exist_ok=True)  # the driver's JVM may have begun there
        self.scratch.mkdir()
        self._free_hosts = iter(subnet.hosts)

    def _take_over(self, kept: KeptCluster, undo: ExitStack) -> None:
        """Have the processes that a dead driver has left, where a slot still has one."""
        self.name, self.secret, self.keeper = kept.name, kept.secret, kept.keeper
        self.directory = self.directory.with_name(kept.name)
        self._limiter = best_limiter(self.name, self._progress)
        undo.callback(self._end, ClusterResources(self.name, self.directory, self._limiter.roots))
        undo.callback(self._limiter.close)
        for slot, one in kept.processes.items():
            with suppress(ProcessLookupError):
                if one.pid in members(self.name, slot):
                    self._left[slot] = RunningProgram(one.number, slot, one.host, AdoptedProcess(one.pid))
        self._running = dict(self._left)  # so that they stay noted, if this driver dies soon
        self._hosts = {slot: one.host for slot, one in kept.processes.items()}
        self._free_hosts = iter(Subnet.hosts_beside(*self._hosts.values()))
        self._ids = itertools.count(1 + max(one.number for one in kept.processes.values()))
        self._has_taken_over = not self._slots.keys().isdisjoint(self._left)
        self._progress(f"taking over {len(self._left)} of {len(self._slots)} executors that the driver before has left")

    @property
    def is_taken_over(self) -> bool:
        """True if the process of any slot was a dead driver's when this cluster started."""
        return self._has_taken_over

    def serve(self, driver: DriverAddress, settings: Mapping[str, str]) -> None:
        """Start the executors of `driver`, of which Spark has the `settings`; those of an earlier driver have ended with it."""
        self.run(_SparkExecutors(find_java(), driver, settings, self.heap_bytes, self.directory, self.secret))

    def run(self, program: Program) -> None:
        """Have `program` run in each slot, also in those that are added later."""
        self._program = program
        for name in self._left.keys() - self._slots.keys():
            with _remains_reported():
                kill_members(self.name, name)
            del self._running[name]
        for slot in self.slots:
            if slot.name not in self._launchers:
                self._launch(slot)

    def running(self) -> list[RunningProgram]:
        """The programs that run now."""
        return [running for running in tuple(self._running.values()) if running.process.poll() is None]

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
        """Start one more executor, unlimited until `limit`; there is room. Raises ValueError if its name exists."""
        if slot.name in self._slots:
            raise ValueError(f"an executor {slot.name} exists already")
        self._slots = {**self._slots, slot.name: slot}
        self._launch(slot)

    def remove(self, name: str) -> None:
        """End the executor and all its processes; raises KeyError if none of that name exists."""
        self._slots = {other: slot for other, slot in self._slots.items() if other != name}
        self._limited.discard(name)
        launcher, thread = self._launchers.pop(name)
        launcher.no_more()
        while thread.is_alive():  # it may just be starting one
            with _remains_reported():
                kill_members(self.name, name)
            thread.join(0.1)
        with _remains_reported():
            kill_members(self.name, name)  # the executor's Python processes may outlive it by a moment
        with self._lock:
            self._running.pop(name, None)
            self._keep()

    def check(self) -> None:
        """Raise `ClusterError` with the end of its log when an executor ends again and again as it starts."""
        for name, (launcher, _) in tuple(self._launchers.items()):
            if launcher.short_lives >= MOST_SHORT_LIVES:
                log = (self.directory / f"{name}.log").read_text(errors="replace").splitlines()
                said = f"executor {name} has ended {launcher.short_lives} times as it started, with code {launcher.code}:"
                raise ClusterError("\n".join([said, *log[-15:]]))

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

    def _launch(self, slot: ExecutorSlot) -> None:
        """At an address of the slot's own, the same one when a slot of that name has been there before."""
        host = self._hosts.get(slot.name) or next(self._free_hosts)
        self._hosts = {**self._hosts, slot.name: host}
        groups = self._limiter.add(slot.name)
        self._progress(f"starting executor {slot.name} (CPU limits: {self._limiter.kind})")
        start = partial(self._start, slot, host, groups)
        launcher = Launcher(start, self._is_awaited, "this machine", lambda _: None, PAUSES)
        thread = threading.Thread(target=launcher.run, name=f"executor-{slot.name}", daemon=True)
        self._launchers[slot.name] = launcher, thread
        thread.start()

    def _is_awaited(self) -> bool:
        return self._program is not None and self._program.is_awaited()

    def _start(self, slot: ExecutorSlot, host: str, groups: Sequence[Path]) -> Process:
        """Start the slot's program once more, under a number that there has not been: Spark wants that."""
        assert self._program is not None, "it is awaited"
        running = self._left.pop(slot.name, None)
        if running is None:
            if self._purpose is not None:
                kill_members(self.name, slot.name)  # one that a driver has started and not yet noted
            number = next(self._ids)
            command, environment = self._program.started_by(slot, host, number)
            running = RunningProgram(number, slot.name, host, self._spawn(slot.name, command, environment, groups))
        with self._lock:
            self._running[slot.name] = running
            self._keep()
        return running.process

    def _keep(self) -> None:
        """Note for a driver after this one what runs."""
        if self._purpose is not None:
            processes = {one.slot: KeptProcess(one.number, one.process.pid, one.host) for one in self._running.values()}
            cgroups = tuple(map(str, self._limiter.roots))
            KeptCluster(self.name, self.secret, self.keeper, self._purpose, cgroups, processes).save(self.directory)

    def _start_supervisor(self, resources: ClusterResources, subnet: Subnet, undo: ExitStack) -> None:
        """Start what removes the cluster after us. It has our addresses as long as the cluster can be taken over."""
        roots = [str(root) for root in resources.cgroups]
        seconds, inherited = ("0", ()) if self._purpose is None else (str(OUTLIVE_SECONDS), (subnet.descriptor,))
        command = [sys.executable, "-m", "streamtopology.jobs.local.supervisor", seconds, str(os.getpid()), resources.name]
        supervisor = subprocess.Popen(
            [*command, str(resources.directory), *roots],
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=inherited,
        )
        self.keeper = supervisor.pid
        undo.callback(supervisor.wait, SUPERVISOR_SECONDS)
        assert supervisor.stdin is not None
        undo.callback(supervisor.stdin.close)

    def _end(self, resources: ClusterResources) -> None:
        for launcher, _ in self._launchers.values():
            launcher.no_more()
        with _remains_reported():
            resources.sweep()
            for _, thread in self._launchers.values():
                while thread.is_alive():  # it may just be starting one
                    resources.sweep()
                    thread.join(0.1)

    def _spawn(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], groups: Sequence[Path]
    ) -> subprocess.Popen[bytes]:
        """Start a process that bears the cluster's and the slot's mark and joins the slot's groups before anything else."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(_NOT_INHERITED)}
        marks = {CLUSTER_MARK: self.name, SLOT_MARK: name}
        folder = self.directory / name
        folder.mkdir(exist_ok=True)
        with (self.directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                ["/bin/sh", "-c", _JOIN_GROUPS_THEN_EXEC, "sh", *map(str, groups), "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**inherited, **environment, **marks, **SPARK_ENVIRONMENT, **spelling()},
                start_new_session=True,
            )


def heap_bytes(executors: Sequence[ExecutorSlot]) -> int:
    """The JVM heap of every executor: Spark knows one size per application, so the smallest executor decides."""
    smallest = min(slot.memory_bytes for slot in executors)
    return max(SMALLEST_HEAP_BYTES, min(LARGEST_HEAP_BYTES, int(smallest * HEAP_SHARE)))


def executor_environment(
    slot: ExecutorSlot, host: str, directory: Path, secret: str, settings: Mapping[str, str]
) -> dict[str, str]:
    """The variables of an executor. `settings`: Spark's, some of which are variables, too."""
    chosen = {name.removeprefix(OF_EXECUTORS): value for name, value in settings.items() if name.startswith(OF_EXECUTORS)}
    return {
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(directory / slot.name),
        # Installers such as uv compile nothing: without a cache every executor would compile all it imports, 1 s of CPU.
        "PYTHONPYCACHEPREFIX": str(cache_folder() / "bytecode"),
        variables.SPARK_ATTRIBUTE_CLASS: slot.class_name,
        "SPARK_EXECUTOR_ATTRIBUTE_SLOT": slot.name,
        "_SPARK_AUTH_SECRET": secret,
        **chosen,
    }


def cache_folder() -> Path:
    """Return the folder of files that are made once per user and machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamtopology"
