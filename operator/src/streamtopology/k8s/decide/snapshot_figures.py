"""Figures of the snapshots that exist, for the metrics. Pure."""

# pyright takes the members of enums with a meaning for tuples.
# pyright: reportUnnecessaryComparison=false

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from streamtopology.contract.conditions import ConditionType
from streamtopology.k8s.decide.fields import items_at, mapping_at
from streamtopology.k8s.decide.snapshots import SnapshotPhase
from streamtopology.k8s.instants import parse_time
from streamtopology.k8s.resources.objects import Object

# Namespace and name of the topology that a snapshot is of.
Of = tuple[str, str]


def by_phase(bodies: Iterable[Object]) -> Counter[tuple[str, str, str]]:
    """The number of snapshots by namespace, topology and phase."""
    return Counter((*_of(body), phase) for body in bodies if (phase := _phase(body)))


def completed_at(bodies: Iterable[Object]) -> dict[Of, float]:
    """The time at which each topology's newest whole copy was completed, in seconds since 1970."""
    newest: dict[Of, float] = {}
    for body in bodies:
        if _phase(body) == SnapshotPhase.COMPLETED:
            newest[_of(body)] = max(newest.get(_of(body), 0.0), _ready_since(body))
    return newest


def _of(body: Object) -> Of:
    return body["metadata"]["namespace"], body["spec"]["topology"]


def _phase(body: Object) -> str:
    return str(mapping_at(body, "status").get("phase", ""))


def _ready_since(body: Object) -> float:
    since = (one["lastTransitionTime"] for one in items_at(body["status"], "conditions") if one["type"] == ConditionType.READY)
    return max(map(parse_time, since), default=0.0)
