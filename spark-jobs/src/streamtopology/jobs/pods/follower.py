"""Takes what the operator writes into the routing ConfigMap for the running topology, or refuses it and says why."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import Empty, SimpleQueue

from streamtopology.jobs.batch import Plan
from streamtopology.jobs.pods.routing_map import PlannedEpoch, RoutingMap
from streamtopology.jobs.pods.routing_watch import ConfigMapContent
from streamtopology.jobs.runner import TopologyRun
from streamtopology.jobs.stats import Refusal
from streamtopology.routing.routing_map import RoutingMapError
from streamtopology.routing.topology import ManifestError

Mailbox = SimpleQueue[ConfigMapContent | None]
_LOOK_SECONDS = 0.5


class Follower:
    """`generation` is that of the topology that runs, `refused` what was last refused, None once something else is taken."""

    def __init__(self, run: TopologyRun, name: str, first: RoutingMap) -> None:
        self._run = run
        self._name = name
        self._topology = first.topology
        self.generation = first.generation
        self.refused: Refusal | None = None
        self._take_epoch(first)

    def take(self, content: ConfigMapContent | None) -> None:
        """Take a new content of the ConfigMap as far as the run can; without the map it goes on as it is."""
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
        """Whether the run now is of the topology of `routing`; autoscaling changes it within a generation, too."""
        if routing.topology != self._topology:
            try:
                self._run.apply(routing.topology)
            except ValueError as refusal:  # ManifestError included
                self._refuse(None, routing.generation, str(refusal))
                return False
        self._topology = routing.topology
        self.generation = routing.generation
        self.refused = None
        return True

    def _take_epoch(self, routing: RoutingMap) -> None:
        planned = routing.planned
        if planned is None:
            return
        try:
            if planned.epoch.number > self._run.router.newest().epoch.number:
                self._publish(planned)
                return
            self._refuse_another(planned)
            if planned.state == "ready":
                self._run.router.run_prepared(planned.epoch.number)
        except ValueError as refusal:
            self._refuse(planned.epoch.number, planned.generation, str(refusal))

    def _publish(self, planned: PlannedEpoch) -> None:
        if planned.generation != self.generation:
            number, generation = planned.epoch.number, planned.generation
            raise ValueError(f"epoch {number} was planned for generation {generation}, this run is of {self.generation}")
        self._run.router.publish(planned.epoch, prepared=planned.state == "prepared")

    def _refuse_another(self, planned: PlannedEpoch) -> None:
        """An epoch with a number that is taken is one that we know, unless we gave that number to one of our own."""
        number = planned.epoch.number
        checkpoint = self._run.checkpoint
        if planned.generation != self.generation or number not in checkpoint.epochs():
            return
        known = Plan.from_json(checkpoint.read_epoch(number)).epoch
        if replace(planned.epoch, placement=planned.epoch.placement or known.placement).to_json() != known.to_json():
            raise ValueError(f"epoch {number} is another one here ({known.reason}): plan again on what /stats tells")

    def _refuse(self, epoch: int | None, generation: int | None, why: str) -> None:
        self.refused = Refusal(epoch, generation, why)
        self._run.tell(f"not taken from ConfigMap {self._name}: {why}")


@contextmanager
def following(mailbox: Mailbox, follower: Follower) -> Iterator[None]:
    """While entered, `follower` takes what comes; of several at once only the newest."""
    done = threading.Event()

    def follow() -> None:
        while not done.is_set():
            content = newest(mailbox, _LOOK_SECONDS)
            if content:
                follower.take(content[0])

    thread = threading.Thread(target=follow, name="routing-follower", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def newest(mailbox: Mailbox, timeout_seconds: float) -> list[ConfigMapContent | None]:
    """The newest content in the mailbox, as a list of one, or nothing when none comes in time."""
    try:
        content = mailbox.get(timeout=timeout_seconds)
        while True:
            try:
                content = mailbox.get_nowait()
            except Empty:
                return [content]
    except Empty:
        return []
