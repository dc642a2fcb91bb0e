"""Two topologies whose objects would have the same name: one of them makes nothing. Pure.

Only StatefulSets can: that of class `b-c` of topology `a`, and of class `c` of topology `a-b`. Other names end in a word of
the operator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from streamtopology.k8s import names
from streamtopology.k8s.decide.fields import items_at
from streamtopology.k8s.resources.objects import Object


def rival_of(manifest: Object, named: Callable[[str], Object | None], has: Callable[[Object, str], bool]) -> str:
    """The sentence for a topology that makes way for another, empty where none has to.

    `named`: the topology of this name in its namespace, `has`: whether a topology has this StatefulSet already. It is the
    first of two then; else the older one is.
    """
    name = manifest["metadata"]["name"]
    for class_name in _classes(manifest):
        made = names.executor_class(name, class_name)
        for other, theirs in _splits(made):
            rival = named(other)
            if rival is None or other == name or theirs not in _classes(rival) or has(manifest, made):
                continue
            if has(rival, made) or _age(rival) < _age(manifest):
                return (
                    f"spec.executors: class {class_name!r} would have the StatefulSet {made}, which is that of class "
                    f"{theirs!r} of the topology {other!r}: give the class or the topology another name"
                )
    return ""


def _splits(made: str) -> Iterator[tuple[str, str]]:
    """The topologies and classes whose StatefulSet has this name."""
    parts = made.split("-")
    for count in range(1, len(parts)):
        yield "-".join(parts[:count]), "-".join(parts[count:])


def _classes(manifest: Object) -> tuple[str, ...]:
    return tuple(str(each.get("name")) for each in items_at(manifest, "spec", "executors"))


def _age(manifest: Object) -> tuple[str, str]:
    return manifest["metadata"].get("creationTimestamp", ""), manifest["metadata"]["name"]
