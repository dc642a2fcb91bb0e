"""A cluster in memory with one topology `flow`, and the API server's calls to it, for operators in virtual time.

Objects have versions, owners and finalizers, watches replay what they have missed, garbage is collected; controllers, kubelet
and driver are those of `World`. Server-side apply replaces our part of an object; who owns which field is not kept.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from streamtopology.k8s import names
from streamtopology.k8s.instants import format_time
from streamtopology.k8s.io.api import Api, ApiAway, ApiError
from streamtopology.k8s.io.bodies import ListPart, decoded, part_of, version_number
from streamtopology.k8s.io.leader import LEASE_NAME
from streamtopology.k8s.names import Kind
from streamtopology.k8s.resources.objects import Object
from support.operator_world import World, manifest, strategically_merged, written_by_us
from support.virtual_time import now

NAMESPACE, NAME = "space", "flow"
# Between two looks of controllers and garbage collection.
TICK_SECONDS = 0.5

Place = tuple[str, str]


@dataclass
class FakeCluster:
    """`writes`: (time, release, call) of each call to change something, answered or not, but for events and Leases.

    `fails`: asked before each write and each look at an object; True: there is no answer. `refuses`: asked about each call to
    change something; the answer to it, None where it is carried out.
    """

    topology: Object | None = None
    is_served: bool = True
    is_terminating: bool = False
    writes: list[tuple[float, str, str]] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    leases: dict[str, float] = field(default_factory=dict)
    refused_statuses: list[int] = field(default_factory=list)
    world: World = field(default_factory=lambda: World(manifest()))
    fails: Callable[[], bool] = lambda: False
    refuses: Callable[[str], ApiError | ApiAway | None] = lambda call: None

    def __post_init__(self) -> None:
        self.objects = self.world.objects
        self.log: list[tuple[int, str, Object]] = []
        self.changed = asyncio.Condition()
        self._uids = 0

    def version(self) -> int:
        return next(self.world.versions)

    async def run(self) -> None:
        """Let controllers work, collect garbage and wake watches, until cancelled."""
        told = 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.world.now = now()
            before = {place: body["metadata"]["resourceVersion"] for place, body in self.objects.items()}
            kept = dict(self.objects)
            self._collect()
            self.world.control()
            for place in before.keys() - self.objects.keys():
                self.note("DELETED", kept[place])
            for place, body in self.objects.items():
                if before.get(place) != body["metadata"]["resourceVersion"]:
                    self.note("MODIFIED", body)
            if len(self.log) == told and self.is_served:
                continue
            told = len(self.log)
            async with self.changed:
                self.changed.notify_all()

    def _collect(self) -> None:
        """Remove the objects of a topology that is gone, and of a namespace."""
        uid = self.topology["metadata"]["uid"] if self.topology is not None else None
        for place, body in list(self.objects.items()):
            owners = [each for each in body["metadata"].get("ownerReferences") or () if each["kind"] == names.TOPOLOGY.kind]
            if self.is_terminating or (owners and all(each["uid"] != uid for each in owners)):
                del self.objects[place]
        if self.is_terminating and self.topology is None:
            self.is_terminating = False

    def note(self, kind: str, body: Object) -> None:
        """An event for the watches."""
        body = copy.deepcopy(body)
        if kind == "DELETED":
            body["metadata"]["resourceVersion"] = str(self.version())
        self.log.append((int(body["metadata"]["resourceVersion"]), kind, body))

    def put(self, body: Object) -> Object:
        """Store an object in its next version."""
        self.world.put(body)
        self.note("MODIFIED", body)
        return copy.deepcopy(body)

    def report(self, kind: str, name: str, status: Object) -> None:
        """The status that a controller or kubelet gives an object, as a whole."""
        self.put({**copy.deepcopy(self.objects[kind, name]), "status": copy.deepcopy(status)})

    # Actions of people on the topology ------------------------------------------------------------------------------------

    def create(self, body: Object) -> None:
        """A new topology of this manifest; without effect where it cannot be."""
        if self.topology is not None or not self.is_served or self.is_terminating:
            return
        self._uids += 1
        metadata = {
            **body["metadata"], "namespace": NAMESPACE, "uid": f"topology-{self._uids}", "generation": 1,
            "creationTimestamp": format_time(now()),
        }  # fmt: skip
        self.topology = {**body, "metadata": {**metadata, "resourceVersion": str(self.version())}}
        self.world.manifest = self.topology
        self.note("ADDED", self.topology)

    def edit(self, change: Object) -> Object:
        """A merge patch of the topology, by anybody."""
        assert self.topology is not None
        before = self.topology
        after = merged(before, change)
        if after == before:
            return copy.deepcopy(before)
        if after["spec"] != before["spec"]:
            after["metadata"]["generation"] += 1
        after["metadata"]["resourceVersion"] = str(self.version())
        self.topology = self.world.manifest = after
        if "deletionTimestamp" in after["metadata"] and not after["metadata"].get("finalizers"):
            self.topology = None
            self.note("DELETED", after)
        else:
            self.note("MODIFIED", after)
        return copy.deepcopy(after)

    def delete(self, orphans: bool = False) -> None:
        if self.topology is None:
            return
        if orphans:
            for body in list(self.objects.values()):
                owners = body["metadata"].get("ownerReferences") or ()
                if any(each["kind"] == names.TOPOLOGY.kind for each in owners):
                    metadata = {name: value for name, value in body["metadata"].items() if name != "ownerReferences"}
                    self.put({**body, "metadata": metadata})
        if "deletionTimestamp" not in self.topology["metadata"]:
            self.edit({"metadata": {"deletionTimestamp": format_time(now())}})


def merged(value: Any, change: Any) -> Any:
    """By a JSON merge patch."""
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    known: dict[str, Any] = dict(value) if isinstance(value, dict) else {}
    for name, each in change.items():
        if each is None:
            known.pop(name, None)
        else:
            known[name] = merged(known.get(name), each)
    return known


class FakeApi(Api):
    """The calls of one release to the cluster."""

    def __init__(self, cluster: FakeCluster, release: str) -> None:
        self.cluster = cluster
        self.release = release

    def within(self, seconds: float) -> Api:
        return self

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        await asyncio.sleep(0)
        if kind is names.LEASE:
            renewed = self.cluster.leases.get(namespace) if name == LEASE_NAME else None
            return None if renewed is None else {"spec": {"holderIdentity": namespace, "renewTime": format_time(renewed)}}
        self._check_answers()
        found = self.cluster.topology if kind is names.TOPOLOGY else self.cluster.objects.get((kind.kind, name))
        return copy.deepcopy(found)

    async def pages(self, kind: Kind, namespace: str | None, selector: str = "") -> AsyncIterator[ListPart]:
        await asyncio.sleep(0)
        wanted = dict(one.split("=") for one in selector.split(",")) if selector else {}
        items = [
            copy.deepcopy(body)
            for (of_kind, _), body in self.cluster.objects.items()
            if namespace in (None, NAMESPACE)
            and of_kind == kind.kind
            and wanted.items() <= (body["metadata"].get("labels") or {}).items()
        ]
        if kind is names.TOPOLOGY and self.cluster.topology is not None and namespace in (None, NAMESPACE):
            items.append(copy.deepcopy(self.cluster.topology))
        yield self._page(kind, items)

    async def versions(self, kind: Kind, namespace: str | None) -> tuple[list[Object], int]:
        await asyncio.sleep(0)
        self._check_served()
        topology = self.cluster.topology if namespace in (None, NAMESPACE) else None
        page = self._page(kind, [{"metadata": topology["metadata"]}] if topology is not None else [])
        return [item["metadata"] for item in page.items], version_number(page.version)

    def _page(self, kind: Kind, items: list[Object]) -> ListPart:
        """A list as Go writes it: null where there is nothing."""
        metadata = {"resourceVersion": str(self.cluster.version()), "continue": None}
        return part_of(decoded(json.dumps({"items": items or None, "metadata": metadata}).encode()), kind)

    async def watch(self, kind: Kind, namespace: str | None, selector: str, since: str) -> AsyncIterator[Object]:
        cluster, number = self.cluster, 0
        wanted = dict(one.split("=") for one in selector.split(",")) if selector else {}
        while True:
            for version, event, body in cluster.log[number:]:
                is_ours = wanted.items() <= (body["metadata"].get("labels") or {}).items()
                is_ours &= namespace in (None, NAMESPACE)
                if version > int(since) and body["kind"] == kind.kind and is_ours:
                    yield {"type": event, "object": copy.deepcopy(body)}
            number = len(cluster.log)
            async with cluster.changed:
                await cluster.changed.wait()

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        await asyncio.sleep(0)
        self._check_namespace(kind.path(namespace))
        if kind is names.EVENT:
            self.cluster.events.append((body["reason"], body["message"]))
            return body
        if (kind.kind, body["metadata"]["name"]) in self.cluster.objects:
            raise ApiError(409, "AlreadyExists", "it is there", kind.path(namespace))
        self._count("create", body["kind"])
        made = copy.deepcopy(body)
        made["metadata"] |= {"namespace": namespace, "creationTimestamp": format_time(now())}
        return self.cluster.put(made)

    async def apply(self, body: Object, force: bool = True) -> Object:
        await asyncio.sleep(0)
        path = names.BY_KIND[body["kind"]].path(NAMESPACE, body["metadata"]["name"])
        if body["kind"] == names.TOPOLOGY.kind:
            return self._with_finalizers(body, path)
        self._count("apply", f"{body['kind']} {body['metadata']['name']}")
        known = self.cluster.objects.get((body["kind"], body["metadata"]["name"]))
        if known is None:
            self._check_namespace(path)
        elif not force:
            raise ApiError(409, "Conflict", "fields of others", path)
        made = copy.deepcopy(body)
        if known is not None:
            for part in ("labels", "annotations"):
                made["metadata"][part] = {**(known["metadata"].get(part) or {}), **(made["metadata"].get(part) or {})}
            made |= {"status": known["status"]} if "status" in known else {}
        made["metadata"]["managedFields"] = [written_by_us(body)]
        self.cluster.world.admission(made)
        return self.cluster.put(made)

    async def patch(self, kind: Kind, namespace: str, name: str, body: Object, subresource: str | None = None) -> Object:
        await asyncio.sleep(0)
        path = kind.path(namespace, name, subresource)
        self._count("patch", f"{path} {', '.join(body.get('status') or body.get('metadata') or body)}")
        if kind is not names.TOPOLOGY:
            known = self.cluster.objects.get((kind.kind, name))
            if known is None:
                raise ApiError(404, "NotFound", "there is none", path)
            return self.cluster.put(merged(known, body))
        self._check_there(path)
        if subresource and self.cluster.refused_statuses:
            raise ApiError(self.cluster.refused_statuses.pop(), "Refused", "not now", path)
        version = (body.get("metadata") or {}).get("resourceVersion")
        assert self.cluster.topology is not None
        if version not in (None, self.cluster.topology["metadata"]["resourceVersion"]):
            raise ApiError(409, "Conflict", "the object has been modified", path)
        return self.cluster.edit(body)

    async def strategic_patch(
        self, kind: Kind, namespace: str, name: str, body: Object, subresource: str | None = None
    ) -> Object:
        await asyncio.sleep(0)
        self._count("patch", f"{kind.kind} {name}")
        known = self.cluster.objects.get((kind.kind, name))
        if known is None:
            raise ApiError(404, "NotFound", "there is none", kind.path(namespace, name, subresource))
        return self.cluster.put(strategically_merged(known, body))

    async def json_patch(self, kind: Kind, namespace: str, name: str, operations: list[Object]) -> Object:
        """The removal of our finalizer is the only one."""
        await asyncio.sleep(0)
        self._count("patch", "finalizers")
        self._check_there(kind.path(namespace, name))
        assert self.cluster.topology is not None
        metadata = self.cluster.topology["metadata"]
        if operations[0]["value"] != metadata["uid"]:
            raise ApiError(422, "Invalid", "the test failed", kind.path(namespace, name))
        left = [each for each in metadata["finalizers"] if each != names.FINALIZER]
        return self.cluster.edit({"metadata": {"finalizers": left or None}})

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str | None = None, at_once: bool = False) -> None:
        await asyncio.sleep(0)
        self._count("delete", f"{kind.kind} {name}")
        known = self.cluster.objects.get((kind.kind, name))
        if known is not None and uid not in (None, known["metadata"]["uid"]):
            raise ApiError(409, "Conflict", "it has another uid", kind.path(namespace, name))
        if known is not None:
            del self.cluster.objects[kind.kind, name]
            self.cluster.note("DELETED", known)

    async def events(self, namespace: str, about: str, reason: str) -> list[Object]:
        """Of the controllers that are refused a pod, at this moment."""
        return [
            {
                "involvedObject": {"kind": about, "uid": body["metadata"]["uid"]},
                "message": why,
                "lastTimestamp": format_time(now()),
            }
            for name, why in self.cluster.world.unmade.items()
            if (body := self.cluster.objects.get((about, name))) is not None
        ]

    async def may(self, verb: str, kind: Kind, namespace: str, subresource: str = "") -> bool:
        return True

    def _with_finalizers(self, body: Object, path: str) -> Object:
        self._count("apply", "finalizers")
        self._check_there(path)
        assert self.cluster.topology is not None
        metadata = self.cluster.topology["metadata"]
        if metadata["uid"] != body["metadata"]["uid"]:
            raise ApiError(409, "Conflict", "it has another uid", path)
        finalizers = [*dict.fromkeys([*(metadata.get("finalizers") or ()), *body["metadata"]["finalizers"]])]
        return self.cluster.edit({"metadata": {"finalizers": finalizers}})

    def _check_served(self) -> None:
        if not self.cluster.is_served:
            raise ApiError(404, "NotFound", "the server could not find the requested resource", names.TOPOLOGY.path(None))

    def _check_there(self, path: str) -> None:
        if self.cluster.topology is None or not self.cluster.is_served:
            raise ApiError(404, "NotFound", "there is none", path)

    def _check_namespace(self, path: str) -> None:
        if self.cluster.is_terminating:
            raise ApiError(403, "Forbidden", "the namespace is being terminated", path)

    def _check_answers(self) -> None:
        if self.cluster.fails():
            raise ApiAway("no answer in time")

    def _count(self, call: str, what: str) -> None:
        self.cluster.writes.append((now(), self.release, f"{call} {what}"))
        self._check_answers()
        if (refusal := self.cluster.refuses(f"{call} {what}")) is not None:
            raise refusal
