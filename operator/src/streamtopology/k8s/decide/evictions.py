"""Pods that their kubelet has evicted: of storage beyond their limit, or of a node that is short of something. Pure.

An executor's is gone within milliseconds, as a StatefulSet makes another at once. A driver's stays until Kubernetes
collects it.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.owned_objects import Pod

# The time for which an eviction is reported.
RECENT_SECONDS = 600.0

# The limit in the manifest, by component.
_STORAGE: Mapping[str, str] = {
    "driver": "spec.driver.storage",
    "executor": "spec.executors, {}: storage",
    "migration": "spec.migration.resources.storage",
    "snapshot": "spec.migration.resources.storage of the topology",
}


def recent(seen: Observation) -> tuple[Pod, ...]:
    """The pods of this topology, and of no namesake before it, evicted in the last minutes; the last one first."""
    since = max(seen.created, seen.now - RECENT_SECONDS)
    found = [pod for pod in seen.evicted if pod.evicted is not None and pod.evicted.at >= since and pod.component != "snapshot"]
    return tuple(sorted(found, key=lambda pod: -pod.evicted.at if pod.evicted is not None else 0.0))


def seconds_to_oblivion(seen: Observation) -> float | None:
    """Seconds until one eviction less is reported; None where there is none."""
    ages = [seen.now - pod.evicted.at for pod in recent(seen) if pod.evicted is not None]
    return RECENT_SECONDS - max(ages) + 1.0 if ages else None


def sentence(pod: Pod) -> str:
    """The reason for which the pod was evicted, and the remedy if it was for a limit; empty where it was not."""
    if pod.evicted is None:
        return ""
    if not pod.evicted.by_limit:
        return f"{pod.name} was evicted from its node: {pod.evicted.message}"
    limit = _STORAGE.get(pod.component, "").format(pod.class_name)
    return f"{pod.name} was evicted, as it took more of its node's disk than it may: {pod.evicted.message}; raise {limit}"
