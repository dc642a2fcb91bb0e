"""How many executors the scaled class should have: what spec says, or what our own autoscaler decides. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from streamtopology.operator.observe import Observed
from streamtopology.routing.topology import Autoscale, Topology


@dataclass(frozen=True)
class Scaled:
    """`replicas` within the bounds, and why: a sentence, empty where nobody has decided anything."""

    class_name: str
    replicas: int
    why: str = ""


def replicas_wanted(seen: Observed, topology: Topology) -> Scaled | None:
    """None where the manifest has no `autoscale`."""
    scaled = topology.autoscale
    if scaled is None:
        return None
    if scaled.by == "External":
        return _asked_for(scaled)
    before, now = _decided_before(seen, topology), seen.answer.scaling if seen.answer else None
    if scaled.by == "Nobody" or now is None or now.replicas == before:
        return Scaled(scaled.executor_class, scaled.within(before))
    return Scaled(scaled.executor_class, scaled.within(now.replicas), now.reason)


def why_scaled(seen: Observed, scaled: Scaled) -> str:
    """Why the class gets another number of executors than it runs with, as long as it does; empty where it keeps them. From
    status where the decision was recorded by a look that came no further."""
    running = seen.running.executors if seen.running is not None else ()
    if all(one.name != scaled.class_name or one.replicas == scaled.replicas for one in running):
        return ""
    known = seen.status.get("autoscale") or {}
    return scaled.why or (known.get("reason", "") if known.get("desired") == scaled.replicas else "")


def _asked_for(scaled: Autoscale) -> Scaled:
    """What `spec.autoscale.replicas` says, and a reason where a bound holds it."""
    given = scaled.within(scaled.replicas)
    if given == scaled.replicas:
        return Scaled(scaled.executor_class, given)
    bound = "maxReplicas" if given < scaled.replicas else "minReplicas"
    return Scaled(scaled.executor_class, given, f"{scaled.replicas} replicas were asked for; {bound} is {given}")


def _decided_before(seen: Observed, topology: Topology) -> int:
    """What status says; where it was lost what the driver was given; before any decision what the manifest begins with."""
    assert topology.autoscale is not None
    told = (seen.status.get("autoscale") or {}).get("desired")
    if isinstance(told, int):
        return told
    if seen.running is not None and any(one.name == topology.autoscale.executor_class for one in seen.running.executors):
        return seen.running.executor_class(topology.autoscale.executor_class).replicas
    return topology.autoscale.replicas
