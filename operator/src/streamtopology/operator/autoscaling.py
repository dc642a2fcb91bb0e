"""How many executors the scaled class should have: what spec says, or what our own autoscaler decides. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from streamtopology.operator.observe import Observed
from streamtopology.routing.topology import Topology


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
    if scaled.by != "Operator":
        return Scaled(scaled.executor_class, scaled.within(scaled.replicas))
    before, now = _decided_before(seen, topology), seen.answer.scaling if seen.answer else None
    if now is None or now.replicas == before:
        return Scaled(scaled.executor_class, scaled.within(before))
    return Scaled(scaled.executor_class, scaled.within(now.replicas), now.reason)


def _decided_before(seen: Observed, topology: Topology) -> int:
    """What status says; where it was lost what the driver was given; before any decision what the manifest begins with."""
    assert topology.autoscale is not None
    told = (seen.status.get("autoscale") or {}).get("desired")
    if isinstance(told, int):
        return told
    if seen.running is not None and any(one.name == topology.autoscale.executor_class for one in seen.running.executors):
        return seen.running.executor_class(topology.autoscale.executor_class).replicas
    return topology.autoscale.replicas
