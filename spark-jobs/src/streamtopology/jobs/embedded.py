"""The embedded cluster ready for batches: executors up, warm, and without limits until the topology has warmed up, too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from streamtopology.jobs.cluster import SessionKeeper, warm_up
from streamtopology.jobs.executors import ExecutorWatch
from streamtopology.jobs.local.cluster import ExecutorSlot, LocalCluster
from streamtopology.jobs.pinning import ExecutorInfo
from streamtopology.jobs.session import create_local_session


class EmbeddedCluster(SessionKeeper):
    """Implements `Cluster`. Enter it to have the executors of `slots` up and admitted.

    `progress` gets a sentence for each step. Executors are held to their class's CPU outside `unlimited`: starting under
    the final limit takes three times as long.
    """

    def __init__(self, name: str, slots: tuple[ExecutorSlot, ...], work_dir: Path, progress: Callable[[str], None]) -> None:
        super().__init__()
        self._name = name
        self._slots = slots
        self._work_dir = work_dir
        self._progress = progress
        self._cluster: LocalCluster | None = None

    @property
    def cluster(self) -> LocalCluster:
        assert self._cluster is not None, "enter the cluster first"
        return self._cluster

    @property
    def slots(self) -> tuple[ExecutorSlot, ...]:
        return self.cluster.slots

    def _begin(self, undo: ExitStack) -> None:
        self._cluster = undo.enter_context(LocalCluster(self._slots, self._work_dir, self._progress))
        self._spark = create_local_session(self._cluster, self._name)
        undo.callback(self._spark.stop)
        self._progress(f"waiting for {len(self._slots)} executors")
        check = self._cluster.check
        watch = ExecutorWatch(self._spark, partial(warm_up, self._spark), self._progress, self._lift, self._limit, check)
        self._watch = undo.enter_context(watch)
        self._watch.await_admitted(len(self._slots))

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """While entered, executors may use all CPU there is: for warming up."""
        for slot in self.cluster.slots:
            self.cluster.lift(slot.name)
        try:
            yield
        finally:
            self.cluster.limit()

    def slot_of(self, executor: ExecutorInfo) -> str:
        """By the executor's address, which each slot has of its own."""
        return self.cluster.slot_at(executor.host)

    def start(self, slots: Sequence[ExecutorSlot]) -> None:
        """Start executors beside those there are; each runs without a limit until it is admitted."""
        for slot in slots:
            self._progress(f"starting executor {slot.name}")
            self.cluster.add(slot)

    def release(self, slots: Collection[str]) -> None:
        """End the executors of these slots at once: they hold nothing that anyone needs."""
        for name in slots:
            self._progress(f"stopping executor {name}")
            self.cluster.remove(name)

    def resize(self, class_name: str, cpu: float) -> None:
        """Change the CPU of every executor of a class, at once where the limit is in force."""
        self.cluster.resize(class_name, cpu)

    def _lift(self, executor: ExecutorInfo) -> None:
        """The slot's next executor starts without a limit, as the first one did."""
        if self._is_there(executor):
            self.cluster.lift(self.slot_of(executor))

    def _limit(self, executor: ExecutorInfo) -> None:
        if self._is_there(executor):
            self.cluster.limit(self.slot_of(executor))

    def _is_there(self, executor: ExecutorInfo) -> bool:
        """Whether its slot has not been released meanwhile."""
        return self.slot_of(executor) in {slot.name for slot in self.cluster.slots}
