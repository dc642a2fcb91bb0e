"""The four conditions of a topology: Ready, Balanced, Reconfiguring, Degraded, each with a reason a person understands.

docs/operations.md lists every reason and what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from streamtopology.operator.observe import Observed
from streamtopology.operator.resizing import refusal
from streamtopology.operator.scaling import ready_executors, waited
from streamtopology.operator.seen import Pod
from streamtopology.routing.topology import Topology
from streamtopology.routing.wording import percent

SILENT_TIMES = 3
"""Answers missed in a row before a driver counts as silent: one may be lost in a switch or a long batch."""

EPOCH_SECONDS = 60.0
"""How long a driver may leave a ready epoch aside before somebody should look."""

_IMAGE = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull")
_BROKEN = ("CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError")

ALARMING = frozenset(
    {"InvalidManifest", "NoImage", "DriverNotScheduled", "ImageUnavailable", "DriverFailed", "DriverRefused", "DriverSilent"}
)
"""Reasons of Ready=False that nobody asked for."""

LEFT = frozenset({"NotWorthIt", "NoBetterPlan"})
"""Reasons of Balanced=False by which the controller decides to leave the routing as it is."""


@dataclass(frozen=True)
class Condition:
    type: Literal["Ready", "Balanced", "Reconfiguring", "Degraded"]
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str

    @property
    def is_bad(self) -> bool:
        return (self.type == "Degraded" and self.status == "True") or (self.type == "Ready" and self.reason in ALARMING)


def ready(seen: Observed, topology: Topology) -> Condition:
    """Whether batches run. Where they do not, the first reason on the way from the pod to the batch."""
    reason, message = _why_not_ready(seen) or ("", "")
    if reason:
        return Condition("Ready", "False", reason, message)
    there = ready_executors(seen, topology)
    if there == 0:
        return Condition(
            "Ready", "False", "ExecutorsStarting", f"0 of {topology.replicas} executors are ready{first_trouble(seen)}"
        )
    return Condition("Ready", "True", "Running", f"batches run on {there} of {topology.replicas} executors")


def _why_not_ready(seen: Observed) -> tuple[str, str] | None:
    pod = seen.driver_pod
    if pod is None:
        return "DriverStarting", "the driver's pod has not been made yet"
    if trouble := pod_trouble(pod):
        return trouble
    stats, silence = seen.stats, seen.silence
    if not pod.ready:
        phase = stats.phase if stats is not None and silence is None else f"its pod is {pod.phase.lower()}"
        return "DriverStarting", f"the driver is starting: {phase}"
    if silence is not None and silence.count >= SILENT_TIMES:
        return "DriverSilent", f"the driver's pod is ready, but its /stats cannot be read: {silence.why}"
    if stats is None or stats.batch is None:
        return "DriverStarting", f"the driver is there, no batch has been committed yet{_phase_of(seen)}"
    return None


def _phase_of(seen: Observed) -> str:
    return f" ({seen.stats.phase})" if seen.stats is not None else ""


def pod_trouble(pod: Pod) -> tuple[str, str] | None:
    """(reason, sentence) of what keeps a driver's pod from running; None where it runs or is on its way."""
    if pod.unschedulable:
        return "DriverNotScheduled", f"no node takes the driver: {pod.unschedulable}"
    if pod.waiting and pod.waiting[0] in _IMAGE:
        return "ImageUnavailable", f"{pod.waiting[0]}: {pod.waiting[1]}"
    if pod.ready or pod.ended is None or pod.ended.exit_code == 0:
        if pod.waiting and pod.waiting[0] in _BROKEN:
            return "DriverFailed", f"{pod.waiting[0]}: {pod.waiting[1]}"
        return None
    said = pod.ended.message or pod.ended.reason or f"exit code {pod.ended.exit_code}"
    if pod.ended.exit_code == 2:
        return "DriverRefused", f"the driver refuses the topology: {said}"
    return "DriverFailed", f"the driver failed and is started again: {said}"


def imbalance(seen: Observed) -> float | None:
    """Of the worst operator: as the controller last judged it over its window, else in the last batch alone."""
    judgement = seen.answer.judgement if seen.answer else None
    if judgement is not None and judgement.imbalance is not None:
        return judgement.imbalance
    return seen.stats.imbalance if seen.stats is not None else None


def balanced(seen: Observed, topology: Topology) -> Condition:
    judgement = seen.answer.judgement if seen.answer else None
    verdict = (judgement.verdict if judgement is not None else None) or ""
    tolerance, now = topology.rebalance.tolerance, imbalance(seen)
    if now is None:
        return Condition("Balanced", "Unknown", "NotMeasured", "no batch has been measured yet")
    if judgement is not None and judgement.kind == "recommend":
        return Condition("Balanced", "False", "Recommended", f"mode is Recommend; would re-route: {judgement.reason}")
    figure, bound = f"imbalance {percent(now)}", f"the tolerance of {percent(tolerance)}"
    if now <= tolerance:
        return Condition("Balanced", "True", "WithinTolerance", f"{figure}, within {bound}")
    if verdict.startswith("not worth it"):
        return Condition("Balanced", "False", "NotWorthIt", f"{figure}, and a better routing is {verdict}")
    if "no plan is noticeably better" in verdict:
        return Condition("Balanced", "False", "NoBetterPlan", f"{figure}: {verdict}; a single key may be too heavy")
    if topology.rebalance.mode == "Off":
        return Condition("Balanced", "False", "RebalanceOff", f"{figure}, beyond {bound}, and rebalance.mode is Off")
    return Condition("Balanced", "False", "OutOfTolerance", f"{figure}, beyond {bound}, being watched")


def degraded(seen: Observed, topology: Topology, problem: tuple[str, str] | None, settled: bool) -> Condition:
    """The worst of what is wrong while batches run, and how many other things are."""
    found = [*([problem] if problem else []), *_troubles(seen, topology, settled)]
    if not found:
        return Condition("Degraded", "False", "AsExpected", "everything is as it should be")
    reason, message = found[0]
    more = f" (and {len(found) - 1} more: {', '.join(reason for reason, _ in found[1:])})" if len(found) > 1 else ""
    return Condition("Degraded", "True", reason, message + more)


def _troubles(seen: Observed, topology: Topology, settled: bool) -> Iterator[tuple[str, str]]:
    stats, routing = seen.stats, seen.routing
    if stats is not None and stats.refused is not None and stats.refused.epoch is None:
        yield "TopologyRefused", f"the driver goes on with what it had: {stats.refused.why}"
    ready_epoch = routing.epoch if routing is not None and routing.epoch_state == "ready" else None
    if ready_epoch is not None and stats is not None and (stats.epoch or 0) < ready_epoch and waited(seen) > EPOCH_SECONDS:
        yield "EpochNotTaken", f"epoch {ready_epoch} is ready, the driver still runs under {stats.epoch}"
    yield from _resize_troubles(seen, topology)
    missing = topology.replicas - ready_executors(seen, topology)
    if settled and missing > 0 and not topology.suspend:
        yield "ExecutorsMissing", f"{missing} of {topology.replicas} executors are not ready{first_trouble(seen)}"


def _resize_troubles(seen: Observed, topology: Topology) -> Iterator[tuple[str, str]]:
    for executor in topology.executors:
        for pod in seen.pods("executor", executor.name):
            if pod.resizing and pod.resizing.reason in ("Deferred", "Infeasible", "Error"):
                yield f"Resize{pod.resizing.reason}", f"pod {pod.name}: {pod.resizing.message or pod.resizing.reason}"
        if why := refusal(seen, executor):
            yield "ResizeRefused", f"class {executor.name} is replaced pod by pod, for it cannot be resized in place: {why}"


def first_trouble(seen: Observed) -> str:
    """What keeps the first executor that is not ready from running, to be put behind a sentence; empty where nothing does."""
    for pod in seen.pods("executor"):
        if pod.unschedulable:
            return f"; no node takes {pod.name}: {pod.unschedulable}"
        if pod.waiting and pod.waiting[0] in (*_IMAGE, *_BROKEN):
            return f"; {pod.name}: {pod.waiting[0]} {pod.waiting[1]}".rstrip()
        if pod.ended and not pod.ready:
            return f"; {pod.name} ended with {pod.ended.exit_code}: {pod.ended.message or pod.ended.reason}"
    return ""
