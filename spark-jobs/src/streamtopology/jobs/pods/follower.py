"""Takes what the operator writes into the routing ConfigMap for the running topology, or refuses it and says why."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from streamtopology.jobs.dag import Dag
from streamtopology.jobs.pods.routing_map import PlannedEpoch, RoutingMap, RoutingMapError
from streamtopology.jobs.pods.routing_watch import ConfigMapContent
from streamtopology.jobs.runner import TopologyRun
from streamtopology.jobs.stats import Refusal
from streamtopology.routing.epoch import Epoch
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
        if planned is None or planned.state != "ready":
            return
        why = self._why_not(planned)
        if why is not None:
            self._refuse(planned.epoch.number, planned.generation, why)
            return
        if planned.epoch.number > self._run.router.ready().epoch.number:
            self._run.router.publish(planned.epoch)

    def _why_not(self, planned: PlannedEpoch) -> str | None:
        """Why the epoch cannot be taken; None also for one that is there already."""
        ready = self._run.router.ready()
        number, newest = planned.epoch.number, ready.epoch.number
        if number < newest:
            return None
        if number == newest:
            same = planned.epoch.to_json() == ready.epoch.to_json()
            return None if same or planned.generation != self.generation else f"epoch {number} is there with other routing"
        if planned.generation != self.generation:
            return f"epoch {number} was planned for generation {planned.generation}, this run is of {self.generation}"
        return misfit(planned.epoch, ready.compile(), ready.topology.replicas)

    def _refuse(self, epoch: int | None, generation: int | None, why: str) -> None:
        self.refused = Refusal(epoch, generation, why)
        self._run.tell(f"not taken from ConfigMap {self._name}: {why}")


def misfit(epoch: Epoch, dag: Dag, slots: int) -> str | None:
    """What an epoch made elsewhere has that a topology of this `dag` on so many slots cannot run under; None if it can."""
    wanted, found = {node.name for node in dag.nodes}, set(epoch.routes)
    if wanted != found:
        return f"epoch {epoch.number} routes {', '.join(sorted(found))}; the topology has {', '.join(sorted(wanted))}"
    if epoch.source_shares and len(epoch.source_shares) != slots:
        return f"epoch {epoch.number} has source shares of {len(epoch.source_shares)} slots; the topology has {slots}"
    for node in dag.nodes:
        route = epoch.routes[node.name]
        if route.policy != node.policy:
            return f"epoch {epoch.number} routes {node.name} by {route.policy}; its policy is {node.policy}"
        if route.instances[-1] >= node.parallelism:
            return f"epoch {epoch.number} names instance {route.instances[-1]} of {node.name}, which has {node.parallelism}"
    return None


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
