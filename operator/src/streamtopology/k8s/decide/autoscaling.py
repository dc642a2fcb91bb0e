"""The replicas of the scaled classes: from spec, or by our own autoscaler. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import ScalingReason, Sizing
from streamtopology.k8s.decide.fields import items_at, mapping_at
from streamtopology.k8s.decide.observation import Observation
from streamtopology.topology import Autoscale, Topology


@dataclass(frozen=True)
class Scaled:
    """`replicas` of each scaled class within the bounds, and why: a sentence, empty without a decision.

    `class_name`: the one class that is scaled; empty where the manifest names several.
    """

    class_name: str
    replicas: Mapping[str, int]
    why: str = ""


def replicas_wanted(seen: Observation, topology: Topology) -> Scaled | None:
    """The replicas of the scaled classes; None where the manifest has no `autoscale`."""
    scaled = topology.autoscale
    if scaled is None:
        return None
    if scaled.by == "External":
        return _asked_for(scaled)
    before, now = _decided_before(seen, scaled), seen.answer.scaling if seen.answer else None
    is_for_others = now is not None and now.replicas.keys() != before.keys()  # the manifest has named others since
    if scaled.by == "Nobody" or now is None or now.replicas == before or is_for_others:
        return Scaled(scaled.executor_class, scaled.all_within(before))
    return Scaled(scaled.executor_class, scaled.all_within(now.replicas), describe(now.reason))


def replicas_kept(seen: Observation, topology: Topology) -> Scaled | None:
    """The replicas decided on last, while nothing may change; None where the manifest has no `autoscale`."""
    scaled = topology.autoscale
    return None if scaled is None else Scaled(scaled.executor_class, _decided_before(seen, scaled))


def why_scaled(seen: Observation, scaled: Scaled) -> str:
    """The reason for a change of replicas that is still running; empty without one. From status, where an earlier look
    recorded the decision and came no further."""
    running = seen.running.executors if seen.running is not None else ()
    if all(scaled.replicas.get(one.name, one.replicas) == one.replicas for one in running):
        return ""
    known = mapping_at(seen.status, "autoscale")
    return scaled.why or (known.get("reason", "") if recorded(seen, scaled.class_name) == scaled.replicas else "")


def recorded(seen: Observation, class_name: str) -> Mapping[str, int]:
    """The replicas in `status.autoscale`, as far as it has any: of this class, or of several where the name is empty.

    A number is that of the class which it names: a manifest that scales another class now has none yet.
    """
    known = mapping_at(seen.status, "autoscale")
    if not class_name:
        return {one["name"]: one["desired"] for one in items_at(known, "classes") if {"name", "desired"} <= one.keys()}
    return {class_name: known["desired"]} if known.get("class") == class_name and isinstance(known.get("desired"), int) else {}


def _asked_for(scaled: Autoscale) -> Scaled:
    """`spec.autoscale.replicas` within the bounds, with a reason where a bound changes it."""
    given = scaled.start
    count = given[scaled.executor_class]
    if count == scaled.replicas:
        return Scaled(scaled.executor_class, given)
    above = count < scaled.replicas
    reason = ScalingReason.ASKED_ABOVE_MAXIMUM if above else ScalingReason.ASKED_BELOW_MINIMUM
    return Scaled(scaled.executor_class, given, describe(Sizing(reason, count, needed=scaled.replicas)))


def _decided_before(seen: Observation, scaled: Autoscale) -> Mapping[str, int]:
    """The replicas in status; else those of the running topology; else those that the manifest begins with."""
    known = recorded(seen, scaled.executor_class)
    running = {one.name: one.replicas for one in seen.running.executors} if seen.running is not None else {}
    return {name: known.get(name, running.get(name, start)) for name, start in scaled.start.items()}
