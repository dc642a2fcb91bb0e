"""Whose a place on storage is: checkpoints of topologies and copies of snapshots, each with one owner. Pure.

The same path of two pods may be on two volumes, and two paths on one. So places are compared by volume where the pods say
it, and by path where they do not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamtopology.k8s.decide.fields import items_at, mapping_at
from streamtopology.k8s.resources.objects import Object

# Volumes of one pod, or whose content is no storage: nobody else has what is on them.
_PRIVATE = ("emptyDir", "ephemeral", "configMap", "secret", "downwardAPI", "projected", "image")


@dataclass(frozen=True)
class StoragePlace:
    """A folder with a slash at its end, or a prefix of a bucket, as pods of `namespace` name it.

    `volume`: what it is on, "" where that is not known; `inner`: the folder there.
    """

    namespace: str
    folder: str
    volume: str = ""
    inner: str = ""

    def overlaps(self, other: StoragePlace) -> bool:
        """True if they are the same, or one is in the other."""
        if self.volume and other.volume:
            return self.volume == other.volume and _is_within(self.inner, other.inner)
        return self.namespace == other.namespace and _is_within(self.folder, other.folder)


def place_of(uri: str, topology: Mapping[str, Any], namespace: str) -> StoragePlace:
    """The place that the driver of this topology means by `uri`; of a topology that is not known an empty one."""
    folder = _folder(uri)
    if uri.startswith("s3://"):
        return StoragePlace(namespace, folder, "s3", folder)
    pod = mapping_at(topology, "spec", "driver", "pod")
    mounts = [(_folder(str(one.get("mountPath", ""))), one) for one in items_at(pod, "volumeMounts")]
    around = [(path, mount) for path, mount in mounts if folder.startswith(path)]
    if not around:
        return StoragePlace(namespace, folder)
    path, mount = max(around, key=lambda one: len(one[0]))
    if mount.get("subPathExpr"):
        return StoragePlace(namespace, folder)
    volumes = {str(one.get("name")): one for one in items_at(pod, "volumes")}
    whose = str(mapping_at(topology, "metadata").get("name", ""))
    identity, root = _volume(mapping_at(volumes, str(mount.get("name"))), namespace, whose)
    inner = _folder(f"{root}/{mount.get('subPath') or ''}/{folder[len(path) :]}")
    return StoragePlace(namespace, folder, identity, inner)


def checkpoint_owner(place: StoragePlace, topologies: Iterable[Object]) -> str:
    """The topology whose checkpoint this place is, or is in or around; "" without one."""
    for topology in topologies:
        namespace = str(topology["metadata"].get("namespace", ""))
        known = (mapping_at(topology, "spec").get("checkpoint"), mapping_at(topology, "status").get("checkpoint"))
        if any(place.overlaps(place_of(str(uri), topology, namespace)) for uri in known if uri):
            return as_seen_from(place.namespace, topology)
    return ""


def as_seen_from(namespace: str, body: Object) -> str:
    """The name of an object, with its namespace where that is another one."""
    of = str(body["metadata"].get("namespace", ""))
    name = str(body["metadata"]["name"])
    return name if of == namespace else f"{of}/{name}"


def overlap(one: str, other: str) -> bool:
    """True if two paths of one pod are the same place, or one is in the other."""
    return _is_within(_folder(one), _folder(other))


def _is_within(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _volume(volume: Mapping[str, Any], namespace: str, topology: str) -> tuple[str, str]:
    """What a volume is, equal for two that are the same, "" where it is not known; and the folder that it begins with."""
    kind = next((name for name in volume if name != "name"), "")
    of = mapping_at(volume, kind) if kind else {}
    if kind == "persistentVolumeClaim":
        return json.dumps([kind, namespace, of.get("claimName")]), ""
    if kind in ("nfs", "hostPath"):
        return json.dumps([kind, of.get("server")]), str(of.get("path", ""))
    if kind in _PRIVATE:
        return json.dumps([kind, namespace, topology, volume.get("name")]), ""
    return (json.dumps([kind, of], sort_keys=True), "") if kind else ("", "")


def _folder(uri: str) -> str:
    """A place in one form, with a slash at its end."""
    if uri.startswith("s3://"):
        return uri.rstrip("/") + "/"
    path = _decoded(re.sub("^file:(//)?", "", uri)) if uri.startswith("file:") else uri
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "".join(f"/{part}" for part in parts) + "/"


def _decoded(path: str) -> str:
    """The path that a URI writes with percent signs."""
    plain = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes.fromhex(found[1].decode()), path.encode())
    return plain.decode(errors="replace")
