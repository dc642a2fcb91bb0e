"""The replicas of the scaled class: from spec, or by our own autoscaler. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import ScalingReason, Sizing
from streamtopology.k8s.decide.observation import Observation
from streamtopology.topology import Autoscale, Topology


@dataclass(frozen=True)
class Scaled:
    """`replicas` within the bounds, and why: a sentence, empty without a decision."""

    class_name: str
    replicas: int
    why: str = ""


def replicas_wanted(seen: Observation, topology: Topology) -> Scaled | None:
    """The replicas of the scaled class; None where the manifest has no `autoscale`."""
    scaled = topology.autoscale
    if scaled is None:
        return None
    if scaled.by == "External":
        return _asked_for(scaled)
    before, now = _decided_before(seen, topology), seen.answer.scaling if seen.answer else None
    if scaled.by == "Nobody" or now is None or now.replicas == before:
        return Scaled(scaled.executor_class, scaled.within(before))
    return Scaled(scaled.executor_class, scaled.within(now.replicas), describe(now.reason))


def replicas_kept(seen: Observation, topology: Topology) -> Scaled | None:
    """The replicas decided on last, while nothing may change; None where the manifest has no `autoscale`."""
    if topology.autoscale is None:
        return None
    return Scaled(topology.autoscale.executor_class, _decided_before(seen, topology))


def why_scaled(seen: Observation, scaled: Scaled) -> str:
    """The reason for a change of replicas that is still running; empty without one. From status, where an earlier look
    recorded the decision and came no further."""
    running = seen.running.executors if seen.running is not None else ()
    if all(one.name != scaled.class_name or one.replicas == scaled.replicas for one in running):
        return ""
    known = seen.status.get("autoscale") or {}
    return scaled.why or (known.get("reason", "") if known.get("desired") == scaled.replicas else "")


def _asked_for(scaled: Autoscale) -> Scaled:
    """`spec.autoscale.replicas` within the bounds, with a reason where a bound changes it."""
    given = scaled.within(scaled.replicas)
    if given == scaled.replicas:
        return Scaled(scaled.executor_class, given)
    above = given < scaled.replicas
    reason = ScalingReason.ASKED_ABOVE_MAXIMUM if above else ScalingReason.ASKED_BELOW_MINIMUM
    return Scaled(scaled.executor_class, given, describe(Sizing(reason, given, needed=scaled.replicas)))


def _decided_before(seen: Observation, topology: Topology) -> int:
    """The replicas in status; else those of the running topology; else those that the manifest begins with."""
    assert topology.autoscale is not None
    desired = (seen.status.get("autoscale") or {}).get("desired")
    if isinstance(desired, int):
        return desired
    if seen.running is not None and any(one.name == topology.autoscale.executor_class for one in seen.running.executors):
        return seen.running.executor_class(topology.autoscale.executor_class).replicas
    return topology.autoscale.replicas
