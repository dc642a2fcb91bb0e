"""Scaled to zero: the executors of a topology go while no rows come, its driver stays and sees the next ones. Pure.

The driver still plans for one executor, which is away. Its next batch waits for it, and that starts one.
"""

from __future__ import annotations

from dataclasses import replace

from streamtopology.contract.conditions import ReconfiguringReason
from streamtopology.k8s.decide.autoscaling import Scaled
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.rollout import Rollout
from streamtopology.k8s.decide.steps import Event
from streamtopology.topology import Topology


def asleep(seen: Observation, planned: Topology, scaled: Scaled | None) -> Topology | None:
    """`planned` without its only executor, if that is of the class that is scaled to zero and its driver has had nothing to do
    for as long as fewer executors wait for; else None. A driver that starts needs one to begin. Of several classes one
    always keeps an executor."""
    settings = seen.read.autoscale if isinstance(seen.read, Topology) else None
    if settings is None or scaled is None or any(scaled.replicas.values()):
        return None
    if any(one.replicas for one in planned.executors if one.name != scaled.class_name):
        return None  # other classes are not scaled
    existing = seen.stateful_set(scaled.class_name)
    if existing is None or existing.replicas > 1:
        return None  # all but one are drained first
    if not _has_nothing_to_do(seen, settings.stabilisation_seconds, sleeps=existing.replicas == 0):
        return None
    return replace(planned, executors=tuple(replace(one, replicas=0) for one in planned.executors))


def _has_nothing_to_do(seen: Observation, seconds: float, sleeps: bool) -> bool:
    """True if no rows wait, nor did for `seconds` unless it `sleeps`. Without an answer, as after a start of the operator, it
    stays as it is; where answers fail to come, rows may wait."""
    if seen.driver_pod is None or not seen.driver_pod.ready:
        return False
    if seen.silence is not None or seen.stats is None:
        return sleeps and not seen.is_silent
    idle = seen.stats.idle_seconds
    return idle is not None and (sleeps or idle >= seconds)


def still_asleep(seen: Observation, running: Topology, scaled: Scaled | None) -> Topology | None:
    """`running` without its executor while that sleeps and nothing may be changed; None if it does not sleep."""
    return asleep(seen, running, scaled) if _slept(seen, running) else None


def wake(seen: Observation, topology: Topology, rollout: Rollout) -> Rollout:
    """`rollout`, which begins with the executor that waiting rows need, if that is what changes."""
    if not _slept(seen, topology) or topology.replicas == 0:
        return rollout
    event = Event("Normal", ReconfiguringReason.SCALING, "rows wait: an executor is started, there was none")
    return replace(rollout, events=(*rollout.events, event), begun=ReconfiguringReason.SCALING)


def _slept(seen: Observation, topology: Topology) -> bool:
    """True if the driver is alone: the StatefulSets have no replicas."""
    sets = [seen.stateful_set(executor.name) for executor in topology.executors]
    return seen.driver is not None and seen.driver.replicas > 0 and all(one is not None and one.replicas == 0 for one in sets)
