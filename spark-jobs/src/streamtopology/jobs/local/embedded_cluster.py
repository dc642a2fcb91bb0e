"""The embedded cluster, ready for batches: executors up, warm, and without limits until the topology has warmed up."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from streamtopology.jobs.local.local_cluster import LocalCluster
from streamtopology.jobs.local.spark_session import LOCAL_DRIVER, NO_JARS, create_local_session, start_local_jvm
from streamtopology.jobs.local.start_steps import StartSteps
from streamtopology.jobs.spark.cluster import ExecutorSlot, SessionKeeper
from streamtopology.jobs.spark.executor_watch import ExecutorWatch
from streamtopology.jobs.spark.executors import ExecutorInfo
from streamtopology.jobs.spark.session import stop_session
from streamtopology.jobs.spark.spark_scheduler import SparkScheduler
from streamtopology.jobs.spark.user_settings import jars_of
from streamtopology.jobs.spark.warm_up import warm_up


class EmbeddedCluster(SessionKeeper):
    """Implements `Cluster`. Enter it to have the executors of `slots` up and admitted.

    `steps` gets each step of the start, and later each change. `settings`: further ones of Spark. Executors are held to their
    class's CPU outside `unlimited`: starting under the final limit takes three times as long.
    """

    def __init__(
        self,
        name: str,
        slots: tuple[ExecutorSlot, ...],
        work_dir: Path,
        steps: StartSteps,
        settings: Mapping[str, str] = NO_JARS,
    ) -> None:
        super().__init__()
        self._name = name
        self._slots = slots
        self._work_dir = work_dir
        self._steps = steps
        self._settings = settings
        self._cluster: LocalCluster | None = None
        self._warm: set[str] = set()
        self._is_starting = True

    @property
    def cluster(self) -> LocalCluster:
        assert self._cluster is not None, "enter the cluster first"
        return self._cluster

    @property
    def slots(self) -> tuple[ExecutorSlot, ...]:
        return self.cluster.slots

    def _begin(self, undo: ExitStack) -> None:
        with ThreadPoolExecutor(1, "driver-jvm") as meanwhile:
            cluster = LocalCluster(self._slots, self._work_dir, self._steps.detail)
            jars = jars_of(self._settings)
            driver = meanwhile.submit(start_local_jvm, cluster.directory, jars)
            self._cluster = undo.enter_context(cluster)
            self._steps.driver()
            if packages := jars.get("spark.jars.packages"):
                self._steps.detail(f"fetching {packages} unless they are there")
            driver.result()
        self._spark = create_local_session(self._cluster, self._name, self._settings)
        undo.callback(stop_session, self._spark)
        self._steps.executors(0)
        check = self._cluster.check
        scheduler, warm = SparkScheduler(self._spark), partial(warm_up, self._spark)
        watch = ExecutorWatch(scheduler, warm, self._steps.detail, self._lift, self._admit, check, self.slot_of)
        self._watch = undo.enter_context(watch)
        self._watch.await_admitted(len(self._slots))
        self._is_starting = False

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """While entered, executors may use all CPU there is: for warming up."""
        for slot in self.cluster.slots:
            self.cluster.lift(slot.name)
        try:
            yield
        finally:
            self.cluster.limit()

    @property
    def secret(self) -> str:
        return self.cluster.secret

    @property
    def desk_listens(self) -> str:
        return f"{LOCAL_DRIVER['spark.driver.bindAddress']}:0"

    @property
    def worker_port(self) -> int:
        return 0

    def slot_of(self, executor: ExecutorInfo) -> str:
        """Return the slot that has the executor's address."""
        return self.cluster.slot_at(executor.host)

    def check_room(self, slots: Collection[ExecutorSlot]) -> None:
        """Raise NoRoom if this machine cannot hold the executors of `slots`."""
        self.cluster.check_room(slots)

    def start(self, slots: Sequence[ExecutorSlot]) -> None:
        """Start further executors; each runs without a limit until it is admitted."""
        for slot in slots:
            self._steps.detail(f"starting executor {slot.name}")
            self.cluster.add(slot)

    def release(self, slots: Collection[str]) -> None:
        """End the executors of these slots at once."""
        self.watch.release(slots)
        for name in slots:
            self._steps.detail(f"stopping executor {name}")
            self.cluster.remove(name)

    def resize(self, class_name: str, cpu: float) -> None:
        """Change the CPU of every executor of a class, at once where the limit is in force."""
        self.cluster.resize(class_name, cpu)

    def _lift(self, executor: ExecutorInfo) -> None:
        """Let the slot's next executor start without a limit, as the first one did."""
        if self._is_there(executor):
            self.cluster.lift(self.slot_of(executor))

    def _admit(self, executor: ExecutorInfo) -> None:
        if self._is_starting:
            self._warm.add(executor.id)
            self._steps.executors(len(self._warm))
        if self._is_there(executor):
            self.cluster.limit(self.slot_of(executor))

    def _is_there(self, executor: ExecutorInfo) -> bool:
        """True if its slot has not been released meanwhile."""
        return self.slot_of(executor) in {slot.name for slot in self.cluster.slots}
