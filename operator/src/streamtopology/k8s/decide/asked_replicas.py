"""The numbers that others write into `spec.autoscale.replicas`, as status remembers them. Pure.

The field has one value and may have several writers: an HPA or KEDA, `kubectl scale`, a GitOps controller that writes the
number of its manifest back. One look at it shows none of them, so status keeps the last changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamtopology.contract.formatting import duration
from streamtopology.k8s.decide.fields import items_at, mapping_at
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.instants import format_time, parse_time
from streamtopology.k8s.resources.objects import Object
from streamtopology.topology import Autoscale, Topology

# The time for which a change counts. Flux writes a manifest back every ten minutes, Argo CD within seconds.
COUNTED_SECONDS = 2700.0

# Changes back to the number before the last one, from which on two writers are reported: people change their mind once.
CONTESTED = 3

# Changes that status keeps.
MOST_KEPT = 12


@dataclass(frozen=True)
class AskedReplicas:
    """A number in `spec.autoscale.replicas`, and since when the operator has seen it, in seconds since 1970."""

    replicas: int
    since: float

    def to_status(self) -> Object:
        return {"replicas": self.replicas, "at": format_time(self.since)}


def asked_replicas(seen: Observation) -> tuple[AskedReplicas, ...]:
    """The last numbers for the class that is scaled, the present one last; none where the manifest scales not just one."""
    scaled = seen.read.autoscale if isinstance(seen.read, Topology) else None
    if scaled is None or not scaled.executor_class:
        return ()
    known = mapping_at(seen.status, "asked")
    noted = items_at(known, "numbers") if known.get("class") == scaled.executor_class else []
    kept = tuple(AskedReplicas(one["replicas"], parse_time(one["at"])) for one in noted if {"replicas", "at"} <= one.keys())
    if kept and kept[-1].replicas == scaled.replicas:
        return kept
    return (*kept[1 - MOST_KEPT :], AskedReplicas(scaled.replicas, seen.now))


def writers_quarrel(seen: Observation) -> str:
    """The sentence for a number that is changed back and forth, by two writers; empty where it is not."""
    times = _back_and_forth(seen)
    if len(times) < CONTESTED:
        return ""
    recent = [one.replicas for one in asked_replicas(seen) if one.since > seen.now - COUNTED_SECONDS]
    numbers = " and ".join(map(str, dict.fromkeys(recent)))
    return (
        f"spec.autoscale.replicas was changed back and forth {len(times)} times in {duration(COUNTED_SECONDS)} ({numbers}): "
        "it has two writers, such as an HPA and a GitOps controller that writes its manifest's number; leave "
        "autoscale.replicas out of the manifest, or remove the other writer"
    )


def seconds_to_peace(seen: Observation) -> float | None:
    """Seconds until one change less counts; None where they are not reported."""
    times = _back_and_forth(seen)
    return min(times) + COUNTED_SECONDS - seen.now + 1.0 if len(times) >= CONTESTED else None


def _back_and_forth(seen: Observation) -> Sequence[float]:
    """The times of the recent changes to the number before the last one."""
    scaled = seen.read.autoscale if isinstance(seen.read, Topology) else None
    if scaled is None or scaled.by != "External":
        return ()
    asked = asked_replicas(seen)
    since = seen.now - COUNTED_SECONDS
    back = [now for before, now in zip(asked, asked[2:], strict=False) if now.replicas == before.replicas]
    return [one.since for one in back if one.since > since]


def unheeded(seen: Observation, desired: int) -> str:
    """The sentence for a number that is not heeded: others decide, or it is out of bounds; empty where it is the `desired`
    one."""
    scaled = seen.read.autoscale if isinstance(seen.read, Topology) else None
    asked = asked_replicas(seen)
    if scaled is None or not asked or asked[-1].replicas == desired:
        return ""
    if scaled.by == "External":
        return _out_of_bounds(asked[-1].replicas, desired, scaled)
    if len(asked) < 2:
        return ""
    decides = "the operator decides on the number" if scaled.by == "Operator" else "nobody changes the number"
    return (
        f"spec.autoscale.replicas is {asked[-1].replicas} now and changes nothing: with autoscale.by: {scaled.by} {decides}, "
        "and spec.autoscale.replicas is only the beginning; to scale with kubectl scale, an HPA or KEDA "
        "set autoscale.by: External"
    )


def _out_of_bounds(asked: int, desired: int, scaled: Autoscale) -> str:
    bound = min(max(asked, scaled.min_replicas), scaled.max_replicas)
    if asked == bound or desired != bound:  # a topology that is paused or starts keeps another number for a while
        return ""
    limit = "minReplicas" if asked < bound else "maxReplicas"
    way_out = "" if asked else "; spec.suspend stops all executors, and minReplicas: 0 those without rows"
    return f"spec.autoscale.replicas is {asked} now, and {bound} run, as autoscale.{limit} is {bound}{way_out}"
