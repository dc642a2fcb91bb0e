"""The status of a topology: phase, columns, conditions, what is about to be done, what was. Pure.

Status says what we decided and see; nothing but autoscaling is read back from it that the cluster does not say as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from streamtopology.operator import conditions, names
from streamtopology.operator.autoscaling import Scaled
from streamtopology.operator.conditions import Condition
from streamtopology.operator.observe import Observed
from streamtopology.operator.planning import Gain
from streamtopology.operator.resizing import refusal, target, written
from streamtopology.operator.rollout import Rollout, figures, is_pending
from streamtopology.operator.scaling import ready_executors
from streamtopology.operator.stats import Rerouted, Stats
from streamtopology.operator.steps import Event, Object, Resize, Step
from streamtopology.routing.topology import Topology, format_cpu, format_memory
from streamtopology.routing.wording import count, duration, percent, size

KEPT_REROUTINGS = 10
"""Re-routings that status lists; all of them were events."""

STOPPING = ("Suspending", "Completing", "Deleting")
"""Changes that end in nothing that runs: neither do they go on with another that was under way, nor another with them."""


def format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_instant(seconds: float) -> str:
    """To the millisecond, for durations that are measured from it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def invalid(seen: Observed, sentences: str) -> Object:
    """Of a manifest that cannot run: nothing is touched, what ran before goes on."""
    condition = Condition("Ready", "False", "InvalidManifest", sentences)
    phase = "Invalid" if seen.running is None else seen.status.get("phase", "Running")
    return _with(seen, phase, [condition])


def without_image(seen: Observed) -> Object:
    text = "no image to run: set spec.image, or let the operator run with --image"
    return _with(seen, "Invalid", [Condition("Ready", "False", "NoImage", text)])


def deleting(seen: Observed, message: str, steps: tuple[Step, ...]) -> Object:
    reported = _with(seen, "Draining", [Condition("Ready", "False", "Deleting", message)])
    return {**reported, "intent": _intent(seen, None, ("Deleting", message), steps)}


def _with(seen: Observed, phase: str, changed: list[Condition]) -> Object:
    """The status as it was but for the phase and these conditions."""
    known = {one["type"]: one for one in seen.status.get("conditions") or ()}
    known |= {one["type"]: one for one in _dated(seen, changed)}
    return {**_lasting(seen.status), "observedGeneration": seen.generation, "phase": phase, "conditions": list(known.values())}


def _lasting(status: Object) -> Object:
    return {name: value for name, value in status.items() if name != "intent"}


def build(
    seen: Observed, topology: Topology, rollout: Rollout, steps: tuple[Step, ...], *,
    scaled: Scaled | None = None, outdated: int = 0, paused: bool = False,
) -> Object:  # fmt: skip
    """The status that goes with a decision: `topology` is resolved, `steps` are about to be taken, `outdated` pods replaced."""
    stats = seen.stats
    under_way = None if paused else _under_way(seen, topology, rollout, steps, outdated)
    judged = [
        _readiness(seen, topology),
        conditions.balanced(seen, topology),
        _reconfiguring(seen, under_way, paused),
        conditions.degraded(seen, topology, seen.problem or rollout.problem, settled=under_way is None),
    ]
    report: Object = {
        "observedGeneration": seen.generation,
        "phase": _phase(seen, topology, judged[0], under_way),
        "executors": _executors(seen, topology),
        "policies": {operator.name: operator.grouping.policy for operator in topology.operators},
        "policy": ", ".join(dict.fromkeys(operator.grouping.policy for operator in topology.operators)),
        "classes": [_class(seen, topology, index) for index in range(len(topology.executors))],
        "conditions": _dated(seen, judged),
        "reroutings": _reroutings(seen),
    }
    if stats is not None:
        report |= _columns(stats, conditions.imbalance(seen))
    else:
        report |= {name: seen.status[name] for name in ("epoch", "batch") if name in seen.status}
    if report["reroutings"]:
        report["lastRerouting"] = report["reroutings"][0]
    if under_way is not None:
        report["intent"] = _intent(seen, rollout.begun, under_way, steps)
    if is_completed(seen, topology):
        report["completed"] = seen.generation
    if scaled is not None:
        report["autoscale"] = _autoscale(seen, scaled)
    if (recommendation := _recommendation(seen)) is not None:
        report["recommendation"] = recommendation
    return report


def is_completed(seen: Observed, topology: Topology) -> bool:
    """Whether the driver has come to the end of its input under this very generation: it says so, and waits to be stopped."""
    if not topology.trigger.available_now:
        return False
    stats = seen.stats
    done = stats is not None and stats.phase == "done" and stats.generation == seen.generation
    return done or seen.status.get("completed") == seen.generation


def events(seen: Observed, reported: Object) -> tuple[Event, ...]:
    """Events for conditions that turned bad or good again, for re-routings that became active, for gains measured."""
    before = {one["type"]: one for one in seen.status.get("conditions") or ()}
    told: list[Event] = []
    for one in reported["conditions"]:
        told += _condition_events(before.get(one["type"]), one)
    known = {(one["epoch"], one["operator"]): one for one in seen.status.get("reroutings") or ()}
    for one in reversed(reported.get("reroutings") or ()):
        told += _rerouting_events(known.get((one["epoch"], one["operator"])), one)
    recommended, earlier = reported.get("recommendation"), seen.status.get("recommendation")
    if recommended and (not earlier or earlier["stages"] != recommended["stages"]):
        told.append(Event("Normal", "Recommended", recommended["text"]))
    if (took := reconfigured_seconds(seen, reported)) is not None:
        action = seen.status["intent"]["action"]
        told.append(Event("Normal", "Reconfigured", f"{action} is done, {duration(took)} after it was begun"))
    return tuple(dict.fromkeys(told))  # what an epoch gained, it gained for all its operators


def reconfigured_seconds(seen: Observed, reported: Object) -> float | None:
    """If this is the moment when a change has come through: seconds from its beginning to its first batch."""
    begun = seen.status.get("intent")
    if not begun or "intent" in reported or seen.stats is None:
        return None
    since = parse_time(begun["at"])
    first = [batch.began_at for batch in seen.stats.batches if batch.epoch == seen.stats.epoch and batch.began_at >= since]
    return max(min(first, default=seen.now) - since, 0.0)


def _condition_events(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[Event]:
    if before is not None and (before["status"], before["reason"]) == (now["status"], now["reason"]):
        return []
    one = Condition(now["type"], now["status"], now["reason"], now["message"])
    if one.is_bad:
        return [Event("Warning", one.reason, one.message)]
    was = Condition(before["type"], before["status"], before["reason"], before["message"]) if before else None
    if one.type == "Ready" and one.status == "True":
        return [Event("Normal", "Running", one.message)]
    if one.type == "Ready" and one.reason in ("Suspended", "Completed", "Deleting"):
        return [Event("Normal", one.reason, one.message)]
    if one.type == "Balanced" and one.reason in conditions.LEFT:
        return [Event("Normal", one.reason, one.message)]
    if one.type == "Degraded" and was is not None and was.is_bad:
        return [Event("Normal", "Recovered", f"{was.reason} is over")]
    return []


def _rerouting_events(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[Event]:
    told: list[Event] = []
    if before is None:
        moved = "no keys moved"
        if now["keysMoved"]:
            moved = f"{now['operator']} moved {count(now['keysMoved'])} keys, {size(now['bytesMoved'])}"
        text = f"epoch {now['epoch']} runs since batch {now['batch']}: {moved}; {now['reason']}"
        told.append(Event("Normal", "Rerouted", text))
    if "measuredGain" in now and (before is None or "measuredGain" not in before):
        gained, expected = percent(now["measuredGain"]), percent(now["predictedGain"])
        text = f"epoch {now['epoch']}: gained {gained} of a batch, expected {expected}"
        told.append(Event("Normal", "GainMeasured", text))
    return told


def _readiness(seen: Observed, topology: Topology) -> Condition:
    if is_completed(seen, topology):
        return Condition("Ready", "False", "Completed", "the input has come to its end and everything is committed")
    if topology.suspend:
        stopped = not seen.pods("driver")
        text = "spec.suspend: it goes on from its checkpoint" if stopped else "spec.suspend: the driver finishes its batch"
        return Condition("Ready", "False", "Suspended", text)
    return conditions.ready(seen, topology)


def _reconfiguring(seen: Observed, under_way: tuple[str, str] | None, paused: bool) -> Condition:
    if paused:
        return Condition("Reconfiguring", "False", "Paused", f"the annotation {names.PAUSE} keeps the operator from any change")
    if under_way is None:
        return Condition("Reconfiguring", "False", "Settled", "nothing is changing")
    return Condition("Reconfiguring", "True", *under_way)


def _under_way(
    seen: Observed, topology: Topology, rollout: Rollout, steps: tuple[Step, ...], outdated: int
) -> tuple[str, str] | None:  # fmt: skip
    """(kind, sentence) of the change that has been begun and has not come through; None when all is settled."""
    known = (seen.status.get("intent") or {}).get("action")
    known = None if known in STOPPING else known
    if topology.suspend or is_completed(seen, topology):
        kind = "Suspending" if topology.suspend else "Completing"
        if steps:
            return kind, "; ".join(str(step) for step in steps)
        return (kind, "its pods are stopped, the driver's first") if seen.pods("driver") or seen.pods("executor") else None
    if rollout.begun:
        return rollout.begun, "; ".join(event.message for event in rollout.events) or "its objects are made"
    if any(isinstance(step, Resize) for step in steps) or any(pod.resizing for pod in seen.pods("executor")):
        return "Resizing", "executors get other limits while they run"
    for executor in topology.executors:
        existing = seen.stateful_set(executor.name)
        if existing is not None and existing.replicas > executor.replicas:
            return (
                "Scaling",
                f"the driver takes everything off {existing.replicas - executor.replicas} executors of {executor.name}",
            )
    if steps:
        return known or "Updating", "; ".join(str(step) for step in steps)
    if outdated:
        return known or "Updating", f"executor pods are replaced one at a time; yet to come: {outdated}"
    ready = ready_executors(seen, topology)
    if known and (ready < topology.replicas or seen.driver_pod is None or not seen.driver_pod.ready):
        return known, f"{ready} of {topology.replicas} executors are ready{conditions.first_trouble(seen)}"
    if known and (seen.stats is None or seen.silence is not None or is_pending(seen)):
        return known, "waiting for the first batch under it"
    if seen.stats is not None and is_pending(seen) and seen.stats.epoch is not None:
        return "Rerouting", f"waiting for the first batch after epoch {seen.stats.epoch}"
    return None


def _phase(seen: Observed, topology: Topology, ready: Condition, under_way: tuple[str, str] | None) -> str:
    if ready.reason == "Completed":
        return "Completed"
    if topology.suspend:
        return "Suspended" if not seen.pods("driver") else "Suspending"
    if ready.reason in conditions.ALARMING:
        return "Failed" if ready.reason in ("DriverFailed", "DriverRefused") else "Starting"
    if ready.status != "True":
        return "Starting"
    return "Reconfiguring" if under_way is not None and under_way[0] != "Starting" else "Running"


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
    if stats.checkpoint:
        columns["checkpoint"] = stats.checkpoint
    return columns


def _executors(seen: Observed, topology: Topology) -> Object:
    ready, wanted = ready_executors(seen, topology), topology.replicas
    return {"ready": ready, "wanted": wanted, "summary": f"{ready}/{wanted}"}


def _class(seen: Observed, topology: Topology, index: int) -> Object:
    executor = topology.executors[index]
    pods = [pod for pod in seen.pods("executor", executor.name) if not pod.deleting]
    report: Object = {
        "name": executor.name,
        "replicas": executor.replicas,
        "ready": sum(pod.ready for pod in pods),
        "cpu": format_cpu(executor.cpu),
        "memory": format_memory(executor.memory_bytes),
    }
    if why := refusal(seen, executor):
        report |= {"refusedFor": written(target(executor)), "refused": why}
    return report


def _intent(seen: Observed, begun: str | None, under_way: tuple[str, str], steps: tuple[Step, ...]) -> Object:
    """What has been begun, since when, and the steps that are about to be taken; `at` to the millisecond."""
    known = seen.status.get("intent")
    same = known is not None and (known["action"], known.get("generation")) == (under_way[0], seen.generation)
    stops = known is not None and (known["action"] in STOPPING or under_way[0] in STOPPING)
    goes_on = same or (known is not None and not begun and not stops)
    intent: Object = {
        "action": known["action"] if known is not None and goes_on else under_way[0],
        "generation": seen.generation,
        "at": known["at"] if known is not None and goes_on else format_instant(seen.now),
        "reason": under_way[1],
    }
    return {**intent, "steps": [str(step) for step in steps]} if steps else intent


def _autoscale(seen: Observed, scaled: Scaled) -> Object:
    """`replicas` is what there is, `desired` what was decided: the first follows when executors have been drained."""
    chosen = names.labels(seen.owner.name, "executor", scaled.class_name)
    existing, known = seen.stateful_set(scaled.class_name), seen.status.get("autoscale") or {}
    report: Object = {
        "replicas": existing.replicas if existing is not None else scaled.replicas,
        "selector": names.selector(chosen),
        "desired": scaled.replicas,
    }
    if known.get("desired") != scaled.replicas:
        return {**report, "at": format_time(seen.now), **({"reason": scaled.why} if scaled.why else {})}
    return {**report, **{name: known[name] for name in ("at", "reason") if name in known}}


def _recommendation(seen: Observed) -> Object | None:
    judgement = seen.answer.judgement if seen.answer else None
    if judgement is None or judgement.kind != "recommend":
        stats = seen.stats
        waits = judgement is None or judgement.reason.startswith(("the next judgement", "1 of", "2 of", "3 of", "0 of"))
        return seen.status.get("recommendation") if waits and stats is not None else None
    return {"text": figures(judgement), "stages": list(judgement.stages), "at": format_time(seen.now)}


def _reroutings(seen: Observed) -> list[Object]:
    """The last re-routings, newest first: those known, and those the driver tells of."""
    known = {(one["epoch"], one["operator"]): one for one in seen.status.get("reroutings") or ()}
    gains = {gain.epoch: gain for gain in seen.answer.gains} if seen.answer else {}
    for change in seen.stats.reroutings if seen.stats else ():
        before = known.get((change.epoch, change.operator), {"at": format_time(seen.now)})
        known[change.epoch, change.operator] = {**before, **_rerouting(change), **_gain(gains.get(change.epoch))}
    newest = sorted(known.values(), key=lambda one: (-one["epoch"], one["operator"]))
    return newest[:KEPT_REROUTINGS]


def _rerouting(change: Rerouted) -> Object:
    return {
        "epoch": change.epoch, "batch": change.batch, "operator": change.operator, "reason": change.reason or "unknown",
        "keysMoved": change.keys_moved, "bytesMoved": change.bytes_moved,
        "seconds": round(change.published_to_active_seconds, 3),
    }  # fmt: skip


def _gain(gain: Gain | None) -> Object:
    """It is ours to know: the driver decides nothing, so it expects nothing."""
    return {} if gain is None else {"predictedGain": round(gain.predicted, 4), "measuredGain": round(gain.measured, 4)}


def _dated(seen: Observed, judged: Iterable[Condition]) -> list[Object]:
    before = {one["type"]: one for one in seen.status.get("conditions") or ()}
    dated: list[Object] = []
    for one in judged:
        was = before.get(one.type)
        same = was is not None and was["status"] == one.status
        dated.append(
            {
                "type": one.type, "status": one.status, "reason": one.reason, "message": one.message,
                "observedGeneration": seen.generation,
                "lastTransitionTime": was["lastTransitionTime"] if was is not None and same else format_time(seen.now),
            }
        )  # fmt: skip
    return dated


_FIGURES = ("batch", "imbalance", "throughput", "bound")


def is_news(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether more than figures and wordings has changed: that is written at once, figures now and then."""
    return _gist(before) != _gist(now)


def _gist(status: Mapping[str, Any]) -> Object:
    gist = {name: value for name, value in status.items() if name not in _FIGURES}
    gist["conditions"] = [(one["type"], one["status"], one["reason"]) for one in status.get("conditions") or ()]
    gist["intent"] = {name: value for name, value in (status.get("intent") or {}).items() if name != "reason"}
    gist["recommendation"] = (status.get("recommendation") or {}).get("stages")
    return gist
