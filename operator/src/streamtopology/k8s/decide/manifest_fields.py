"""Fields of the manifest by those of the objects made of them: for an object that the API server refuses. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from streamtopology.k8s import names
from streamtopology.k8s.decide.steps import Apply, Patch, Step
from streamtopology.k8s.resources.objects import STORAGE
from streamtopology.topology import POD_FIELDS

_OF_USERS = frozenset(field.name for field in POD_FIELDS)
_POD = re.compile(r"spec\.template\.spec\.([A-Za-z]+)")
_CONTAINER = re.compile(
    r"spec\.template\.spec\.containers\[(?:0|[a-z]+)\]\.([A-Za-z]+)(?:\.(?:limits|requests)[.\[]([a-z-]+))?"
)
_METADATA = re.compile(r"(?:spec\.template\.)?(?:metadata\.)?(labels|annotations)")


def manifest_fields(step: Step, fields: Iterable[str]) -> tuple[str, ...]:
    """The fields of the manifest that have led to these `fields` of the object of a step; empty where they are all ours.

    `fields`: as the API server names them, `spec.template.spec.volumes[3].name`.
    """
    pod = _pod_of(step)
    if pod is None:
        return ()
    return tuple(dict.fromkeys(f"{pod}{below}" for field in fields if (below := _below(field)) is not None))


def _pod_of(step: Step) -> str | None:
    """The part of the manifest that a pod is described by."""
    if not isinstance(step, Apply | Patch):
        return None
    kind, _ = step.place
    if kind == names.STATEFUL_SET.kind and isinstance(step, Apply):
        return f"spec.executors, {step.body['metadata']['labels'][names.CLASS]}: "
    return {names.DEPLOYMENT.kind: "spec.driver.", names.JOB.kind: "spec.driver."}.get(kind)


def _below(field: str) -> str | None:
    """The field in that part of the manifest; None where the operator alone has written it."""
    if (found := _CONTAINER.match(field)) is not None:
        name, resource = found.groups()
        if name == "resources":
            return "storage" if resource == STORAGE else resource or "cpu"
        return f"pod.{name}" if name in _OF_USERS else None
    if (found := _POD.match(field) or _METADATA.match(field)) is not None:
        return f"pod.{found[1]}" if found[1] in _OF_USERS else None
    return None
