"""Executor pods that are not as their class says: resized in place, or replaced where that is not to be had. Pure."""

from __future__ import annotations

from streamtopology.operator import names
from streamtopology.operator.observe import Observed
from streamtopology.operator.scaling import ready_executors
from streamtopology.operator.seen import Pod, Resources
from streamtopology.operator.steps import Delete, Object, Resize, Step
from streamtopology.routing.topology import ExecutorClass, Topology, format_cpu, format_memory


def written(resources: Resources) -> str:
    """Resources as status and events write them."""
    cpu, memory = resources
    return f"{format_cpu(cpu)} CPU, {format_memory(memory)}"


def target(executor: ExecutorClass) -> Resources:
    return (executor.cpu, executor.memory_bytes)


def refusal(seen: Observed, executor: ExecutorClass) -> str | None:
    """Why the API server refused to resize this class's pods to these very resources, as status remembers it."""
    for known in seen.status.get("classes") or ():
        if known.get("name") == executor.name and known.get("refusedFor") == written(target(executor)):
            return str(known.get("refused") or "refused")
    return None


def resizes(seen: Observed, topology: Topology) -> list[Step]:
    """Steps for pods that have other resources than their class, where the API server has not refused such a step."""
    return [
        Resize(pod.name, executor.name, target(executor))
        for executor in topology.executors
        if not refusal(seen, executor)
        for pod in _lasting(seen, executor)
        if pod.resources != target(executor)
    ]


def outdated(seen: Observed, topology: Topology, stateful_sets: dict[str, Object]) -> list[tuple[Pod, str]]:
    """Pods that differ from their StatefulSet in what only another pod can put right, and why."""
    found: list[tuple[Pod, str]] = []
    for executor in topology.executors:
        content = stateful_sets[executor.name]["spec"]["template"]["metadata"]["annotations"][names.POD_CONTENT]
        refused = refusal(seen, executor)
        for pod in _lasting(seen, executor):
            if pod.pod_content != content:
                found.append((pod, "its template has changed"))
            elif pod.resources != target(executor) and refused:
                found.append((pod, f"it cannot be resized in place ({refused})"))
    return found


def _lasting(seen: Observed, executor: ExecutorClass) -> list[Pod]:
    """The pods of the class that neither go nor are about to."""
    pods = seen.pods("executor", executor.name)
    return [pod for pod in pods if not pod.deleting and pod.ordinal < executor.replicas]


def replacements(seen: Observed, topology: Topology, outdated: list[tuple[Pod, str]]) -> list[Step]:
    """Steps for them, one at a time, each after the one before is ready, unless the driver is not running: then nobody is
    waiting for any of them."""
    if seen.driver_pod is not None and seen.driver_pod.ready:
        broken = [(pod, why) for pod, why in outdated if not pod.ready]
        if not broken and ready_executors(seen, topology) < topology.replicas:
            return []  # the one before is not ready yet
        outdated = (broken or outdated)[:1]
    return [Delete(names.POD, pod.name, pod.uid, why) for pod, why in outdated]
