"""The unfinished change of a topology: its kind, what it waits for, and its record in status."""

from __future__ import annotations

from streamtopology.contract.conditions import ReconfiguringReason
from streamtopology.k8s.decide.conditions import first_trouble, is_completed
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.rollout import Rollout, is_pending
from streamtopology.k8s.decide.scaling import ready_executors
from streamtopology.k8s.decide.steps import Resize, Step
from streamtopology.k8s.decide.transition import STOPPING, Transition
from streamtopology.k8s.resources.objects import Object
from streamtopology.topology import Topology

# Steps that a sentence names, and that status records: a class of a thousand executors has as many.
MOST_NAMED, MOST_RECORDED = 20, 100


def change_under_way(
    seen: Observation, topology: Topology, rollout: Rollout, steps: tuple[Step, ...], outdated: int
) -> tuple[str, str] | None:
    """(kind, sentence) of the unfinished change; None when all is settled."""
    known = seen.transition.kind if seen.transition is not None and seen.transition.kind not in STOPPING else None
    if topology.suspend or is_completed(seen, topology):
        kind = ReconfiguringReason.SUSPENDING if topology.suspend else ReconfiguringReason.COMPLETING
        if steps:
            return kind, _named(steps)
        return None if seen.runs_nothing else (kind, "its pods are stopped, the driver's first")
    if rollout.begun:
        return rollout.begun, "; ".join(event.message for event in rollout.events) or "its objects are made"
    if any(isinstance(step, Resize) for step in steps) or any(pod.resizing for pod in seen.pods("executor")):
        return ReconfiguringReason.RESIZING, "executors get other limits while they run"
    for executor in topology.executors:
        existing = seen.stateful_set(executor.name)
        if existing is not None and existing.replicas > executor.replicas:
            return (
                ReconfiguringReason.SCALING,
                f"the driver takes everything off {existing.replicas - executor.replicas} executors of {executor.name}",
            )
    if steps:
        return known or ReconfiguringReason.UPDATING, _named(steps)
    if outdated:
        why = f"executor pods are replaced, {outdated} yet to come{first_trouble(seen)}"
        return known or ReconfiguringReason.UPDATING, why
    ready = ready_executors(seen, topology)
    if known and (ready < topology.replicas or seen.driver_pod is None or not seen.driver_pod.ready):
        return known, f"{ready} of {topology.replicas} executors are ready{first_trouble(seen)}"
    sleeps = topology.replicas == 0  # what was published is in force with the next rows, whenever they come
    if known and (seen.stats is None or seen.silence is not None or (is_pending(seen) and not sleeps)):
        return known, "waiting for the first batch under it"
    if seen.stats is not None and is_pending(seen) and not sleeps and seen.stats.epoch is not None:
        return ReconfiguringReason.REROUTING, f"waiting for the first batch after epoch {seen.stats.epoch}"
    return None


def _named(steps: tuple[Step, ...]) -> str:
    return "; ".join(_texts(steps, MOST_NAMED))


def _texts(steps: tuple[Step, ...], most: int) -> list[str]:
    more = len(steps) - most
    return [*(str(step) for step in steps[:most]), *([f"and {more} more"] if more > 0 else [])]


def intent(change: Transition, why: str, steps: tuple[Step, ...]) -> Object:
    """The record of the unfinished change in status: itself, what it waits for, and the next steps, the first of many."""
    noted: Object = {**change.to_status(), "reason": why}
    return {**noted, "steps": _texts(steps, MOST_RECORDED)} if steps else noted
