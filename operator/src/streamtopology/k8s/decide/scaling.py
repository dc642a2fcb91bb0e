"""The replicas of each class on the way to the number it should have. Pure.

Scaling up is immediate. Scaling down has an order: the driver gets the smaller topology and drains the executors that
leave; then their pods are deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamtopology.contract.stats import ordinal_of
from streamtopology.k8s import names
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.owned_objects import Workload
from streamtopology.topology import ExecutorClass, Topology

FEWEST_NAMES = 16


@dataclass(frozen=True)
class Patience:
    """The time that executors may take to hand over, and the time since the present change began."""

    waited_seconds: float
    drain_seconds: float

    @property
    def ends(self) -> bool:
        return self.waited_seconds > self.drain_seconds


def replicas_now(seen: Observation, topology: Topology, executor: ExecutorClass, patience: Patience) -> int:
    """The replicas that the class's StatefulSet should have now, on the way to `topology`, which is resolved."""
    class_name, wanted, existing = executor.name, executor.replicas, seen.stateful_set(executor.name)
    if existing is None or wanted >= existing.replicas:
        return wanted
    if topology.replicas == 0 and _is_last(seen, class_name, existing.replicas):
        return wanted
    return wanted if is_drained(seen, class_name, wanted, patience) else existing.replicas


def is_drained(seen: Observation, class_name: str, wanted: int, patience: Patience) -> bool:
    """True if no executor of the class beyond the first `wanted` has work or state, or its time to hand over is up.

    It has none if no driver runs or ever committed, or if the driver has taken the topology without these executors, has
    committed a batch under its newest epoch, and that has none of their slots: by ordinal, as an executor in the middle may
    be missing.
    """
    if runs_nothing(seen):
        return True
    published = {executor.name: executor.replicas for executor in seen.running.executors} if seen.running else {}
    if published.get(class_name, 0) > wanted:
        return False  # the driver does not know of it
    return _has_left(seen, class_name, wanted) or patience.ends


def _is_last(seen: Observation, class_name: str, replicas: int) -> bool:
    """True if the driver plans for no executor but this one, which may go: its state is in the checkpoint."""
    stats = seen.stats
    planned = dict(stats.slots_by_class) if stats is not None and stats.settled else {}
    return replicas == 1 and planned == {class_name: 1}


def runs_nothing(seen: Observation) -> bool:
    """True if no driver runs, or one that starts and has not committed a batch; one that is not ready for a moment runs."""
    pods = seen.drivers
    if not pods:
        return True
    starting = seen.driver_pod is not None and not seen.driver_pod.ready and len(pods) == 1
    return starting and (seen.stats is None or seen.stats.batch is None)


def _has_left(seen: Observation, class_name: str, wanted: int) -> bool:
    stats = seen.stats
    if stats is None or seen.silence is not None or not stats.settled:
        return False
    if stats.replicas is None or stats.replicas.get(class_name, 0) > wanted:
        return False
    return all(ordinal_of(slot) < wanted for slot in stats.slots if slot.present and slot.class_name == class_name)


def executor_pods(seen: Observation, topology: Topology) -> list[str]:
    """The names of all pods that the topology's executors have or may soon have: of each class a power of two, at least
    `FEWEST_NAMES`, so that scaling hardly ever changes them."""
    replicas = {names.executor_class(seen.owner.name, executor.name): executor.replicas for executor in topology.executors}
    for (kind, name), known in seen.objects.items():
        if kind == names.STATEFUL_SET.kind and isinstance(known, Workload):
            replicas[name] = max(replicas.get(name, 0), known.replicas)
    counts = {name: max(1 << (count - 1).bit_length() if count else 0, FEWEST_NAMES) for name, count in replicas.items()}
    return [f"{name}-{ordinal}" for name, count in sorted(counts.items()) for ordinal in range(count)]


def ready_executors(seen: Observation, topology: Topology) -> int:
    """The number of usable executors among those wanted."""
    return sum(ready_of_class(seen, executor) for executor in topology.executors)


def ready_of_class(seen: Observation, executor: ExecutorClass) -> int:
    """The usable executors of a class: their pods are ready and, where the driver answers, it has admitted that number of the
    class to its slots. A pod is ready seconds before its executor is warm."""
    pods = seen.pods("executor", executor.name)
    there = sum(pod.ready and not pod.deleting and pod.ordinal < executor.replicas for pod in pods)
    return there if seen.stats is None else min(there, seen.stats.admitted_by_class.get(executor.name, 0))
