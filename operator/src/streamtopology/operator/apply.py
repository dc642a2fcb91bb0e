"""Carries steps out at the API server, writes status, tells events. What comes back goes into the cache at once."""

from __future__ import annotations

import logging
import secrets
from typing import Any

from streamtopology.operator import faults, names
from streamtopology.operator.api import Api, ApiAway, ApiError, Object
from streamtopology.operator.cache import Cache
from streamtopology.operator.queue import Key
from streamtopology.operator.resizing import written
from streamtopology.operator.resources.access import spark_secret
from streamtopology.operator.resources.objects import Owner, digest, limits
from streamtopology.operator.status import format_time
from streamtopology.operator.steps import Apply, Delete, Event, Finalizer, MakeSecret, Patch, Resize, Step
from streamtopology.routing.topology import format_cpu, format_memory

log = logging.getLogger(__name__)

SECRET_BYTES = 32


class ResizeRefusedError(Exception):
    """The API server does not resize this pod in place: too old, not allowed, or not to these resources."""

    def __init__(self, step: Resize, why: str) -> None:
        self.step = step
        self.why = why
        super().__init__(f"{step}: {why}")


class Applier:
    """Takes the steps of one decision after the other, each between two fault points."""

    def __init__(self, api: Api, cache: Cache) -> None:
        self._api = api
        self._cache = cache

    async def take(self, step: Step, owner: Owner) -> Object | None:
        """Carries it out. Returns the topology where the step changed it. ApiError, ApiAway, ResizeRefusedError."""
        faults.point(f"before-{step.point}")
        changed = await self._take(step, owner)
        faults.point(f"after-{step.point}")
        return changed

    async def _take(self, step: Step, owner: Owner) -> Object | None:
        match step:
            case Apply():
                self._cache.note(await self._api.apply(step.body))
            case MakeSecret():
                await self._make_secret(owner)
            case Finalizer():
                return await self._api.apply(_with_finalizer(owner, step.present))
            case Patch():
                self._cache.note(await self._api.patch(step.kind, owner.namespace, step.name, dict(step.body)))
            case Resize():
                await self._resize(step, owner)
            case Delete():
                await self._delete(step, owner)
        return None

    async def recall_secret(self, owner: Owner) -> None:
        """Looks for Spark's secret, which no watch tells of: one call for each topology of each start."""
        known = await self._api.get(names.SECRET, owner.namespace, names.spark_secret(owner.name))
        if known is not None and _is_owned(known, owner):
            self._cache.note(known)

    async def _make_secret(self, owner: Owner) -> None:
        """Created, not applied: if a namesake's is still there, it is on its way out, and this is tried again."""
        body = spark_secret(owner, secrets.token_hex(SECRET_BYTES))
        try:
            self._cache.note(await self._api.create(names.SECRET, owner.namespace, body))
        except ApiError as error:
            await self.recall_secret(owner)
            if error.reason != "AlreadyExists" or ("Secret", body["metadata"]["name"]) not in self._cache.of(key_of(owner)):
                raise

    async def _resize(self, step: Resize, owner: Owner) -> None:
        cpu, memory = step.resources
        container = {"name": "executor", "resources": limits(format_cpu(cpu), format_memory(memory))}
        body = {"spec": {"containers": [container]}}
        try:
            self._cache.note(await self._api.strategic_patch(names.POD, owner.namespace, step.pod, body, "resize"))
        except ApiError as error:
            if error.status == 404 and await self._api.get(names.POD, owner.namespace, step.pod) is None:
                return  # gone meanwhile; its successor has the new template
            if error.status in (400, 403, 404, 405, 422):
                raise ResizeRefusedError(step, error.message) from error
            raise

    async def _delete(self, step: Delete, owner: Owner) -> None:
        try:
            await self._api.delete(step.kind, owner.namespace, step.name, step.uid)
        except ApiError as error:
            if error.status != 409:  # another uid: what was to go is gone
                raise

    async def write_status(self, manifest: Object, status: Object) -> Object:
        """Writes the whole status. Returns the topology as it is now."""
        metadata = manifest["metadata"]
        changes = merge_patch(manifest.get("status") or {}, status)
        body = {"status": changes}
        return await self._api.patch(names.TOPOLOGY, metadata["namespace"], metadata["name"], body, "status")

    async def tell(self, manifest: Object, key: Key, event: Event, now: float) -> None:
        """Posts an event, or counts it up if it is there. An event that cannot be told is logged: it changes nothing."""
        name = f"{key.name}.{digest([event.reason, event.message, manifest['metadata']['uid']])}"
        moment = format_time(now)
        body = {
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": key.namespace},
            "involvedObject": {
                "apiVersion": names.TOPOLOGY.api_version, "kind": names.TOPOLOGY.kind, "name": key.name,
                "namespace": key.namespace, "uid": manifest["metadata"]["uid"],
            },
            "type": event.type, "reason": event.reason, "message": event.message[:1024], "count": 1,
            "firstTimestamp": moment, "lastTimestamp": moment,
            "source": {"component": names.MANAGER}, "reportingComponent": names.MANAGER, "reportingInstance": "",
        }  # fmt: skip
        try:
            try:
                await self._api.create(names.EVENT, key.namespace, body)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                known = await self._api.get(names.EVENT, key.namespace, name)
                if known is not None:
                    again = {"count": int(known.get("count") or 1) + 1, "lastTimestamp": moment}
                    await self._api.patch(names.EVENT, key.namespace, name, again)
        except (ApiError, ApiAway) as error:
            log.warning("%s: the event %s could not be told (%s): %s", key, event.reason, event.message, error)


def key_of(owner: Owner) -> Key:
    return Key(owner.namespace, owner.name)


def _is_owned(body: Object, owner: Owner) -> bool:
    return any(reference["uid"] == owner.uid for reference in body["metadata"].get("ownerReferences") or ())


def _with_finalizer(owner: Owner, present: bool) -> Object:
    """With the uid: a topology that is gone is not made again, nor a namesake touched."""
    metadata: Object = {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid}
    if present:
        metadata["finalizers"] = [names.FINALIZER]
    return {"apiVersion": names.TOPOLOGY.api_version, "kind": names.TOPOLOGY.kind, "metadata": metadata}


def refused_in(status: Object, refusals: list[ResizeRefusedError]) -> Object:
    """The status with the resizes that were refused: the next decision replaces those pods instead."""
    by_class = {refusal.step.class_name: refusal for refusal in refusals}
    classes = [
        {**one, "refusedFor": written(by_class[one["name"]].step.resources), "refused": by_class[one["name"]].why}
        if one["name"] in by_class
        else one
        for one in status["classes"]
    ]
    return {**status, "classes": classes}


def merge_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The JSON merge patch that makes `new` of `old`. Of an object that changes it has all: somebody may have removed it since,
    and a part of it would be left as the whole."""
    return {name: value for name, value in _whole(old, new).items() if old.get(name) != new.get(name)}


def _whole(before: Any, value: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(value, dict):
        return value
    removed: dict[str, Any] = {name: None for name in before if name not in value}
    return removed | {name: _whole(before.get(name), inner) for name, inner in value.items()}
