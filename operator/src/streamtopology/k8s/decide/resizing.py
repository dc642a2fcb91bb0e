"""Executor pods that differ from their class: resized in place, or replaced where that is impossible. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamtopology.k8s import names
from streamtopology.k8s.decide.fields import items_at
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.owned_objects import Pod, Resources
from streamtopology.k8s.decide.scaling import ready_of_class, runs_nothing
from streamtopology.k8s.decide.steps import Delete, Resize, Step
from streamtopology.k8s.instants import parse_time
from streamtopology.topology import ExecutorClass, Topology, format_cpu, format_memory

# The time after which a refused resize is tried again.
RETRY_SECONDS = 3600.0


def written(resources: Resources) -> str:
    """Resources as text, as in status and events."""
    cpu, memory = resources
    return f"{format_cpu(cpu)} CPU, {format_memory(memory)}"


def target(executor: ExecutorClass) -> Resources:
    return (executor.cpu, executor.memory_bytes)


@dataclass(frozen=True)
class ResizeRefusal:
    """The API server's answer to the resize of a class's pods to what they should have. `at`: seconds since 1970."""

    why: str
    at: float


def refusal(seen: Observation, executor: ExecutorClass) -> ResizeRefusal | None:
    """The refusal that status has, as long as a pod of the class still is not as it should be."""
    if all(pod.resources == target(executor) for pod in _lasting(seen, executor)):
        return None
    for known in items_at(seen.status, "classes"):
        if known.get("name") == executor.name and known.get("refusedFor") == written(target(executor)):
            at = known.get("refusedAt")
            return ResizeRefusal(str(known.get("refused") or "refused"), parse_time(at) if at else seen.now)
    return None


def refused_now(seen: Observation, executor: ExecutorClass) -> str:
    """The reason of a refusal that still counts, or empty: after a while the resize is tried again, as the cluster may have
    changed its mind."""
    known = refusal(seen, executor)
    return known.why if known is not None and seen.now - known.at < RETRY_SECONDS else ""


def why_not_resized(seen: Observation, executor: ExecutorClass) -> str:
    """The reason why pods of the class are replaced and not resized; empty where none is. One that was made of the present
    template and differs is left as it is (`mutated`)."""
    known, existing = refusal(seen, executor), seen.stateful_set(executor.name)
    newest = {executor.name: existing.revision} if existing is not None else {}
    differing = [pod for pod in _lasting(seen, executor) if pod.resources != target(executor) and not _is_newest(pod, newest)]
    return f"{known.why}{_of_admission(differing)}" if known is not None and differing else ""


def _of_admission(pods: Sequence[Pod]) -> str:
    """A sentence for pods whose requests are not their limits, as we write them: what a resize would make equal."""
    altered = next((pod for pod in pods if pod.requests != pod.resources), None)
    if altered is None:
        return ""
    return (
        f"; admission (a webhook, a LimitRange) has made the requests of pod {altered.name} {written(altered.requests)}, other "
        "than its limits: a resize would make them equal, and no resize may change a pod's QoS class"
    )


def resizes(seen: Observation, topology: Topology, contents: Mapping[str, str]) -> list[Step]:
    """Resize steps for pods whose resources differ from their class's, unless the API server has just refused that.

    A pod that is going to be replaced keeps its memory: its JVM has the heap that it started with.
    """
    steps: list[Step] = []
    for executor in topology.executors:
        cpu, memory = target(executor)
        for pod in _lasting(seen, executor) if not refused_now(seen, executor) else ():
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
        refused, existing = refused_now(seen, executor), seen.stateful_set(executor.name)
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
                change = f"{written(target(executor))} became {written(pod.resources)}"
                found.append(f"Pod {pod.name}: {change}, and a resize is refused: {refused.why}{_of_admission([pod])}")
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
