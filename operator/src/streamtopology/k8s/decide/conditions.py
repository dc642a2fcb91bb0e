"""The conditions of a topology, each with a reason for people.

docs/run/operations.md lists every reason and what to do about it.
"""

# pyright takes the members of enums with a meaning for tuples.
# pyright: reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from streamtopology.contract.conditions import (
    BalancedReason,
    ConditionType,
    DegradedReason,
    MutatedReason,
    ReadyReason,
    ReconfiguringReason,
)
from streamtopology.contract.formatting import percent
from streamtopology.contract.phases import Phase
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import Hold, HoldReason
from streamtopology.contract.stats import CROWDED, ROOMY
from streamtopology.k8s import names
from streamtopology.k8s.decide import evictions
from streamtopology.k8s.decide.asked_replicas import writers_quarrel
from streamtopology.k8s.decide.completion import Completion, completed_now, read_completion, still_completed
from streamtopology.k8s.decide.fields import items_at
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.owned_objects import Job, Pod
from streamtopology.k8s.decide.resizing import why_not_resized
from streamtopology.k8s.decide.scaling import ready_executors
from streamtopology.k8s.instants import format_time
from streamtopology.topology import Topology

# The time that a driver may ignore a ready epoch before it is reported.
EPOCH_SECONDS = 60.0

# The time that an executor's pod may take in a change until it is reported: a cluster autoscaler adds a node within it.
MISSING_SECONDS = 300.0

# Looks in a row that fail for want of an answer before that is said.
API_FAILURES = 3

# Lost attempts at a batch from which on that is said: one executor that dies loses one, another that dies with it two.
LOST_ATTEMPTS = 3

# Changes by admission that a message names.
MOST_MUTATIONS = 3

_IMAGE = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull")
_BROKEN = ("CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError")

# By the reason that the kubelet gives.
_RESIZES = {
    "Deferred": DegradedReason.RESIZE_DEFERRED,
    "Infeasible": DegradedReason.RESIZE_INFEASIBLE,
    "Error": DegradedReason.RESIZE_ERROR,
}

# Kinds whose objects Kubernetes itself holds while it deletes them.
_BY_OTHERS = (names.POD.kind, names.JOB.kind)

# Reasons of Ready=False that are faults.
ALARMING = frozenset(
    {
        ReadyReason.INVALID_MANIFEST,
        ReadyReason.NO_IMAGE,
        ReadyReason.DRIVER_NOT_CREATED,
        ReadyReason.DRIVER_NOT_SCHEDULED,
        ReadyReason.IMAGE_UNAVAILABLE,
        ReadyReason.DRIVER_FAILED,
        ReadyReason.DRIVER_REFUSED,
        ReadyReason.DRIVER_SILENT,
    }
)

# Reasons of Balanced=False by which the controller decides to leave the routing as it is.
LEFT = frozenset({BalancedReason.NOT_WORTH_IT, BalancedReason.NO_BETTER_PLAN, BalancedReason.NO_ROOM})


@dataclass(frozen=True)
class Condition:
    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str

    @property
    def is_bad(self) -> bool:
        return (self.type == ConditionType.DEGRADED and self.status == "True") or (
            self.type == ConditionType.READY and self.reason in ALARMING
        )


def ready(seen: Observation, topology: Topology) -> Condition:
    """Ready: True while all is as asked for: batches run, or need not as the input has ended, or are suspended."""
    if (ended := completion(seen, topology)) is not None:
        text = "the input has come to its end and everything is committed"
        if ended.generation != seen.generation:
            text += (
                f" (generation {ended.generation}); since then only the number of executors was changed: that starts no run, "
                "the next one has that number"
            )
        return Condition(ConditionType.READY, "True", ReadyReason.COMPLETED, text)
    if topology.suspend:
        if seen.runs_nothing:
            text = "spec.suspend: it will continue from its checkpoint"
            return Condition(ConditionType.READY, "True", ReadyReason.SUSPENDED, text)
        text = "the driver finishes its batch" if seen.drivers else "the executors' pods end"
        return Condition(ConditionType.READY, "False", ReadyReason.SUSPENDING, f"spec.suspend: {text}")
    return _runs(seen, topology)


def reconfiguring(under_way: tuple[str, str] | None, waits: bool, paused: bool) -> Condition:
    """Reconfiguring: True with the kind and the sentence of the change that is under way."""
    if paused:
        return Condition(
            ConditionType.RECONFIGURING,
            "False",
            ReconfiguringReason.PAUSED,
            f"the annotation {names.PAUSE} keeps the operator from any change",
        )
    if under_way is None:
        text = "nothing is changing" + ("; its pods are of a former version and wait for the roll-out" if waits else "")
        return Condition(ConditionType.RECONFIGURING, "False", ReconfiguringReason.SETTLED, text)
    return Condition(ConditionType.RECONFIGURING, "True", *under_way)


def mutated(changes: tuple[str, ...]) -> Condition:
    """MutatedByAdmission: True with the first `changes` that admission makes to our objects. They are left as they are."""
    if not changes:
        return Condition(ConditionType.MUTATED, "False", MutatedReason.AS_WRITTEN, "the cluster has the objects as written")
    more = f" (and {len(changes) - MOST_MUTATIONS} more)" if len(changes) > MOST_MUTATIONS else ""
    return Condition(ConditionType.MUTATED, "True", MutatedReason.MUTATED, "; ".join(changes[:MOST_MUTATIONS]) + more)


def is_completed(seen: Observation, topology: Topology) -> bool:
    """True if the run that the manifest asks for has come to its end."""
    return completion(seen, topology) is not None


def completion(seen: Observation, topology: Topology) -> Completion | None:
    """The end of the run that the manifest asks for, as the driver reports it or as noted before; None before it."""
    if not topology.trigger.available_now:
        return None
    stats = seen.stats
    ended = stats.generation if stats is not None and stats.activity.phase is Phase.DONE else None
    if ended is not None and (ended == seen.generation or _is_scaled_since(seen, ended)):
        return completed_now(seen.manifest, ended)
    noted = (seen.driver.completed if seen.driver is not None else None, read_completion(seen.status.get("completedFor")))
    return next((still for known in noted if known and (still := still_completed(known, seen.manifest))), None)


def _is_scaled_since(seen: Observation, generation: int) -> bool:
    """True if the manifest differs from that of `generation`, which runs, by the number of executors alone."""
    read, running = seen.read, seen.running
    if not isinstance(read, Topology) or running is None or seen.routing is None:
        return False
    if not generation == seen.routing.generation == seen.generation - 1:
        return False
    counts = {one.name: one.replicas for one in running.executors}
    same = replace(read, executors=tuple(replace(one, replicas=counts.get(one.name, 0)) for one in read.executors))
    return replace(same.resolved(counts), suspend=False) == running


def _runs(seen: Observation, topology: Topology) -> Condition:
    """True while batches run; else the first reason on the way from the pod to the batch."""
    if (why := _why_not_ready(seen)) is not None:
        return Condition(ConditionType.READY, "False", *why)
    if topology.replicas == 0:
        return Condition(
            ConditionType.READY, "True", ReadyReason.ASLEEP, "no rows wait and no executor runs: the next rows start one"
        )
    there = ready_executors(seen, topology)
    if there == 0:
        return Condition(
            ConditionType.READY,
            "False",
            ReadyReason.EXECUTORS_STARTING,
            f"0 of {topology.replicas} executors are ready{first_trouble(seen)}",
        )
    return Condition(
        ConditionType.READY, "True", ReadyReason.RUNNING, f"batches run on {there} of {topology.replicas} executors"
    )


def _why_not_ready(seen: Observation) -> tuple[str, str] | None:
    pod = seen.driver_pod
    if _is_kept_from_running(seen):
        return ReadyReason.PAUSED, f"the annotation {names.PAUSE} keeps the operator from making the driver"
    if pod is None and seen.driver is not None and seen.driver.failure:
        return ReadyReason.DRIVER_NOT_CREATED, f"the cluster does not create the driver's pod: {seen.driver.failure}"
    if pod is None:
        former = next((f": {each.held}" for each in seen.drivers if each.held), "")
        return ReadyReason.DRIVER_STARTING, f"the driver's pod has not been created yet{former}"
    if trouble := pod_trouble(pod):
        return trouble
    if not pod.ready and (former := _evicted(seen, "driver")):
        return ReadyReason.DRIVER_FAILED, f"the driver starts again: {former[0]}"
    stats, silence = seen.stats, seen.silence
    if not pod.ready:
        phase = str(stats.activity) if stats is not None and silence is None else f"its pod is {pod.phase.lower()}"
        return ReadyReason.DRIVER_STARTING, f"the driver is starting: {phase}"
    if silence is not None and seen.is_silent:
        return ReadyReason.DRIVER_SILENT, f"the driver's pod is ready, but its /stats cannot be read: {silence.why}"
    if stats is None or stats.batch is None:
        return ReadyReason.DRIVER_STARTING, f"the driver is there, no batch has been committed yet{_phase_of(seen)}"
    return None


def _is_kept_from_running(seen: Observation) -> bool:
    """True for a topology that was paused before its driver was made."""
    return seen.paused and seen.driver is None and seen.driver_pod is None


def _phase_of(seen: Observation) -> str:
    return f" ({seen.stats.activity})" if seen.stats is not None else ""


def pod_trouble(pod: Pod) -> tuple[str, str] | None:
    """(reason, sentence) of what keeps a driver's pod from running; None where it runs or is on its way."""
    if pod.unschedulable:
        return ReadyReason.DRIVER_NOT_SCHEDULED, f"no node takes the driver: {pod.unschedulable}"
    if pod.waiting and pod.waiting[0] in _IMAGE:
        return ReadyReason.IMAGE_UNAVAILABLE, f"{pod.waiting[0]}: {pod.waiting[1]}"
    if pod.ready or pod.ended is None or pod.ended.exit_code == 0:
        if pod.waiting and pod.waiting[0] in _BROKEN:
            return ReadyReason.DRIVER_FAILED, f"{pod.waiting[0]}: {pod.waiting[1]}"
        return None
    cause = pod.ended.message or pod.ended.reason or f"exit code {pod.ended.exit_code}"
    if pod.ended.exit_code == 2:
        return ReadyReason.DRIVER_REFUSED, f"the driver refuses the topology: {cause}"
    return ReadyReason.DRIVER_FAILED, f"the driver failed and is restarted: {cause}"


def imbalance(seen: Observation) -> float | None:
    """The worst stage's, as the controller last judged it over its window; else the worst operator's in the last batch."""
    judgement = seen.answer.judgement if seen.answer else None
    if judgement is not None and judgement.imbalance is not None:
        return judgement.imbalance
    return seen.stats.imbalance if seen.stats is not None else None


def balanced(seen: Observation, topology: Topology) -> Condition:
    status, reason, message = _balance(seen, topology)
    return Condition(ConditionType.BALANCED, status, reason, message)


def _balance(seen: Observation, topology: Topology) -> tuple[Literal["True", "False", "Unknown"], BalancedReason, str]:
    """Status, reason and sentence of Balanced."""
    judgement = seen.answer.judgement if seen.answer else None
    verdict = judgement.verdict if judgement is not None and isinstance(judgement.verdict, Hold) else None
    tolerance, now = topology.rebalance.tolerance, imbalance(seen)
    if now is None:
        return "Unknown", BalancedReason.NOT_MEASURED, "no batch has been measured yet"
    if judgement is not None and judgement.kind == "recommend":
        return "False", BalancedReason.RECOMMENDED, f"mode is Recommend; would re-route: {describe(judgement.reason)}"
    figure, bound = f"imbalance {percent(now)}", f"the tolerance of {percent(tolerance)}"
    if now <= tolerance:
        return "True", BalancedReason.WITHIN_TOLERANCE, f"{figure}, within {bound}"
    if verdict is not None and verdict.reason is HoldReason.NOT_WORTH_COST:
        return "False", BalancedReason.NOT_WORTH_IT, f"{figure}, and a better routing is {describe(verdict)}"
    if verdict is not None and verdict.reason is HoldReason.NO_ROOM:
        return "False", BalancedReason.NO_ROOM, f"{figure}: {describe(verdict)}"
    if verdict is not None and verdict.reason is HoldReason.NO_BETTER_PLAN:
        text = f"{figure}: {describe(verdict)}; status.boundBy has what bounds the batches"
        return "False", BalancedReason.NO_BETTER_PLAN, text
    if topology.rebalance.mode == "Off":
        return "False", BalancedReason.REBALANCE_OFF, f"{figure}, beyond {bound}, and rebalance.mode is Off"
    return "False", BalancedReason.OUT_OF_TOLERANCE, f"{figure}, beyond {bound}, being watched"


def degraded(seen: Observation, topology: Topology, problem: tuple[str, str] | None, settled: bool) -> Condition:
    """The worst of what is wrong while batches run, and how many other things are."""
    found = [*([problem] if problem else []), *_troubles(seen, topology, settled)]
    contested = (DegradedReason.CONTESTED, DegradedReason.REPLICAS_CONTESTED)
    found.sort(key=lambda trouble: trouble[0] in contested)  # it hides nothing that waits for somebody
    if not found:
        return Condition(ConditionType.DEGRADED, "False", DegradedReason.AS_EXPECTED, "everything is as it should be")
    reason, message = found[0]
    others = ", ".join(dict.fromkeys(reason for reason, _ in found[1:]))
    more = f" (and {len(found) - 1} more: {others})" if others else ""
    return Condition(ConditionType.DEGRADED, "True", reason, message + more)


def _troubles(seen: Observation, topology: Topology, settled: bool) -> Iterator[tuple[str, str]]:
    stats, routing = seen.stats, seen.routing
    if seen.away is not None and seen.away.count >= API_FAILURES:
        text = f"calls of the API server fail again and again since {format_time(seen.away.since)}: {seen.away.why}"
        yield DegradedReason.API_FAILING, text
    if stats is not None and stats.refused is not None and stats.refused.epoch is None:
        yield DegradedReason.TOPOLOGY_REFUSED, f"the driver keeps its former topology: {stats.refused.why}"
    if held := [each.held for each in seen.objects.values() if each.held and each.kind not in _BY_OTHERS]:
        yield DegradedReason.BEING_DELETED, "; ".join(held)
    ready_epoch = routing.epoch if routing is not None and routing.epoch_state == "ready" else None
    is_late = seen.changing_seconds > EPOCH_SECONDS
    if ready_epoch is not None and stats is not None and (stats.epoch or 0) < ready_epoch and is_late:
        yield DegradedReason.EPOCH_NOT_TAKEN, f"epoch {ready_epoch} is ready, the driver still runs under {stats.epoch}"
    if quarrel := writers_quarrel(seen):
        yield DegradedReason.REPLICAS_CONTESTED, quarrel
    if stats is not None and stats.lost is not None and stats.lost.attempts >= LOST_ATTEMPTS:
        again = f"batch {stats.lost.batch} was lost {stats.lost.attempts} times and is tried again"
        yield DegradedReason.BATCH_LOST, f"{again}; the last time because {stats.lost.why}"
    yield from _crowded_executors(seen)
    yield from _resize_troubles(seen, topology)
    for name, why in _classes_not_created(seen):
        yield DegradedReason.EXECUTORS_NOT_CREATED, f"the cluster does not create pods of class {name}: {why}"
    if why := precopy_obstacle(seen):
        yield DegradedReason.MIGRATION_NOT_STARTED, f"the pre-copy of an epoch does not start: {why}"
    if sentences := _evicted(seen):
        more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
        yield DegradedReason.PODS_EVICTED, sentences[0] + more
    missing = topology.replicas - ready_executors(seen, topology)
    if (
        missing > 0
        and not topology.suspend
        and not _is_kept_from_running(seen)
        and (settled or _has_long_waited(seen, topology))
    ):
        yield DegradedReason.EXECUTORS_MISSING, f"{missing} of {topology.replicas} executors are not ready{first_trouble(seen)}"


def _crowded_executors(seen: Observation) -> Iterator[tuple[str, str]]:
    """The executor whose state leaves the least room in its memory, where that is little, in figures that rarely change."""
    said = any(one.get("reason") == DegradedReason.MEMORY_CROWDED for one in items_at(seen.status, "conditions"))
    known = seen.stats.memory if seen.stats is not None else ()
    crowded = [one for one in known if one.share > (ROOMY if said else CROWDED)]
    if seen.stats is not None and crowded:
        fullest = max(crowded, key=lambda one: one.share)
        more = f" (and {len(crowded) - 1} more)" if len(crowded) > 1 else ""
        share = percent(min(int(10 * fullest.share), 10) / 10)
        room = f"takes {share} or more of what its memory has room for beside all else{more}"
        name = seen.stats.slots[fullest.slot].executor
        remedy = "give its class more memory, or add executors"
        yield DegradedReason.MEMORY_CROWDED, f"the state of executor {name} {room}: {remedy}"


def _evicted(seen: Observation, component: str = "") -> list[str]:
    """A sentence for each recent eviction, of a component or of all, the last one first."""
    return [evictions.sentence(pod) for pod in evictions.recent(seen) if pod.component == (component or pod.component)]


def _has_long_waited(seen: Observation, topology: Topology) -> bool:
    """True if an executor's pod has been on its way, or on its way out, for longer than a change may take."""
    wanted = {executor.name: executor.replicas for executor in topology.executors}
    return any(
        seen.now - pod.since > MISSING_SECONDS
        for pod in seen.pods("executor")
        if (pod.deleting or not pod.ready) and pod.ordinal < wanted.get(pod.class_name, 0)
    )


def _resize_troubles(seen: Observation, topology: Topology) -> Iterator[tuple[str, str]]:
    for executor in topology.executors:
        for pod in seen.pods("executor", executor.name):
            if pod.resizing and pod.resizing.reason in _RESIZES:
                yield _RESIZES[pod.resizing.reason], f"pod {pod.name}: {pod.resizing.message or pod.resizing.reason}"
        if why := why_not_resized(seen, executor):
            yield (
                DegradedReason.RESIZE_REFUSED,
                f"class {executor.name} is replaced pod by pod, because it cannot be resized in place: {why}",
            )


def first_trouble(seen: Observation) -> str:
    """The obstacle of the first executor that is not ready, to append to a sentence; empty without one."""
    for name, why in _classes_not_created(seen):
        return f"; pods of class {name} are not created: {why}"
    return next((f"; {why}" for pod in seen.pods("executor") if (why := pod_obstacle(pod))), "")


def precopy_obstacle(seen: Observation) -> str | None:
    """The obstacle of the Job of the published epoch; None where it runs, has ended, or its pod is on its way."""
    job = seen.precopy
    if job is None or job.done or job.failed:
        return None
    pods = (pod for pod in seen.pods("migration") if pod.owner == job.uid)
    return job_obstacle(job, pods, seen.not_created.get((job.kind, job.name), "")) or None


def job_obstacle(job: Job, pods: Iterable[Pod], not_created: str) -> str:
    """The reason why a Job does not start, of its `pods` or why it has none; empty where there is none."""
    if job.suspended:
        return "it is suspended (spec.suspend), as a queue of Jobs does: see the queue"
    return not_created or next((why for pod in pods if pod.phase == "Pending" and (why := pod_obstacle(pod))), "")


def _classes_not_created(seen: Observation) -> Iterator[tuple[str, str]]:
    for (kind, name), why in seen.not_created.items():
        if kind == names.STATEFUL_SET.kind:
            yield name.removeprefix(f"{seen.owner.name}-"), why


def pod_obstacle(pod: Pod) -> str:
    """The reason why a pod does not run, has ended, or does not end; empty where there is none."""
    if pod.held:
        return pod.held
    if pod.unschedulable:
        return f"no node takes {pod.name}: {pod.unschedulable}"
    if pod.waiting and pod.waiting[0] in (*_IMAGE, *_BROKEN):
        return f"{pod.name}: {pod.waiting[0]} {pod.waiting[1]}".rstrip()
    if pod.evicted is not None:
        return evictions.sentence(pod)
    if pod.ended and not pod.ready:
        return f"{pod.name} ended with {pod.ended.exit_code}: {pod.ended.message or pod.ended.reason}"
    return ""
