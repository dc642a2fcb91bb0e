"""Owned objects as the API server has them, kept current by watches: a look at a topology costs no calls.

kopf watches topologies. It cannot select by label, and without a selector an operator would receive every pod and Secret of
the cluster. So owned objects are watched here by our label, and only the fields that decisions read are kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from streamtopology.k8s import names
from streamtopology.k8s.decide.owned_objects import OwnedObject, Pod, owned_object
from streamtopology.k8s.io.api import Api, ApiAway, ApiError, missing_right
from streamtopology.k8s.io.bodies import version_number
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.names import Kind
from streamtopology.k8s.resources.objects import Object

log = logging.getLogger(__name__)

# Pauses before a broken watch is restarted; the last one repeats.
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)

# Of a start in many namespaces: what else the process has to do, above all renewing its Lease, comes between the lists.
LISTS_AT_ONCE = 8

# Between the beginnings of two watches of a kind: something on the way to the API server may end each at once.
LEAST_SECONDS = 0.5

# Evicted pods that are remembered of each topology.
KEPT_EVICTIONS = 32

Changed = Callable[[TopologyKey], None]

# Gets a kind, the namespace and why it may not be listed there; empty: it may.
Refused = Callable[[str, str | None, str], None]


def _unheeded(_kind: str, _namespace: str | None, _why: str) -> None:
    return None


@asynccontextmanager
async def no_sooner() -> AsyncIterator[None]:
    """Take at least `LEAST_SECONDS`, unless the block raises."""
    began = time.monotonic()
    yield
    await asyncio.sleep(max(0.0, began + LEAST_SECONDS - time.monotonic()))


@dataclass
class Cache:
    """Owned objects by topology. `changed` is called with the topology of each object that appears, changes or goes; `refused`
    where a kind may not be listed, and when it may.
    """

    changed: Changed
    refused: Refused = _unheeded
    _evicted: dict[TopologyKey, dict[str, Pod]] = field(default_factory=lambda: defaultdict(dict))
    _objects: dict[TopologyKey, dict[tuple[str, str], OwnedObject]] = field(default_factory=lambda: defaultdict(dict))
    _topology_of: dict[str, TopologyKey] = field(default_factory=dict[str, TopologyKey])
    _listed: dict[tuple[str, str | None], asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    _listing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LISTS_AT_ONCE))

    def of(self, key: TopologyKey) -> Mapping[tuple[str, str], OwnedObject]:
        """(kind, name) -> object, of one topology."""
        return self._objects.get(key, {})

    def evicted(self, key: TopologyKey) -> tuple[Pod, ...]:
        """The last pods that a kubelet has evicted. An executor's may be gone before anybody looks at the topology."""
        return tuple(self._evicted.get(key, {}).values())

    def note(self, body: Object) -> None:
        """Store an object as the API server returned it, so that a write is seen at once."""
        key, owned = _key_of(body), owned_object(body)
        before = self._topology_of.get(owned.uid, key)
        known = self._objects[before].get((owned.kind, owned.name)) if before is not None else None
        if known is not None and known.version > owned.version:
            return  # an answer to a call may arrive after the event of a later change
        if known is not None and before is not None and before != key:
            self._remove(before, known)  # somebody has changed its label
        if key is None:
            return
        if known is not None:
            self._topology_of.pop(known.uid, None)
        self._objects[key][owned.kind, owned.name] = owned
        self._topology_of[owned.uid] = key
        if isinstance(owned, Pod) and owned.evicted is not None:
            self._evicted[key][owned.uid] = owned
            for oldest in list(self._evicted[key])[:-KEPT_EVICTIONS]:
                del self._evicted[key][oldest]
        if known != owned:
            self.changed(key)

    def drop(self, body: Object) -> None:
        """Remove an object that is gone. A namesake created since stays."""
        key = _key_of(body)
        if key is None:
            return
        of_topology = self._objects.get(key, {})
        known = of_topology.get((body["kind"], body["metadata"]["name"]))
        if known is not None and known.uid == body["metadata"]["uid"]:
            self._remove(key, known)
        if not of_topology:
            self._objects.pop(key, None)
            self._evicted.pop(key, None)

    def forget(self, key: TopologyKey, kind: Kind) -> None:
        """Remove a topology's objects of a kind that is not watched: the topology is gone."""
        of_topology = self._objects.get(key, {})
        for place in [one for one in of_topology if one[0] == kind.kind]:
            self._topology_of.pop(of_topology.pop(place).uid, None)

    def _remove(self, key: TopologyKey, known: OwnedObject) -> None:
        self._topology_of.pop(known.uid, None)
        del self._objects[key][known.kind, known.name]
        self.changed(key)

    async def listed(self, kinds: Iterable[Kind], namespace: str | None) -> None:
        """Return once each of these kinds, followed in this namespace (None: in all), has been listed there. Before that, a
        missing object may well exist."""
        for kind in kinds:
            await self._listed[kind.kind, namespace].wait()

    async def follow(self, api: Api, kind: Kind, namespace: str | None) -> None:
        """Keep one kind current until cancelled, through broken watches and an unreachable API server."""
        failures = 0
        selector = names.selector({names.MANAGED_BY: names.MANAGER})
        while True:
            try:
                async with self._listing:
                    version = await self._list(api, kind, namespace, selector)
                failures = 0
                self.refused(kind.plural, namespace, "")
                while True:
                    async with no_sooner():
                        async for event in api.watch(kind, namespace, selector, version):
                            version = event["object"]["metadata"].get("resourceVersion", version)
                            self._take(kind, event)
            except (ApiAway, ApiError) as error:
                expired = isinstance(error, ApiError) and error.status == 410
                pause = 0.0 if expired and failures == 0 else RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
                failures += 1
                self.refused(kind.plural, namespace, missing_right(error))
                log.log(
                    logging.DEBUG if expired else logging.WARNING, "%s; listing %s again in %s s", error, kind.plural, pause
                )
                await asyncio.sleep(pause)

    async def _list(self, api: Api, kind: Kind, namespace: str | None, selector: str) -> str:
        present: set[tuple[TopologyKey, str]] = set()
        version = ""
        async for page in api.pages(kind, namespace, selector):
            for item in page.items:
                self.note(item)
                if key := _key_of(item):
                    present.add((key, item["metadata"]["name"]))
            version = page.version
        self._drop_absent(kind, namespace, present, version_number(version))
        self._listed[kind.kind, namespace].set()
        return version

    def _drop_absent(self, kind: Kind, namespace: str | None, present: set[tuple[TopologyKey, str]], version: int) -> None:
        """Remove objects deleted while there was no watch. The list is of one version and lacks newer objects."""
        for key, objects in list(self._objects.items()):
            if namespace is not None and key.namespace != namespace:
                continue
            gone = [
                known
                for (of_kind, name), known in objects.items()
                if of_kind == kind.kind and (key, name) not in present and known.version <= version
            ]
            for known in gone:
                self._remove(key, known)

    def _take(self, kind: Kind, event: Object) -> None:
        body = event["object"]
        body.update(apiVersion=kind.api_version, kind=kind.kind)
        if event["type"] == "DELETED":
            self.drop(body)
        elif event["type"] in ("ADDED", "MODIFIED"):
            self.note(body)


def _key_of(body: Object) -> TopologyKey | None:
    metadata = body["metadata"]
    topology = (metadata.get("labels") or {}).get(names.INSTANCE)
    return TopologyKey(metadata["namespace"], topology) if topology else None
