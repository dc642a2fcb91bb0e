"""Executors in pods. The operator starts, sizes and ends them; this side only knows which slot each of them fills."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from streamtopology.contract.pods import WORKERS_PORT
from streamtopology.jobs.pods.environment import SECRET_FILE, DriverEnvironment
from streamtopology.jobs.pods.spark_settings import MASTER, driver_settings
from streamtopology.jobs.spark.cluster import MEBIBYTE, ExecutorSlot, SessionKeeper, executor_slots
from streamtopology.jobs.spark.executor_watch import ExecutorWatch
from streamtopology.jobs.spark.executors import ExecutorInfo
from streamtopology.jobs.spark.session import create_session, spark_conf, stop_session
from streamtopology.jobs.spark.spark_scheduler import SparkScheduler
from streamtopology.jobs.spark.user_settings import user_settings
from streamtopology.jobs.spark.warm_up import warm_up
from streamtopology.topology import Topology

# From the first executor on, how long to wait for all of them before one of each class is enough.
PATIENCE_SECONDS = 10.0

# From the first executor on, how long to wait for one of each class before any is enough.
LONG_PATIENCE_SECONDS = 60.0

_LOOK_SECONDS = 0.2
_REPEAT_SECONDS = 10.0


class Stopped(Exception):
    """The process was stopped before the run began."""


def enough(slots: Sequence[ExecutorSlot], filled: Collection[str], waited_seconds: float) -> bool:
    """True if a run can begin with the executors of the slots named `filled`, `waited_seconds` after the first one.

    At first all are waited for, as they usually arrive together; then one of each class is enough, and in the end any one:
    the others' instances are dealt to the present executors, and return when their executor arrives.
    """
    there = [slot for slot in slots if slot.name in filled]
    if len(there) == len(slots):
        return True
    if {slot.class_name for slot in there} == {slot.class_name for slot in slots}:
        return waited_seconds >= PATIENCE_SECONDS
    return bool(there) and waited_seconds >= LONG_PATIENCE_SECONDS


class KubernetesCluster(SessionKeeper):
    """Implements `Cluster`. Entered when the session is up and enough executors are admitted; others may arrive later.

    `progress` gets a sentence for each step on the way there, `notify` one for each executor that arrives or is lost, at any
    time. `is_stopping` is asked while waiting, which then ends with `Stopped`.
    """

    def __init__(
        self,
        environment: DriverEnvironment,
        topology: Topology,
        progress: Callable[[str], None],
        notify: Callable[[str], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        super().__init__()
        self._environment = environment
        self._slots = executor_slots(topology)
        self._spark_conf = topology.spark_conf
        self._progress = progress
        self._notify = notify
        self._is_stopping = is_stopping

    @property
    def slots(self) -> tuple[ExecutorSlot, ...]:
        return self._slots

    def _begin(self, undo: ExitStack) -> None:
        self._progress("starting Spark")
        self._spark = create_session(self._environment.topology, MASTER, self._settings())
        undo.callback(stop_session, self._spark)
        scheduler, warm = SparkScheduler(self._spark), partial(warm_up, self._spark)
        watch = ExecutorWatch(scheduler, warm, self._notify, slot_of=self.slot_of)
        self._watch = undo.enter_context(watch)
        self._await_executors()

    @property
    def secret(self) -> str:
        return base64.b64encode(SECRET_FILE.read_bytes()).decode()

    @property
    def desk_listens(self) -> str:
        return f"{self._environment.pod_ip}:{WORKERS_PORT}"

    @property
    def worker_port(self) -> int:
        return WORKERS_PORT

    def slot_of(self, executor: ExecutorInfo) -> str:
        """Return the slot of the executor's class and its pod's ordinal, even if the topology does not have that slot now."""
        return f"{executor.attributes.get('CLASS')}-{executor.attributes.get('POD_NAME', '').rpartition('-')[2]}"

    def start(self, slots: Sequence[ExecutorSlot]) -> None:
        """Add the slots; the operator makes the pods, and their executors may have arrived already."""
        if self._watch is not None:
            self._watch.retain([slot.name for slot in slots])
        self._slots = (*self._slots, *slots)

    def release(self, slots: Collection[str]) -> None:
        """Remove the slots; the operator deletes the pods once `/stats` no longer lists these slots."""
        if self._watch is not None:
            self._watch.release(slots)
        self._slots = tuple(slot for slot in self._slots if slot.name not in slots)

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """Do nothing: the operator sets the pods' limits."""
        yield

    def check_room(self, slots: Collection[ExecutorSlot]) -> None:
        """Do nothing: pods that find no node wait for one."""

    def resize(self, class_name: str, cpu: float) -> None:
        """Change the class's declared CPU; the operator resizes the pods."""
        if class_name not in {slot.class_name for slot in self._slots}:
            known = ", ".join(sorted({slot.class_name for slot in self._slots}))
            raise ValueError(f"no executor class {class_name!r}; there are: {known}")
        self._slots = tuple(replace(slot, cpu=cpu) if slot.class_name == class_name else slot for slot in self._slots)

    def _settings(self) -> dict[str, str]:
        heap = self._environment.heap_mebibytes * MEBIBYTE  # executors have theirs from their own command line
        ours = {**spark_conf(len(self._slots), heap, python=sys.executable), **driver_settings(self._environment)}
        return {**ours, **user_settings(self._spark_conf)}

    def _await_executors(self) -> None:
        first_at: float | None = None
        shown, shown_at = "", time.monotonic()
        while not self._is_stopping():
            self.watch.raise_failure()
            filled = {self.slot_of(executor) for executor in self.watch.admitted()}
            now = time.monotonic()
            if filled and first_at is None:
                first_at = now
            if first_at is not None and enough(self._slots, filled, now - first_at):
                return
            text = _waiting(self._slots, filled)
            if text != shown or now - shown_at >= _REPEAT_SECONDS:
                shown, shown_at = text, now
                self._progress(text)
            time.sleep(_LOOK_SECONDS)
        raise Stopped


def _waiting(slots: Sequence[ExecutorSlot], filled: Collection[str]) -> str:
    missing = [slot.name for slot in slots if slot.name not in filled]
    return f"waiting for executors, {len(slots) - len(missing)} of {len(slots)} there; not yet: {', '.join(missing)}"
