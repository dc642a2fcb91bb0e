"""Executor pods that differ from their class: resized in place, or replaced where that is impossible. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.k8s import names
from streamtopology.k8s.decide.fields import items_at
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.owned_objects import Pod, Resources
from streamtopology.k8s.decide.scaling import ready_of_class, runs_nothing
from streamtopology.k8s.decide.steps import Delete, Resize, Step
from streamtopology.topology import ExecutorClass, Topology, format_cpu, format_memory


def written(resources: Resources) -> str:
    """Resources as text, as in status and events."""
    cpu, memory = resources
    return f"{format_cpu(cpu)} CPU, {format_memory(memory)}"


def target(executor: ExecutorClass) -> Resources:
    return (executor.cpu, executor.memory_bytes)


def refusal(seen: Observation, executor: ExecutorClass) -> str | None:
    """The API server's reason not to resize this class's pods to these resources, from status; None without a refusal."""
    for known in items_at(seen.status, "classes"):
        if known.get("name") == executor.name and known.get("refusedFor") == written(target(executor)):
            return str(known.get("refused") or "refused")
    return None


def resizes(seen: Observation, topology: Topology, contents: Mapping[str, str]) -> list[Step]:
    """Resize steps for pods whose resources differ from their class's, unless the API server has refused that.

    A pod that is going to be replaced keeps its memory: its JVM has the heap that it started with.
    """
    steps: list[Step] = []
    for executor in topology.executors:
        cpu, memory = target(executor)
        for pod in _lasting(seen, executor) if not refusal(seen, executor) else ():
            wanted = (cpu, memory if pod.pod_content == contents[executor.name] else pod.resources[1])
            if pod.resources != wanted:
                steps.append(Resize(pod.name, executor.name, wanted))
    return steps


def outdated(
    seen: Observation, topology: Topology, contents: Mapping[str, str], newest: Mapping[str, str]
) -> list[tuple[Pod, str]]:
    """Pods that differ from their StatefulSet in a way that only replacing them repairs, each with the reason.

    `contents`: class -> the digest that its pods should have of their template; `newest`: class -> that template's revision.
    """
    found: list[tuple[Pod, str]] = []
    for executor in topology.executors:
        content = contents[executor.name]
        refused, existing = refusal(seen, executor), seen.stateful_set(executor.name)
        restarted_at = existing.restarted_at if existing is not None else ""
        for pod in _lasting(seen, executor):
            if _is_newest(pod, newest):
                continue
            if pod.pod_content != content:
                found.append((pod, _why_replaced(pod, executor)))
            elif restarted_at and pod.restarted_at != restarted_at:
                found.append((pod, "kubectl rollout restart"))
            elif pod.resources != target(executor) and refused:
                found.append((pod, f"it cannot be resized in place ({refused})"))
    return found


def _why_replaced(pod: Pod, executor: ExecutorClass) -> str:
    before, now = format_memory(pod.resources[1]), format_memory(executor.memory_bytes)
    return f"memory {before} becomes {now}: a JVM takes its heap as it starts" if before != now else "its template has changed"


def mutated(seen: Observation, topology: Topology, contents: Mapping[str, str], newest: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each pod that differs from the template that it has just been made of: admission changes such pods.

    Another one in its place would be changed as well, so it is left as it is.
    """
    found: list[str] = []
    for executor in topology.executors:
        refused = refusal(seen, executor)
        for pod in _lasting(seen, executor):
            if not _is_newest(pod, newest):
                continue
            if pod.pod_content != contents[executor.name]:
                found.append(f"Pod {pod.name}: the annotation {names.POD_CONTENT} is another")
            elif pod.resources != target(executor) and refused:
                found.append(f"Pod {pod.name}: {written(target(executor))} became {written(pod.resources)}")
    return tuple(found)


def _is_newest(pod: Pod, newest: Mapping[str, str]) -> bool:
    """True if the pod was made of the template that its class is to have."""
    return bool(pod.revision) and pod.revision == newest.get(pod.class_name)


def _lasting(seen: Observation, executor: ExecutorClass) -> list[Pod]:
    """The pods of the class that stay."""
    pods = seen.pods("executor", executor.name)
    return [pod for pod in pods if not pod.deleting and pod.ordinal < executor.replicas]


def replacements(seen: Observation, topology: Topology, outdated: list[tuple[Pod, str]]) -> list[Step]:
    """Delete steps for `outdated` pods; of all of them while no driver runs, or none that answers.

    Else in each class by itself: those that are not ready, and of the others as many as may be missing at once.
    """
    chosen = outdated
    if not (runs_nothing(seen) or _is_down(seen)):
        chosen = [each for executor in topology.executors for each in _next_of_class(seen, executor, outdated)]
    return [Delete(names.POD, pod.name, pod.uid, why) for pod, why in chosen]


def _is_down(seen: Observation) -> bool:
    """True if the driver is neither ready nor answers, as one that fails again and again: it may need the new pods to run."""
    return seen.driver_pod is not None and not seen.driver_pod.ready and seen.is_silent


def _next_of_class(seen: Observation, executor: ExecutorClass, outdated: list[tuple[Pod, str]]) -> list[tuple[Pod, str]]:
    of_class = [(pod, why) for pod, why in outdated if pod.class_name == executor.name]
    room = executor.most_unavailable - (executor.replicas - ready_of_class(seen, executor))
    broken = [(pod, why) for pod, why in of_class if not pod.ready]
    return [*broken, *[(pod, why) for pod, why in of_class if pod.ready][: max(room, 0)]]
