"""The loop that creates the snapshots of schedules: it looks at the topologies that have one, again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from streamtopology.k8s import names
from streamtopology.k8s.decide.observation import manifest_text, read_topology
from streamtopology.k8s.decide.snapshot_schedule import due_snapshot
from streamtopology.k8s.io.api import Api, ApiAway, ApiError
from streamtopology.k8s.io.ownership import TopologyClaims
from streamtopology.k8s.io.snapshot_watch import SnapshotWatch
from streamtopology.k8s.io.topology_body import key_of
from streamtopology.k8s.resources.objects import Object
from streamtopology.topology import Topology

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
            for body in [each for each in self._topologies() if (each.get("spec") or {}).get("snapshots")]:
                try:
                    await self._look(body)
                except (ApiAway, ApiError) as error:
                    log.warning("%s: its snapshot is not created, again in %s s: %s", key_of(body), LOOK_SECONDS, error)

    async def _look(self, body: Object) -> None:
        key, metadata = key_of(body), body["metadata"]
        if "deletionTimestamp" in metadata or not self._ownership.holds(body) or not self._watch.is_current(key.namespace):
            return
        topology = read_topology(manifest_text(body))
        if not isinstance(topology, Topology) or topology.snapshots is None:
            return
        due = due_snapshot(body, topology.snapshots, self._watch.bodies(), self._clock())
        if due is not None:
            log.info("%s: create snapshot %s", key, due["metadata"]["name"])
            self._watch.saw(await self._api.create(names.SNAPSHOT, key.namespace, due))
