"""Questions to a StreamTopology as the API server has it, and to the objects around it."""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.k8s import names
from streamtopology.k8s.decide.owned_objects import OwnedObject
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.resources.objects import Object


def key_of(body: Object) -> TopologyKey:
    return TopologyKey(body["metadata"]["namespace"], body["metadata"]["name"])


def owned_by(uid: str, objects: Mapping[tuple[str, str], OwnedObject]) -> dict[tuple[str, str], OwnedObject]:
    """Without what only has our labels, or is left of a previous topology. The owner of a pod is its workload."""
    return {place: each for place, each in objects.items() if each.owner == uid or each.kind == names.POD.kind}


def orphans_among(objects: Mapping[tuple[str, str], OwnedObject]) -> tuple[OwnedObject, ...]:
    return tuple(each for each in objects.values() if each.is_orphan)


def is_same(one: Object, other: Object) -> bool:
    """True if both are versions of the same topology."""
    return one["metadata"]["uid"] == other["metadata"]["uid"]


def asked(body: Object) -> tuple[object, ...]:
    """The parts that only others change: identity, spec, deletion, annotations."""
    metadata = body["metadata"]
    return metadata["uid"], metadata["generation"], "deletionTimestamp" in metadata, metadata.get("annotations") or {}


def version(body: Object) -> int:
    return int(body["metadata"]["resourceVersion"])
