"""Pods that should have ended and whose node is gone: nobody says that they have. Pure.

Kubernetes leaves such a pod as it is until its node is back or is removed, and a StatefulSet makes no other pod of its name,
as two of one name could be running. Two executors of one slot do no harm: the driver takes the newer one, and only what it
commits counts.
"""

from __future__ import annotations

from streamtopology.contract.conditions import EventReason
from streamtopology.contract.formatting import duration
from streamtopology.k8s import names
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.owned_objects import Pod
from streamtopology.k8s.decide.steps import Delete, Event, Step


def removals(seen: Observation, patience_seconds: float) -> list[Step]:
    """Delete steps for pods that are overdue to end for `patience_seconds` or longer; 0: none."""
    why = f"its node is gone, and its end overdue for more than {duration(patience_seconds)}"
    return [
        Delete(names.POD, pod.name, pod.uid, why, at_once=True)
        for pod, overdue in _overdue(seen, patience_seconds)
        if overdue >= patience_seconds
    ]


def events(removals: list[Step]) -> list[Event]:
    return [Event("Warning", EventReason.NODE_LOST, str(step)) for step in removals]


def seconds_to_removal(seen: Observation, patience_seconds: float) -> float | None:
    """Seconds until the next pod is to be removed; None where there is none."""
    left = (patience_seconds - overdue for _, overdue in _overdue(seen, patience_seconds))
    return min((seconds for seconds in left if seconds > 0), default=None)


def _overdue(seen: Observation, patience_seconds: float) -> list[tuple[Pod, float]]:
    """Pods of lost nodes with the seconds since they should have ended: their own grace period is over then."""
    pods = (*seen.pods("driver"), *seen.pods("executor")) if patience_seconds > 0 else ()
    return [(pod, seen.now - pod.since) for pod in pods if pod.deleting and pod.node_lost]
