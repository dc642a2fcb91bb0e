"""The loop that creates the snapshots of schedules: it looks at the topologies that have one, again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

from streamtopology.k8s import names
from streamtopology.k8s.decide.fields import mapping_at
from streamtopology.k8s.decide.observation import manifest_text, read_topology
from streamtopology.k8s.decide.snapshot_schedule import due_snapshot, missed
from streamtopology.k8s.io.api import Api, ApiAway, ApiError
from streamtopology.k8s.io.ownership import TopologyClaims
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.io.snapshot_watch import SnapshotWatch
from streamtopology.k8s.io.topology_body import key_of
from streamtopology.k8s.resources.objects import Object
from streamtopology.topology import SnapshotSchedule, Topology

log = logging.getLogger(__name__)

# A schedule counts in minutes.
LOOK_SECONDS = 15.0


class SnapshotScheduler:
    """`topologies`: all that the watch of topologies has. `clock`: seconds since 1970."""

    def __init__(
        self,
        api: Api,
        watch: SnapshotWatch,
        topologies: Callable[[], Iterable[Object]],
        ownership: TopologyClaims,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._watch = watch
        self._topologies = topologies
        self._ownership = ownership
        self._clock = clock

    async def run(self) -> None:
        """Create what is due until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for body, schedule in list(self._scheduled()):
                try:
                    await self._look(body, schedule)
                except (ApiAway, ApiError) as error:
                    log.warning("%s: its snapshot is not created, again in %s s: %s", key_of(body), LOOK_SECONDS, error)

    def missed(self) -> dict[TopologyKey, int]:
        """The times that have passed without a whole copy, of each topology with a schedule."""
        bodies, now = self._watch.bodies(), self._clock()
        return {key_of(body): missed(body, schedule, bodies, now) for body, schedule in self._scheduled()}

    def _scheduled(self) -> Iterator[tuple[Object, SnapshotSchedule]]:
        """The topologies with a schedule that this operator serves."""
        for body in self._topologies():
            if not mapping_at(body, "spec").get("snapshots") or "deletionTimestamp" in body["metadata"]:
                continue
            topology = read_topology(manifest_text(body)) if self._ownership.holds(body) else None
            if isinstance(topology, Topology) and topology.snapshots is not None:
                yield body, topology.snapshots

    async def _look(self, body: Object, schedule: SnapshotSchedule) -> None:
        key = key_of(body)
        if not self._watch.is_current(key.namespace):
            return
        due = due_snapshot(body, schedule, self._watch.bodies(), self._clock())
        if due is not None:
            log.info("%s: create snapshot %s", key, due["metadata"]["name"])
            self._watch.saw(await self._api.create(names.SNAPSHOT, key.namespace, due))
