"""The StreamTopologySnapshots of the cluster, kept current by watches, and the queue of those to look at.

An operator works without them: where the kind is not served, or may not be read, it says so once and continues to ask.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from streamtopology.k8s import names
from streamtopology.k8s.decide.snapshots import is_ended
from streamtopology.k8s.io.api import Api, ApiAway, ApiError
from streamtopology.k8s.io.bodies import version_number
from streamtopology.k8s.io.cache import RETRY_SECONDS, no_sooner
from streamtopology.k8s.io.queue import Queue, TopologyKey
from streamtopology.k8s.io.topology_body import is_same, key_of, version
from streamtopology.k8s.resources.objects import Object

log = logging.getLogger(__name__)

# Between two tries to list a kind that is not served, or that we may not read.
MISSING_SECONDS = 10.0


@dataclass
class SnapshotWatch:
    """Snapshots by namespace and name. One that appears, changes or goes is put into `queue`.

    Those that have not ended are also known by topology: old ones may be many, and topologies change all the time.
    """

    queue: Queue
    _bodies: dict[TopologyKey, Object] = field(default_factory=dict[TopologyKey, Object])
    _open: defaultdict[TopologyKey, set[TopologyKey]] = field(
        default_factory=lambda: defaultdict[TopologyKey, set[TopologyKey]](set)
    )
    _without: set[str | None] = field(default_factory=set[str | None])
    _listed: set[str | None] = field(default_factory=set[str | None])

    def get(self, key: TopologyKey) -> Object | None:
        return self._bodies.get(key)

    def bodies(self) -> Iterable[Object]:
        """All of them."""
        return list(self._bodies.values())

    def is_current(self, namespace: str) -> bool:
        """True if the snapshots of this namespace have been listed, so that one that is not known is not there."""
        return not self._listed.isdisjoint({None, namespace})

    def wake(self, topology: TopologyKey) -> None:
        """Look at the snapshots of a topology that has changed, or one of whose objects has."""
        for key in self._open.get(topology, ()):
            self.queue.add(key)

    def took(self, key: TopologyKey, body: Object) -> None:
        """Take in a snapshot as our own write left it: its event will be ignored."""
        known = self._bodies.get(key)
        if known is not None and is_same(known, body) and version(known) <= version(body):
            self._keep(key, body)

    def lost(self, key: TopologyKey, known: Object) -> None:
        """Take in that a snapshot is gone; one of its name that has come since stays."""
        if key in self._bodies and is_same(self._bodies[key], known):
            self._close(key, self._bodies.pop(key))
            self.queue.add(key)

    def _keep(self, key: TopologyKey, body: Object) -> None:
        body["metadata"].pop("managedFields", None)
        self._bodies[key] = body
        if is_ended(body):
            self._close(key, body)
        else:
            self._open[topology_of(body)].add(key)

    def _close(self, key: TopologyKey, body: Object) -> None:
        of = topology_of(body)
        self._open[of].discard(key)
        if not self._open[of]:
            del self._open[of]

    async def follow(self, api: Api, namespace: str | None) -> None:
        """Keep them current until cancelled. Each watch begins with a list: they are few, and their definition may be new."""
        failures = 0
        while True:
            try:
                since = await self._list(api, namespace)
                self._is_served(namespace)
                self._listed.add(namespace)
                failures = 0
                async with no_sooner():
                    async for event in api.watch(names.SNAPSHOT, namespace, "", since):
                        self._take(event)
            except (ApiAway, ApiError) as error:
                await asyncio.sleep(self._pause(error, namespace, failures))
                failures += 1

    async def _list(self, api: Api, namespace: str | None) -> str:
        since, present = "", set[TopologyKey]()
        async for page in api.pages(names.SNAPSHOT, namespace):
            for body in page.items:
                self.saw(body)
                present.add(key_of(body))
            since = page.version
        for key, body in list(self._bodies.items()):
            if namespace in (None, key.namespace) and key not in present and version(body) <= version_number(since):
                self.lost(key, body)
        return since

    def _take(self, event: Object) -> None:
        body = event["object"]
        if event["type"] == "DELETED":
            self.lost(key_of(body), body)
        elif event["type"] in ("ADDED", "MODIFIED"):
            self.saw(body)

    def saw(self, body: Object) -> None:
        """Take in a snapshot as a list, an event or our own call has it."""
        key = key_of(body)
        known = self._bodies.get(key)
        if known is None or version(known) < version(body):
            if known is not None and not is_same(known, body):
                self._close(key, known)
            self._keep(key, body)
            self.queue.add(key)

    def _pause(self, error: ApiAway | ApiError, namespace: str | None, failures: int) -> float:
        """The seconds until the next list."""
        if isinstance(error, ApiError) and error.status in (403, 404):
            if not self._without:
                log.warning("no snapshots are made, waiting until that changes: %s", _why(error))
            self._without.add(namespace)
            return MISSING_SECONDS
        pause = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
        is_expired = isinstance(error, ApiError) and error.status == 410
        log.log(logging.DEBUG if is_expired else logging.WARNING, "%s; listing snapshots again in %s s", error, pause)
        return pause

    def _is_served(self, namespace: str | None) -> None:
        if namespace in self._without:
            self._without.discard(namespace)
            if not self._without:
                log.info("snapshots are made: %s are served", names.SNAPSHOT.plural)


def topology_of(body: Object) -> TopologyKey:
    """The topology that a snapshot is of."""
    return TopologyKey(body["metadata"]["namespace"], body["spec"]["topology"])


def _why(error: ApiError) -> str:
    if error.status == 404:
        return f"{names.SNAPSHOT.plural} are not served, apply their resource definition (crds/, or the chart's)"
    return f"{error.message}: apply the roles of this version (deploy/, or the chart's)"
