"""Carry out steps at the API server, write status, post events. Returned objects go into the cache at once.

The watch shows our own write only later. Without the returned object the next decision would see the old one, and repeat
the step. The cache keeps whichever version is newer, since the reply to our own write can be older than what the watch
already showed.
"""

from __future__ import annotations

import logging
import secrets
from typing import Any

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.k8s import failpoints, names
from streamtopology.k8s.decide.owned_objects import resources_of
from streamtopology.k8s.decide.resizing import written
from streamtopology.k8s.decide.steps import Apply, Delete, Event, Finalizer, MakeSecret, Patch, Resize, Step
from streamtopology.k8s.instants import format_time
from streamtopology.k8s.io.api import Api, ApiAway, ApiError
from streamtopology.k8s.io.cache import Cache
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.names import Kind
from streamtopology.k8s.resources.access import spark_secret
from streamtopology.k8s.resources.objects import Object, Owner, digest, limits
from streamtopology.topology import format_cpu, format_memory

log = logging.getLogger(__name__)

SECRET_BYTES = 32

# The timeout of posting an event: no change waits longer for its report.
EVENT_SECONDS = 2.0


class ResizeRefusedError(StreamTopologyError):
    """The API server does not resize this pod in place: too old, not allowed, or not to these resources.

    `keeps`: the pod stays as it is, because another one in its place would meet the same refusal.
    """

    def __init__(self, step: Resize, why: str, keeps: bool = False) -> None:
        self.step = step
        self.why = why
        self.keeps = keeps
        super().__init__(f"{step}: {why}")


class NameTakenError(StreamTopologyError):
    """An object of this name exists and is not the owner's. `is_left_over`: it was of an old owner of the same name.

    `what` names the object, `remedy` what helps: nothing of ours, for one that is about to go.
    """

    def __init__(self, kind: Kind, found: Object, owner: Owner) -> None:
        metadata = found["metadata"]
        owners = metadata.get("ownerReferences") or ()
        holding = (metadata.get("finalizers") or ()) if "deletionTimestamp" in metadata else ()
        self.is_left_over = any((each["kind"], each["name"]) == (owner.kind.kind, owner.name) for each in owners)
        kind_of_owner = "topology" if owner.kind == names.TOPOLOGY else "snapshot"
        self.what, self.remedy = f"{kind.kind} {metadata['name']}", ""
        if self.is_left_over:
            self.what += f" is of a former {kind_of_owner} {owner.name!r} and will be deleted with it"
        else:
            whose = f"belongs to {owners[0]['kind']} {owners[0]['name']}" if owners else f"is not of this {kind_of_owner}"
            self.what += f" exists and {whose}"
            self.remedy = f"give the {kind_of_owner} another name, or delete what is in its way"
        if holding:
            self.what += f"; it is being deleted and waits for {', '.join(holding)}"
        super().__init__(f"{self.what}: {self.remedy}" if self.remedy else self.what)


class Applier:
    """Takes the steps of a decision one after the other, each between two failpoints."""

    def __init__(self, api: Api, cache: Cache) -> None:
        self._api = api
        self._for_events = api.within(EVENT_SECONDS)
        self._cache = cache

    async def take(self, step: Step, owner: Owner) -> Object | None:
        """Carry out `step`. Returns the topology if the step changed it.

        Raises ApiError, ApiAway, NameTakenError, ResizeRefusedError.
        """
        failpoints.point(f"before-{step.point}")
        changed = await self._take(step, owner)
        failpoints.point(f"after-{step.point}")
        return changed

    async def _take(self, step: Step, owner: Owner) -> Object | None:
        match step:
            case Apply():
                await self._apply(step.body, owner)
            case MakeSecret():
                await self._make_secret(step, owner)
            case Finalizer():
                return await (self._add_finalizer(owner) if step.present else self._remove_finalizer(owner))
            case Patch():
                self._cache.note(await self._api.strategic_patch(step.kind, owner.namespace, step.name, dict(step.body)))
            case Resize():
                await self._resize(step, owner)
            case Delete():
                await self._delete(step, owner)
        return None

    async def _apply(self, body: Object, owner: Owner) -> None:
        """Make or change an object of the owner's, or adopt an orphan. What others have made is never touched."""
        kind, name = names.BY_KIND[body["kind"]], body["metadata"]["name"]
        known = self._cache.of(key_of(owner)).get((kind.kind, name))
        is_there = known is not None and known.owner == owner.uid
        is_there = is_there or await self._own(kind, body, owner) is not None
        self._cache.note(await self._api.apply(body, force=is_there))

    async def _own(self, kind: Kind, body: Object, owner: Owner) -> Object | None:
        """The owner's object of the name of `body`, or an orphan; None where there is none. NameTakenError: it is another's."""
        found = await self._api.get(kind, owner.namespace, body["metadata"]["name"])
        if found is not None and not is_owned(found, owner) and not _is_orphan(found, body):
            raise NameTakenError(kind, found, owner)
        return found

    async def recall_secret(self, owner: Owner) -> None:
        """Look for Spark's secret, which is not watched: after each start, and where pods may wait for it.

        Without the right to, what is known of it stays, and the step that makes a missing one is refused and says so.
        """
        try:
            known = await self._api.get(names.SECRET, owner.namespace, names.spark_secret(owner.name))
        except ApiError as error:
            if error.status != 403:
                raise
            log.warning("%s: %s", key_of(owner), error)
            return
        if known is not None and is_owned(known, owner):
            self._cache.note(known)
        else:
            self._cache.forget(key_of(owner), names.SECRET)

    async def _make_secret(self, step: MakeSecret, owner: Owner) -> None:
        """Create it unless it is there; before that delete the pods that know a previous one.

        An orphan is adopted as it is: running executors know it.
        """
        body = spark_secret(owner, secrets.token_hex(SECRET_BYTES))
        found = await self._own(names.SECRET, body, owner)
        if found is None:
            for delete in step.restarts:
                await self._delete(delete, owner)
            found = await self._api.create(names.SECRET, owner.namespace, body)
        elif not is_owned(found, owner):
            metadata = {"uid": found["metadata"]["uid"], "ownerReferences": [owner.reference()]}
            patch: Object = {"metadata": metadata}
            found = await self._api.patch(names.SECRET, owner.namespace, step.name, patch)
        self._cache.note(found)

    async def _add_finalizer(self, owner: Owner) -> Object:
        """With the uid: a topology that is gone is not created again, nor a namesake changed."""
        metadata = {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid, "finalizers": [names.FINALIZER]}
        return await self._api.apply(
            {"apiVersion": names.TOPOLOGY.api_version, "kind": names.TOPOLOGY.kind, "metadata": metadata}
        )

    async def _remove_finalizer(self, owner: Owner) -> Object | None:
        """By its place: server-side apply keeps what others hold, too, as kubectl does after `create -f` of an export."""
        found = await self._api.get(names.TOPOLOGY, owner.namespace, owner.name)
        if found is None or found["metadata"]["uid"] != owner.uid:
            return None  # gone: its event is on the way
        finalizers = found["metadata"].get("finalizers") or []
        if names.FINALIZER not in finalizers:
            return found
        place = f"/metadata/finalizers/{finalizers.index(names.FINALIZER)}"
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": owner.uid},
            {"op": "test", "path": place, "value": names.FINALIZER},
            {"op": "remove", "path": place},
        ]
        return await self._api.json_patch(names.TOPOLOGY, owner.namespace, owner.name, operations)

    async def _resize(self, step: Resize, owner: Owner) -> None:
        cpu, memory = step.resources
        container = {"name": "executor", "resources": limits(format_cpu(cpu), format_memory(memory))}
        body = {"spec": {"containers": [container]}}
        try:
            pod = await self._api.strategic_patch(names.POD, owner.namespace, step.pod, body, "resize")
        except ApiError as error:
            if error.status == 404 and await self._api.get(names.POD, owner.namespace, step.pod) is None:
                return  # the pod is gone; its successor has the new template
            if error.status in (400, 403, 404, 405, 422):
                keeps = error.status == 403 and await self._api.may("patch", names.POD, owner.namespace, "resize")
                raise ResizeRefusedError(step, error.message, keeps) from error
            raise
        self._cache.note(pod)
        if (made := resources_of(pod)) != step.resources:
            raise ResizeRefusedError(step, f"a webhook of the cluster makes that {written(made)}", keeps=True)

    async def _delete(self, step: Delete, owner: Owner) -> None:
        try:
            await self._api.delete(step.kind, owner.namespace, step.name, step.uid, step.at_once)
        except ApiError as error:
            if error.status != 409:  # another uid: the object to delete is gone
                raise

    async def write_status(self, manifest: Object, status: Object) -> Object:
        """Write the whole status. Returns the topology as it is now."""
        metadata = manifest["metadata"]
        changes = merge_patch(manifest.get("status") or {}, status)
        body = {"status": changes}
        return await self._api.patch(names.TOPOLOGY, metadata["namespace"], metadata["name"], body, "status")

    async def post(self, body: Object, key: TopologyKey, event: Event, now: float, kind: Kind = names.TOPOLOGY) -> bool:
        """Post an event of the object `body`, or increase its count if it exists. A failure is logged: it changes nothing.

        Returns False if the API server did not answer within `EVENT_SECONDS`.
        """
        uid, moment = body["metadata"]["uid"], format_time(now)
        name = f"{key.name}.{digest([event.reason, event.message, uid])}"
        posted = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": key.namespace},
            "involvedObject": {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": key.name,
                "namespace": key.namespace,
                "uid": uid,
            },
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:1024],
            "count": 1,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "source": {"component": names.MANAGER},
            "reportingComponent": names.MANAGER,
            "reportingInstance": "",
        }
        try:
            try:
                await self._for_events.create(names.EVENT, key.namespace, posted)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                known = await self._for_events.get(names.EVENT, key.namespace, name)
                if known is not None:
                    again = {"count": int(known.get("count") or 1) + 1, "lastTimestamp": moment}
                    await self._for_events.patch(names.EVENT, key.namespace, name, again)
        except (ApiError, ApiAway) as error:
            log.warning("%s: the event %s could not be posted (%s): %s", key, event.reason, event.message, error)
            return not isinstance(error, ApiAway)
        return True


def key_of(owner: Owner) -> TopologyKey:
    return TopologyKey(owner.namespace, owner.name)


def is_owned(body: Object, owner: Owner) -> bool:
    return any(reference["uid"] == owner.uid for reference in body["metadata"].get("ownerReferences") or ())


def _is_orphan(found: Object, body: Object) -> bool:
    """True for an object that an operator has made as `body` and nobody owns: its topology was deleted without it."""
    metadata, wanted = found["metadata"], body["metadata"]["labels"]
    labels = metadata.get("labels") or {}
    ours = names.CONTENT in (metadata.get("annotations") or {}) and "deletionTimestamp" not in metadata
    return ours and not metadata.get("ownerReferences") and all(labels.get(name) == wanted[name] for name in wanted)


def refused_in(status: Object, refusals: list[ResizeRefusedError]) -> Object:
    """`status` with the refused resizes: the next decision notes their time, and replaces those pods instead."""
    by_class = {refusal.step.class_name: refusal for refusal in refusals}
    classes = [_refused(one, by_class[one["name"]]) if one["name"] in by_class else one for one in status["classes"]]
    return {**status, "classes": classes}


def _refused(reported: Object, refusal: ResizeRefusedError) -> Object:
    before = {name: value for name, value in reported.items() if name != "refusedAt"}
    return {**before, "refusedFor": f"{reported['cpu']} CPU, {reported['memory']}", "refused": refusal.why}


def merge_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The JSON merge patch from `old` to `new`. An object that changes is in it as a whole: someone may have removed it since,
    and a part would become the whole."""
    return {name: value for name, value in _whole(old, new).items() if old.get(name) != new.get(name)}


def _whole(before: Any, value: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(value, dict):
        return value
    removed: dict[str, Any] = {name: None for name in before if name not in value}
    return removed | {name: _whole(before.get(name), inner) for name, inner in value.items()}
