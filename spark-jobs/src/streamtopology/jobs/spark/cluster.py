"""The port between a run and its executors: an embedded cluster on this machine, or pods on Kubernetes.

A run sees slots (numbered, each of an executor class) and the executors that fill them. Starting executors and limiting
their CPU is left to the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from streamtopology.jobs.realtime.runner import Workers
from streamtopology.jobs.spark.executor_watch import ExecutorWatch
from streamtopology.jobs.spark.executors import ExecutorInfo
from streamtopology.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class ExecutorSlot:
    """One executor: a name unique in the cluster, its class, its CPU limit in cores, its memory (JVM and Python) in bytes."""

    name: str
    class_name: str
    cpu: float
    memory_bytes: int

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            raise ValueError(f"executor name {self.name!r}: letters, digits, '.', '_' and '-' only")
        if not self.cpu > 0:
            raise ValueError(f"executor {self.name}: cpu must be more than 0 cores, not {self.cpu}")


@dataclass(frozen=True)
class WorkersRun:
    """What workers of real time are for.

    run: the name of their messages. driver: the address of the desk. generation: the driver's among those of its checkpoint.
    batches: as `BatchLoop.run`.
    """

    run: str
    driver: str
    generation: int
    batches: str


class Cluster(Protocol):
    """Executors that are up, or come up during a run. All methods may be called from any thread."""

    @property
    def spark(self) -> SparkSession:
        """The session, where there is one: a run in real time does without."""
        ...

    @property
    def watch(self) -> ExecutorWatch:
        """The watch that admits executors to work; it admits none without a slot."""
        ...

    @property
    def slots(self) -> tuple[ExecutorSlot, ...]:
        """The existing slots, each with the current CPU of its class; a slot may be without an executor."""
        ...

    @property
    def is_warm(self) -> bool:
        """True if executors have run the same topology before, for a driver that has died: a batch need not wait for others."""
        ...

    @property
    def served(self) -> int:
        """The newest generation of drivers that they have worked for; 0: none."""
        ...

    @property
    def secret(self) -> str:
        """The secret by which Spark's processes know each other, as executors have it in their environment."""
        ...

    @property
    def desk_listens(self) -> str:
        """Host and port at which workers of real time reach the driver; port 0: any that is free."""
        ...

    def workers(self, run: WorkersRun) -> Workers:
        """Return the workers of a run in real time."""
        ...

    def slot_of(self, executor: ExecutorInfo) -> str:
        """Return the name of the slot that an admitted executor fills; a restarted executor fills the same slot."""
        ...

    def check_room(self, slots: Collection[ExecutorSlot]) -> None:
        """Raise Unavailable if the cluster can never hold the executors of `slots`, all that it would have then."""
        ...

    def start(self, slots: Sequence[ExecutorSlot]) -> None:
        """Add these slots; `watch` admits their executors when they are warm."""
        ...

    def release(self, slots: Collection[str]) -> None:
        """Remove these slots and end their executors: no batch needs them any more."""
        ...

    def unlimited(self) -> AbstractContextManager[None]:
        """While entered, lift the executors' CPU limits if the cluster can: for warming up."""
        ...

    def resize(self, class_name: str, cpu: float) -> None:
        """Give executors of the class `cpu` cores from now on. Raises ValueError if there is no such class."""
        ...


class SessionKeeper:
    """The common part of all clusters: a context manager that keeps the Spark session and the watch over its executors.

    A start that failed is undone.
    """

    is_warm = False
    served = 0

    def __init__(self) -> None:
        self._undo = ExitStack()
        self._spark: SparkSession | None = None
        self._watch: ExecutorWatch | None = None

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None, "enter the cluster first"
        return self._spark

    @property
    def watch(self) -> ExecutorWatch:
        assert self._watch is not None, "enter the cluster first"
        return self._watch

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._begin(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._undo.close()

    def workers(self, run: WorkersRun) -> Workers:
        from streamtopology.jobs.spark.resident_workers import ResidentWorkers

        return ResidentWorkers(self.spark, self.watch, self.slot_of, run.run, run.driver, self.worker_port)

    @property
    def worker_port(self) -> int:
        """The port at which a worker of real time listens on its executor's host; 0: any that is free."""
        raise NotImplementedError

    def slot_of(self, executor: ExecutorInfo) -> str:
        """As `Cluster` has it."""
        raise NotImplementedError

    def _begin(self, undo: ExitStack) -> None:
        """Set session and watch, and enter into `undo` whatever ends them."""
        raise NotImplementedError


def executor_slots(topology: Topology) -> tuple[ExecutorSlot, ...]:
    """One slot per replica, classes in the manifest's order."""
    return tuple(
        ExecutorSlot(f"{executor.name}-{index}", executor.name, executor.cpu, executor.memory_bytes)
        for executor in topology.executors
        for index in range(executor.replicas)
    )
