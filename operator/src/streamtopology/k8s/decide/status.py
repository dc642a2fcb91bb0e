"""The status of a topology: phase, columns, conditions, the intent, past re-routings. Pure.

Status is for people and tools. Everybody with the right to do so may change or lose it (a backup restores without it), so
decisions do not rely on it: nothing is read back from it that the cluster does not say as well, except autoscaling and the
checkpoint of the last batch.
"""

# pyright takes the members of enums with a meaning for tuples.
# pyright: reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streamtopology.contract.conditions import ConditionType, DegradedReason, ReadyReason, ReconfiguringReason
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import BindingKind, Hold
from streamtopology.contract.stats import Rerouting, Stats
from streamtopology.k8s import names
from streamtopology.k8s.decide import conditions
from streamtopology.k8s.decide.answers import Gain
from streamtopology.k8s.decide.asked_replicas import asked_replicas, unheeded
from streamtopology.k8s.decide.autoscaling import Scaled, recorded
from streamtopology.k8s.decide.conditions import Condition
from streamtopology.k8s.decide.fields import items_at, mapping_at
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.resizing import refusal, target, written
from streamtopology.k8s.decide.rollout import Rollout, figures
from streamtopology.k8s.decide.scaling import ready_executors
from streamtopology.k8s.decide.steps import Step
from streamtopology.k8s.decide.transition import present, target_of
from streamtopology.k8s.decide.under_way import change_under_way, intent
from streamtopology.k8s.instants import format_time
from streamtopology.k8s.resources.objects import Object
from streamtopology.topology import Topology, format_cpu, format_memory

_UNAPPLIED = f"the manifest waits until the annotation {names.PAUSE} is gone"

# The number of re-routings in status; each was also an event.
KEPT_REROUTINGS = 10

# Characters of a condition's message that the CRD allows.
LONGEST_MESSAGE, _CUT = 32_768, " ... (cut)"


def invalid(seen: Observation, sentences: str) -> Object:
    """The status of a manifest that cannot run: nothing is changed, a running topology keeps running."""
    condition = Condition(ConditionType.READY, "False", ReadyReason.INVALID_MANIFEST, sentences)
    phase = "Invalid" if seen.running is None else seen.status.get("phase", "Running")
    return _with(seen, phase, [condition, *kstatus(condition, None, None)])


def not_taken(seen: Observation, reported: Object, sentences: str) -> Object:
    """`reported` is of the topology that runs: with the sentences of a newer manifest, which cannot."""
    condition = Condition(ConditionType.READY, "False", ReadyReason.INVALID_MANIFEST, sentences)
    known = {one["type"]: one for one in reported["conditions"]}
    known |= {one["type"]: one for one in _dated(seen, [condition, *kstatus(condition, None, None)])}
    return {**reported, "observedGeneration": seen.generation, "conditions": list(known.values())}


def without_image(seen: Observation) -> Object:
    text = "no image to run: set spec.image, or let the operator run with --image"
    condition = Condition(ConditionType.READY, "False", ReadyReason.NO_IMAGE, text)
    return _with(seen, "Invalid", [condition, *kstatus(condition, None, None)])


def deleting(seen: Observation, message: str, steps: tuple[Step, ...]) -> Object:
    reported = _with(seen, "Draining", [Condition(ConditionType.READY, "False", ReadyReason.DELETING, message)])
    change = present(seen.transition, ReadyReason.DELETING, False, seen.generation, "", seen.now)
    return {**reported, "intent": intent(change, message, steps)}


def _with(seen: Observation, phase: str, changed: list[Condition]) -> Object:
    """The previous status with another phase and these conditions."""
    known = {one["type"]: one for one in items_at(seen.status, "conditions")}
    known |= {one["type"]: one for one in _dated(seen, changed)}
    return {**_lasting(seen.status), "observedGeneration": seen.generation, "phase": phase, "conditions": list(known.values())}


def _lasting(status: Object) -> Object:
    return {name: value for name, value in status.items() if name != "intent"}


def build(
    seen: Observation,
    topology: Topology,
    rollout: Rollout,
    steps: tuple[Step, ...],
    *,
    scaled: Scaled | None = None,
    outdated: int = 0,
    waits: bool = False,
    paused: bool = False,
    unapplied: bool = False,
    problem: tuple[str, str] | None = None,
    mutated: tuple[str, ...] = (),
) -> Object:
    """The status of a decision: `topology` is resolved, `steps` will be taken, `outdated` pods replaced.

    `waits`: its pods are of an old version of the operator. `unapplied`: it is paused, with a manifest that waits.
    `problem`: (reason, sentence) of what hinders the steps; `mutated`: a sentence for each field that admission has changed.
    """
    stats = seen.stats
    under_way = None if paused else change_under_way(seen, topology, rollout, steps, outdated)
    fought = _fought_over(seen, problem) if under_way is None else None
    if fought is not None:
        under_way = str(fought["action"]), str(fought.get("reason", ""))
    ready, degraded = conditions.ready(seen, topology), conditions.degraded(seen, topology, problem, settled=under_way is None)
    judged = [
        ready,
        conditions.balanced(seen, topology),
        conditions.reconfiguring(under_way, waits, paused),
        degraded,
        conditions.mutated(mutated),
        *kstatus(ready, degraded, (ReconfiguringReason.PAUSED, _UNAPPLIED) if unapplied else under_way),
    ]
    report: Object = {
        "observedGeneration": seen.generation,
        "phase": _phase(seen, topology, ready, under_way),
        "executors": _executors(seen, topology),
        "policies": {operator.name: operator.grouping.policy for operator in topology.operators},
        "policy": ", ".join(dict.fromkeys(operator.grouping.policy for operator in topology.operators)),
        "classes": [_class(seen, topology, index) for index in range(len(topology.executors))],
        "conditions": _dated(seen, judged),
        "reroutings": _reroutings(seen),
    }
    if "checkpoint" in seen.status:
        report["checkpoint"] = seen.status["checkpoint"]
    if stats is not None:
        report |= _columns(stats, conditions.imbalance(seen))
    else:
        report |= {name: seen.status[name] for name in ("epoch", "batch") if name in seen.status}
    if report["reroutings"]:
        report["lastRerouting"] = report["reroutings"][0]
    if under_way is not None:
        report["intent"] = fought or _intent(seen, topology, rollout, under_way, steps)
    if (ended := conditions.completion(seen, topology)) is not None:
        report |= {"completed": ended.generation, "completedFor": ended.to_text()}
    if scaled is not None:
        report |= _scaling(seen, scaled)
    judged_by = {"recommendation": _recommendation(seen), "boundBy": _bound_by(seen)}
    return report | {name: value for name, value in judged_by.items() if value is not None}


def _intent(
    seen: Observation, topology: Topology, rollout: Rollout, under_way: tuple[str, str], steps: tuple[Step, ...]
) -> Object:
    kind, why = under_way
    target = target_of(topology, rollout.epoch)
    return intent(present(seen.transition, kind, rollout.begun is not None, seen.generation, target, seen.now), why, steps)


def _fought_over(seen: Observation, problem: tuple[str, str] | None) -> Object | None:
    """The recorded change that somebody takes back again and again: it is done once that is over, not between two rounds."""
    return seen.status.get("intent") if problem is not None and problem[0] == DegradedReason.CONTESTED else None


def _phase(seen: Observation, topology: Topology, ready: Condition, under_way: tuple[str, str] | None) -> str:
    if ready.reason == ReadyReason.COMPLETED:
        return "Completed"
    if topology.suspend:
        return "Suspended" if seen.runs_nothing else "Suspending"
    if ready.reason in conditions.ALARMING:
        return "Failed" if ready.reason in (ReadyReason.DRIVER_FAILED, ReadyReason.DRIVER_REFUSED) else "Starting"
    if ready.status != "True":
        return "Paused" if ready.reason == ReadyReason.PAUSED else "Starting"
    if ready.reason == ReadyReason.ASLEEP and under_way is None:
        return "Asleep"
    return "Reconfiguring" if under_way is not None and under_way[0] != ReconfiguringReason.STARTING else "Running"


def _columns(stats: Stats, imbalance: float | None) -> Object:
    columns: Object = {}
    if stats.epoch is not None:
        columns |= {"epoch": stats.epoch, "batch": stats.batch}
    if imbalance is not None:
        columns["imbalance"] = round(imbalance, 3)
    if stats.rows_per_second is not None:
        columns["throughput"] = round(stats.rows_per_second)
    if stats.bound_rows_per_second is not None:
        columns["bound"] = round(stats.bound_rows_per_second)
    if stats.checkpoint and stats.batch is not None:
        columns["checkpoint"] = stats.checkpoint
    return columns


def _executors(seen: Observation, topology: Topology) -> Object:
    ready, wanted = ready_executors(seen, topology), topology.replicas
    return {"ready": ready, "wanted": wanted, "summary": f"{ready}/{wanted}"}


def _class(seen: Observation, topology: Topology, index: int) -> Object:
    executor = topology.executors[index]
    pods = [pod for pod in seen.pods("executor", executor.name) if not pod.deleting]
    report: Object = {
        "name": executor.name,
        "replicas": executor.replicas,
        "ready": sum(pod.ready for pod in pods),
        "cpu": format_cpu(executor.cpu),
        "memory": format_memory(executor.memory_bytes),
    }
    if (refused := refusal(seen, executor)) is not None:
        at = format_time(refused.at)
        report |= {"refusedFor": written(target(executor)), "refused": refused.why, "refusedAt": at}
    return report


def _scaling(seen: Observation, scaled: Scaled) -> Object:
    """The decided numbers, and of one class those that others have asked for."""
    report: Object = {"autoscale": _autoscale(seen, scaled)}
    if scaled.class_name:
        report["asked"] = {"class": scaled.class_name, "numbers": [one.to_status() for one in asked_replicas(seen)]}
    return report


def _autoscale(seen: Observation, scaled: Scaled) -> Object:
    """The decided number, `desired`, reached once executors are drained; of one class with the scale subresource."""
    known = mapping_at(seen.status, "autoscale")
    report = _scale_subresource(seen, scaled) if scaled.class_name else _desired(scaled)
    if recorded(seen, scaled.class_name) != scaled.replicas:
        return {**report, "at": format_time(seen.now), **({"reason": scaled.why} if scaled.why else {})}
    return {**report, **{name: known[name] for name in ("at", "reason") if name in known}}


def _scale_subresource(seen: Observation, scaled: Scaled) -> Object:
    """`replicas` is the present number."""
    chosen = names.labels(seen.owner.name, "executor", scaled.class_name)
    existing, desired = seen.stateful_set(scaled.class_name), scaled.replicas[scaled.class_name]
    note = unheeded(seen, desired)
    return {
        "replicas": existing.replicas if existing is not None else desired,
        "selector": names.selector(chosen),
        "class": scaled.class_name,
        "desired": desired,
        **({"unheeded": note} if note else {}),
    }


def _desired(scaled: Scaled) -> Object:
    return {"classes": [{"name": name, "desired": count} for name, count in scaled.replicas.items()]}


def _recommendation(seen: Observation) -> Object | None:
    judgement = seen.answer.judgement if seen.answer else None
    if judgement is None or judgement.kind != "recommend":
        stats = seen.stats
        waits = judgement is None or (isinstance(judgement.reason, Hold) and judgement.reason.reason.is_waiting)
        return seen.status.get("recommendation") if waits and stats is not None else None
    return {"text": figures(judgement), "stages": list(judgement.stages), "at": format_time(seen.now)}


def _bound_by(seen: Observation) -> Object | None:
    """The constraint of the batches as the driver found it, with the figures of when its subject was first seen.

    The same while the driver does not answer; None while it has not found any under a new routing.
    """
    known: Object | None = seen.status.get("boundBy")
    if seen.stats is None:
        return known
    found = seen.stats.binding
    if found is None:
        return None
    bound: Object = {"kind": found.kind.value}
    if found.kind is not BindingKind.ELSEWHERE:
        bound["stage"] = found.stage
    if found.kind is BindingKind.INSTANCE:
        bound["instance"] = found.instance
    if found.kind is BindingKind.KEY:
        bound["key"] = found.key
    if known is not None and bound == {name: value for name, value in known.items() if name not in ("text", "at")}:
        return known
    return {**bound, "text": describe(found), "at": format_time(seen.now)}


def _reroutings(seen: Observation) -> list[Object]:
    """The last re-routings, newest first: those in status and those that the driver reports."""
    known = dict(seen.reroutings)
    gains = {gain.epoch: gain for gain in seen.answer.gains} if seen.answer else {}
    for change in seen.stats.reconfigurations if seen.stats else ():
        before = known.get((change.epoch, change.operator), {"at": format_time(seen.now)})
        known[change.epoch, change.operator] = {**before, **_rerouting(change), **_gain(gains.get(change.epoch))}
    newest = sorted(known.values(), key=lambda one: (-one["epoch"], one["operator"]))
    return newest[:KEPT_REROUTINGS]


def _rerouting(change: Rerouting) -> Object:
    return {
        "epoch": change.epoch,
        "batch": change.batch,
        "operator": change.operator,
        "reason": describe(change.reason) or "unknown",
        "keysMoved": change.keys_moved,
        "bytesMoved": change.bytes_moved,
        "seconds": round(change.published_to_active_seconds, 3),
    }


def _gain(gain: Gain | None) -> Object:
    """The gains of a re-routing. Only the operator knows them: the driver decides nothing, so it predicts nothing."""
    return {} if gain is None else {"predictedGain": round(gain.predicted, 4), "measuredGain": round(gain.measured, 4)}


def _dated(seen: Observation, judged: Iterable[Condition]) -> list[Object]:
    before = {one["type"]: one for one in items_at(seen.status, "conditions")}
    dated: list[Object] = []
    for one in judged:
        was = before.get(one.type)
        same = was is not None and was["status"] == one.status
        dated.append(
            {
                "type": one.type,
                "status": one.status,
                "reason": one.reason,
                "message": _bounded(one.message),
                "observedGeneration": seen.generation,
                "lastTransitionTime": was["lastTransitionTime"] if was is not None and same else format_time(seen.now),
            }
        )
    return dated


def _bounded(message: str) -> str:
    """The message, cut where the API server would refuse the whole status over it."""
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - len(_CUT)] + _CUT


_FIGURES = ("batch", "imbalance", "throughput", "bound")

# Relative change of rows/s, and change of the imbalance, that somebody who looks at the columns would notice.
NOTICEABLE_RATE, NOTICEABLE_IMBALANCE = 0.1, 0.05


def is_news(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """True if more than figures and texts has changed: such a change is written at once, figures at intervals."""
    return _gist(before) != _gist(now)


def is_noticeable(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """True if a figure in a column has changed by more than noise, or the sentence of a condition, as of a new obstacle."""
    if before.keys() & _FIGURES != now.keys() & _FIGURES or _sentences(before) != _sentences(now):
        return True
    if before.get("boundBy") != now.get("boundBy"):
        return True
    rates = ((before.get(name, 0), now.get(name, 0)) for name in ("throughput", "bound"))
    off = abs(before.get("imbalance", 0.0) - now.get("imbalance", 0.0))
    return off > NOTICEABLE_IMBALANCE or any(abs(new - old) > NOTICEABLE_RATE * max(old, new) for old, new in rates)


def _sentences(status: Mapping[str, Any]) -> dict[str, str]:
    """Those of conditions, but for the one that has figures of every batch."""
    found = items_at(status, "conditions")
    return {one["type"]: one["message"] for one in found if one["type"] != ConditionType.BALANCED}


def _gist(status: Mapping[str, Any]) -> Object:
    gist = {name: value for name, value in status.items() if name not in (*_FIGURES, "boundBy")}
    gist["conditions"] = [(one["type"], one["status"], one["reason"]) for one in items_at(status, "conditions")]
    gist["intent"] = {name: value for name, value in mapping_at(status, "intent").items() if name != "reason"}
    gist["recommendation"] = mapping_at(status, "recommendation").get("stages")
    return gist


# Reasons that last until somebody does something.
STALLING = frozenset(
    {
        ReadyReason.INVALID_MANIFEST,
        ReadyReason.NO_IMAGE,
        ReadyReason.IMAGE_UNAVAILABLE,
        ReadyReason.DRIVER_FAILED,
        ReadyReason.DRIVER_REFUSED,
        DegradedReason.NAME_TAKEN,
        DegradedReason.APPLY_REFUSED,
        DegradedReason.TOPOLOGY_REFUSED,
    }
)

# Changes by which a topology balances itself: the manifest is in force all the while.
OWN = frozenset({ReconfiguringReason.REROUTING, ReconfiguringReason.MIGRATING})


def kstatus(ready: Condition, degraded: Condition | None, under_way: tuple[str, str] | None) -> list[Condition]:
    """Reconciling and Stalled, by which Flux, Argo CD and `kubectl wait` judge any resource, from the other conditions and the
    unfinished change.

    kstatus calls a resource failed while Stalled is True, in progress while Reconciling is True or
    Ready is not, else current.
    """
    faults = [one for one in (ready, degraded) if one is not None and one.is_bad and one.reason in STALLING]
    if faults:
        stalled = Condition(ConditionType.STALLED, "True", faults[0].reason, faults[0].message)
        return [_settled(), stalled]
    stalled = Condition(ConditionType.STALLED, "False", DegradedReason.AS_EXPECTED, "nothing waits for somebody to act")
    if under_way is not None and under_way[0] not in OWN:
        return [Condition(ConditionType.RECONCILING, "True", *under_way), stalled]
    if ready.status != "True":
        return [Condition(ConditionType.RECONCILING, "True", ready.reason, ready.message), stalled]
    return [_settled(), stalled]


def _settled() -> Condition:
    return Condition(ConditionType.RECONCILING, "False", ReconfiguringReason.SETTLED, "nothing is being brought about")
