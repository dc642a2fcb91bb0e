"""How many executors each class has now, on the way to how many it should have. Pure.

More are started at once. Fewer in this order: the driver is given the smaller topology, takes everything off the
executors that leave, and only then do their pods go.
"""

from __future__ import annotations

from datetime import datetime

from streamtopology.operator.observe import Observed
from streamtopology.routing.topology import Topology


def replicas_now(seen: Observed, class_name: str, wanted: int, drain_seconds: float) -> int:
    """The replicas that the class's StatefulSet should have at this moment."""
    existing = seen.stateful_set(class_name)
    if existing is None or wanted >= existing.replicas:
        return wanted
    return wanted if is_drained(seen, class_name, wanted, drain_seconds) else existing.replicas


def is_drained(seen: Observed, class_name: str, wanted: int, drain_seconds: float) -> bool:
    """Whether nothing runs on executors of the class beyond the first `wanted`; a driver that cannot say it is not
    waited for longer than `drain_seconds` from when it was given the smaller topology."""
    if seen.driver_pod is None or not seen.driver_pod.ready:
        return True  # nothing runs, and what starts reads the smaller topology
    stats = seen.stats
    if stats is not None and seen.silence is None and stats.settled and stats.slots.get(class_name, 0) <= wanted:
        return True
    given = {executor.name: executor.replicas for executor in seen.running.executors} if seen.running else {}
    return given.get(class_name, 0) <= wanted and waited(seen) > drain_seconds


def waited(seen: Observed) -> float:
    """Seconds since the change that is under way was begun."""
    began = (seen.status.get("intent") or {}).get("at")
    return seen.now - datetime.fromisoformat(began).timestamp() if began else 0.0


def ready_executors(seen: Observed, topology: Topology) -> int:
    """Executors that work, or could at once, of those that should be there: their pods are ready, and the driver, where it
    answers, has admitted so many of the class to its slots. A pod is ready seconds before its executor is warm."""
    admitted = None if seen.stats is None else seen.stats.admitted
    ready = 0
    for executor in topology.executors:
        pods = seen.pods("executor", executor.name)
        there = sum(pod.ready and not pod.deleting and pod.ordinal < executor.replicas for pod in pods)
        ready += there if admitted is None else min(there, admitted.get(executor.name, 0))
    return ready
