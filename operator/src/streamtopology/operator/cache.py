"""What the API server says of owned objects, kept current by watches: a look at a topology costs no calls.

kopf watches topologies; it cannot select by label, and without that an operator would be sent every pod and Secret of
the cluster. So owned objects are watched here, by our label, and only what decisions read is kept of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from streamtopology.operator import names
from streamtopology.operator.api import Api, ApiAway, ApiError, Object
from streamtopology.operator.names import Kind
from streamtopology.operator.queue import Key
from streamtopology.operator.seen import Seen, see

log = logging.getLogger(__name__)

RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses before a watch that broke is begun again; the last one for ever."""

Changed = Callable[[Key], None]


@dataclass
class Cache:
    """Owned objects by topology. `changed` is called with the topology of each object that appears, changes or goes."""

    changed: Changed
    _objects: dict[Key, dict[tuple[str, str], Seen]] = field(default_factory=lambda: defaultdict(dict))
    _listed: dict[tuple[str, str | None], asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    def of(self, key: Key) -> Mapping[tuple[str, str], Seen]:
        """(kind, name) -> object, of one topology."""
        return self._objects.get(key, {})

    def note(self, body: Object) -> None:
        """Takes in an object as the API server returned it, so that what was just written is seen at once."""
        key, seen = _key_of(body), see(body)
        if key is None:
            return
        known = self._objects[key].get((seen.kind, seen.name))
        if known is not None and known.version > seen.version:
            return  # the answer to a call may come after the event of what happened next
        self._objects[key][seen.kind, seen.name] = seen
        if known != seen:
            self.changed(key)

    def drop(self, body: Object) -> None:
        """The object is gone. A namesake made since stays."""
        key = _key_of(body)
        if key is None:
            return
        of_topology = self._objects.get(key, {})
        known = of_topology.get((body["kind"], body["metadata"]["name"]))
        if known is not None and known.uid == body["metadata"]["uid"]:
            del of_topology[known.kind, known.name]
            self.changed(key)
        if not of_topology:
            self._objects.pop(key, None)

    def forget(self, key: Key, kind: Kind) -> None:
        """Drops a topology's objects of a kind that is not watched: the topology is gone."""
        of_topology = self._objects.get(key, {})
        for known in [one for one in of_topology if one[0] == kind.kind]:
            del of_topology[known]

    async def listed(self, kinds: Iterable[Kind], namespace: str | None) -> None:
        """Returns once each of these kinds, followed in this namespace (None: in all), has been listed there: before that,
        what is not here may well exist."""
        for kind in kinds:
            await self._listed[kind.kind, namespace].wait()

    async def follow(self, api: Api, kind: Kind, namespace: str | None) -> None:
        """Keeps one kind current until cancelled, whatever happens to watches and to the API server."""
        failures = 0
        selector = names.selector({names.MANAGED_BY: names.MANAGER})
        while True:
            try:
                version = await self._list(api, kind, namespace, selector)
                failures = 0
                while True:
                    async for event in api.watch(kind, namespace, selector, version):
                        version = event["object"]["metadata"]["resourceVersion"]
                        self._take(kind, event)
            except (ApiAway, ApiError) as error:
                expired = isinstance(error, ApiError) and error.status == 410
                pause = 0.0 if expired and failures == 0 else RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
                failures += 1
                log.log(
                    logging.DEBUG if expired else logging.WARNING, "%s; listing %s again in %s s", error, kind.plural, pause
                )
                await asyncio.sleep(pause)

    async def _list(self, api: Api, kind: Kind, namespace: str | None, selector: str) -> str:
        listed = await api.list(kind, namespace, selector)
        present: set[tuple[Key, str]] = set()
        for item in listed["items"]:
            item.update(apiVersion=kind.api_version, kind=kind.kind)  # items of a list leave these out
            self.note(item)
            if key := _key_of(item):
                present.add((key, item["metadata"]["name"]))
        version = str(listed["metadata"]["resourceVersion"])
        self._drop_absent(kind, namespace, present, int(version))
        self._listed[kind.kind, namespace].set()
        return version

    def _drop_absent(self, kind: Kind, namespace: str | None, present: set[tuple[Key, str]], version: int) -> None:
        """What went while nobody watched. The list comes from the server's cache: what we have made since is not in it."""
        for key, objects in list(self._objects.items()):
            if namespace is not None and key.namespace != namespace:
                continue
            gone = [
                name
                for (of_kind, name), known in objects.items()
                if of_kind == kind.kind and (key, name) not in present and known.version <= version
            ]
            for name in gone:
                del objects[kind.kind, name]
                self.changed(key)

    def _take(self, kind: Kind, event: Object) -> None:
        body = event["object"]
        body.update(apiVersion=kind.api_version, kind=kind.kind)
        if event["type"] == "DELETED":
            self.drop(body)
        elif event["type"] in ("ADDED", "MODIFIED"):
            self.note(body)


def _key_of(body: Object) -> Key | None:
    metadata = body["metadata"]
    topology = (metadata.get("labels") or {}).get(names.INSTANCE)
    return Key(metadata["namespace"], topology) if topology else None
