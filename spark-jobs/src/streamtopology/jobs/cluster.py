"""The port between a run and the executors it runs on: an embedded cluster here, pods on Kubernetes elsewhere.

A run sees slots (numbered, each of an executor class) and the executors that fill them; who starts executors, and what
holds them to their CPU, is the cluster's own affair.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol, Self

from pyspark.sql import SparkSession

from streamtopology.jobs.executors import ExecutorWatch
from streamtopology.jobs.local.cluster import ExecutorSlot
from streamtopology.jobs.pinning import ExecutorInfo, Sending, Slot, exchanged, placed, stage
from streamtopology.jobs.tasks import warm_stage
from streamtopology.routing.topology import Topology

_WARM_UP_ROUNDS = 3


class Cluster(Protocol):
    """Executors that are up, or come up while a run goes on. All of it may be called from any thread."""

    @property
    def spark(self) -> SparkSession: ...

    @property
    def watch(self) -> ExecutorWatch:
        """Tells which executors may be given work; it admits none without a slot."""
        ...

    @property
    def slots(self) -> tuple[ExecutorSlot, ...]:
        """The slots that there are, each with its class's present CPU; one may be without an executor."""
        ...

    def slot_of(self, executor: ExecutorInfo) -> str:
        """The name of the slot that an admitted executor fills: it stays the same when the executor is started anew."""
        ...

    def start(self, slots: Sequence[ExecutorSlot]) -> None:
        """These slots are there from now on, beside the others; `watch` admits their executors when they are warm."""
        ...

    def release(self, slots: Collection[str]) -> None:
        """No batch needs the executors of these slots any more: they may end, and the slots are gone."""
        ...

    def unlimited(self) -> AbstractContextManager[None]:
        """While entered, executors may use all CPU there is, where the cluster can lift limits: for warming up."""
        ...

    def resize(self, class_name: str, cpu: float) -> None:
        """From now on executors of the class have `cpu` cores. ValueError: there is no such class."""
        ...


class SessionKeeper:
    """The part of a `Cluster` that all have in common: a context manager that keeps Spark's session and the watch over its
    executors while it is entered. What is left of a start that failed is ended, too."""

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

    def _begin(self, undo: ExitStack) -> None:
        """Sets session and watch, and enters into `undo` what ends them."""
        raise NotImplementedError


def executor_slots(topology: Topology) -> tuple[ExecutorSlot, ...]:
    """One slot per replica, classes in the manifest's order."""
    return tuple(
        ExecutorSlot(f"{executor.name}-{index}", executor.name, executor.cpu, executor.memory_bytes)
        for executor in topology.executors
        for index in range(executor.replicas)
    )


def warm_up(spark: SparkSession, executor: ExecutorInfo) -> None:
    """Start the executor's Python worker and its kernels, with what a batch will run, before it is given work."""
    slots: list[Slot] = [executor.slot]
    for _ in range(_WARM_UP_ROUNDS):
        sending = Sending(stage(placed(spark, slots), warm_stage(len(slots))), len(slots))
        stage(exchanged(sending, slots), warm_stage(len(slots))).collect()
