"""Optional fields of Kubernetes objects: one that is missing or null reads as an empty one, since Go writes null for empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from streamtopology.k8s.resources.objects import Object


def mapping_at(body: Mapping[str, Any], *path: str) -> Object:
    """The mapping at this path of fields; an empty one if any of them is missing or null."""
    for name in path:
        body = body.get(name) or {}
    return cast("Object", body)


def items_at(body: Mapping[str, Any], *path: str) -> list[Object]:
    """The list of mappings at this path of fields; an empty one if any of them is missing or null."""
    *parents, last = path
    return mapping_at(body, *parents).get(last) or []
