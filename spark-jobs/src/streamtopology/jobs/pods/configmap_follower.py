"""Follower of the routing ConfigMap: applies its contents to the running topology, or refuses them with a reason.

On Kubernetes the operator decides and the driver obeys, but the operator may be older, newer or behind. So the driver
accepts only an epoch that is newer, ready and of its own generation, and a topology that needs no restart. Anything else
leaves the routing as it is, and the reason goes to `/stats`, where the operator reads it.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

from streamtopology.contract.reason_text import describe
from streamtopology.contract.routing_configmap import RoutingMapError
from streamtopology.contract.stats import DriverRefusal
from streamtopology.jobs.checkpoint import CheckpointError
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.pods.configmap_watch import ConfigMapContent
from streamtopology.jobs.pods.routing_configmap import PlannedEpoch, RoutingMap
from streamtopology.jobs.runtime.topology_run import TopologyRun
from streamtopology.topology import ManifestError, Topology

Mailbox = SimpleQueue[ConfigMapContent | None]
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Taken:
    """The topology that runs, and its generation."""

    topology: Topology
    generation: int


class Follower:
    """Applies contents. `taken` is what runs; `refused` the newest refusal, None after a success."""

    def __init__(self, run: TopologyRun, name: str, first: RoutingMap) -> None:
        self._run = run
        self._name = name
        self.taken = Taken(first.topology, first.generation)
        self.refused: DriverRefusal | None = None
        self._take_epoch(first)

    @property
    def generation(self) -> int:
        """Of the running topology."""
        return self.taken.generation

    def take(self, content: ConfigMapContent | None) -> None:
        """Apply new contents of the ConfigMap as far as the run can; without the map nothing changes."""
        if content is None:
            self._refuse(None, None, f"ConfigMap {self._name} is gone: the routing stays as it is")
            return
        try:
            routing = RoutingMap.read(self._name, content.data, content.binary_data)
        except (RoutingMapError, ManifestError) as wrong:
            self._refuse(None, None, str(wrong))
            return
        if self._take_topology(routing):
            self._take_epoch(routing)

    def _take_topology(self, routing: RoutingMap) -> bool:
        """Apply the topology of `routing`; autoscaling changes it within a generation, too. Returns False if it was refused."""
        if routing.topology != self.taken.topology:
            try:
                self._run.notify(self._run.apply(routing.topology))
            except (ValueError, CheckpointError) as refusal:  # ManifestError included
                self._refuse(None, routing.generation, str(refusal))
                return False
        self.taken = Taken(routing.topology, routing.generation)
        self.refused = None
        return True

    def _take_epoch(self, routing: RoutingMap) -> None:
        planned = routing.planned
        if planned is None:
            self._withdraw()
            return
        try:
            if planned.epoch.number > self._run.router.newest().epoch.number:
                self._publish(planned)
                return
            self._refuse_another(planned)
            if planned.state == "ready":
                self._run.router.run_prepared(planned.epoch.number)
        except (ValueError, CheckpointError) as refusal:  # the thread that follows survives a checkpoint out of reach
            self._refuse(planned.epoch.number, planned.generation, str(refusal))

    def _withdraw(self) -> None:
        """Give up an epoch that the ConfigMap has no more, if it was only prepared: its state could not be copied."""
        try:
            given_up = self._run.router.withdraw()
        except CheckpointError as refusal:
            self._refuse(None, None, str(refusal))
            return
        if given_up is not None:
            self._run.notify(f"epoch {given_up} was withdrawn by the operator before it ran: the routing stays as it was")

    def _publish(self, planned: PlannedEpoch) -> None:
        if planned.generation != self.generation:
            number, generation = planned.epoch.number, planned.generation
            raise ValueError(f"epoch {number} was planned for generation {generation}, this run is of {self.generation}")
        self._run.router.publish(planned.epoch, prepared=planned.state == "prepared")

    def _refuse_another(self, planned: PlannedEpoch) -> None:
        """Refuse an epoch whose number this run gave to an epoch of its own."""
        number = planned.epoch.number
        checkpoint = self._run.checkpoint
        if planned.generation != self.generation or number not in checkpoint.epochs():
            return
        known = ExecutionPlan.from_json(checkpoint.read_epoch(number)).epoch
        if replace(planned.epoch, placement=planned.epoch.placement or known.placement).to_json() != known.to_json():
            raise ValueError(f"epoch {number} is another one here ({describe(known.reason)}): plan again from /stats")

    def could_not_take(self, fault: Exception) -> None:
        """Report an error of this program, by which new contents were not applied, and show where it arose in the log."""
        traceback.print_exception(fault)
        self._refuse(None, None, f"{type(fault).__name__}: {fault}; please report this")

    def _refuse(self, epoch: int | None, generation: int | None, why: str) -> None:
        self.refused = DriverRefusal(epoch, generation, why)
        self._run.notify(f"not taken from ConfigMap {self._name}: {why}")


@contextmanager
def following(mailbox: Mailbox, follower: Follower) -> Iterator[None]:
    """While entered, pass contents from `mailbox` to `follower`; of several at once only the newest."""
    done = threading.Event()

    def follow() -> None:
        while not done.is_set():
            content = newest(mailbox, _LOOK_SECONDS)
            if not content:
                continue
            try:
                follower.take(content[0])
            except Exception as fault:  # noqa: BLE001 - without this thread the driver would be deaf to all that follows
                follower.could_not_take(fault)

    thread = threading.Thread(target=follow, name="routing-follower", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def newest(mailbox: Mailbox, timeout_seconds: float) -> list[ConfigMapContent | None]:
    """Return the newest content in the mailbox as a list of one; an empty list if none arrives in time."""
    try:
        content = mailbox.get(timeout=timeout_seconds)
        while True:
            try:
                content = mailbox.get_nowait()
            except Empty:
                return [content]
    except Empty:
        return []
