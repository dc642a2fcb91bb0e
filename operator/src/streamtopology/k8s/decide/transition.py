"""The unfinished change of a topology as one value, as `status.intent` records it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamtopology.contract.conditions import ReadyReason, ReconfiguringReason
from streamtopology.k8s.instants import format_instant, parse_time
from streamtopology.topology import Topology

# Changes after which nothing runs: they neither continue an unfinished change nor are continued by another.
STOPPING = (ReconfiguringReason.SUSPENDING, ReconfiguringReason.COMPLETING, ReadyReason.DELETING)

# Before the number of the epoch in a target.
_EPOCH = "; epoch "


@dataclass(frozen=True)
class Transition:
    """A change that has begun and is not done. `begun`: seconds since 1970. `kind`: a reason of the condition Reconfiguring.

    `target`: the executors and the epoch that it leads to. A change to another target is another change, with a
    beginning of its own: within a generation too, as an autoscaler's decisions are.
    """

    kind: str
    begun: float
    generation: int
    target: str

    @property
    def epoch(self) -> int | None:
        """The epoch that the change leads to; None where it leads to none of its own."""
        number = self.target.rpartition(_EPOCH)[2] if _EPOCH in self.target else ""
        return int(number) if number.isdecimal() else None

    def to_status(self) -> dict[str, Any]:
        """Its part of `status.intent`. A deletion has no target, and the CRD allows no empty text."""
        noted = {"action": str(self.kind), "generation": self.generation, "at": format_instant(self.begun)}
        return {**noted, "target": self.target} if self.target else noted


def recorded(status: Mapping[str, Any]) -> Transition | None:
    """The change that status records; None where there is none. A deletion leads to no target."""
    intent = status.get("intent")
    if not intent:
        return None
    return Transition(intent["action"], parse_time(intent["at"]), int(intent.get("generation", 0)), intent.get("target", ""))


def target_of(topology: Topology, epoch: int | None) -> str:
    """The target of a change to `topology`, which is resolved, and to this epoch of the ConfigMap."""
    executors = ", ".join(f"{executor.replicas} {executor.name}" for executor in topology.executors)
    return executors if epoch is None else f"{executors}{_EPOCH}{epoch}"


def present(known: Transition | None, kind: str, begins: bool, generation: int, target: str, now: float) -> Transition:
    """The change that is under way: the `known` one, if it leads to the same target, or a new one.

    `begins`: steps of this decision begin a change of this kind.
    """
    new = Transition(kind, now, generation, target)
    if known is None or known.target != target:
        return new
    if (known.kind, known.generation) == (kind, generation):
        return known
    if begins or known.kind in STOPPING or kind in STOPPING:
        return new
    return replace(known, generation=generation)


def waited(known: Transition | None, target: str, now: float) -> float:
    """Seconds since the change to this target began; 0 if it begins now."""
    return now - known.begun if known is not None and known.target == target else 0.0
