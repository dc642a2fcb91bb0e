"""Events that a new status calls for: conditions that became bad or good, re-routings, measured gains. Pure."""

# pyright takes the members of enums with a meaning for tuples.
# pyright: reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamtopology.contract.conditions import BalancedReason, ConditionType, EventReason, ReadyReason
from streamtopology.contract.formatting import count, duration, percent, size
from streamtopology.k8s.decide import conditions
from streamtopology.k8s.decide.conditions import Condition
from streamtopology.k8s.decide.fields import items_at, mapping_at
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.steps import Event
from streamtopology.k8s.resources.objects import Object


def events_of(seen: Observation, reported: Object) -> tuple[Event, ...]:
    """Events for conditions that became bad or good, re-routings that became active, and measured gains."""
    before = {one["type"]: one for one in items_at(seen.status, "conditions")}
    posted: list[Event] = []
    for one in reported["conditions"]:
        posted += _condition_events(before.get(one["type"]), one)
    for one in reversed(items_at(reported, "reroutings")):
        posted += _rerouting_events(seen.reroutings.get((one["epoch"], one["operator"])), one)
    recommended, earlier = reported.get("recommendation", {}), mapping_at(seen.status, "recommendation")
    if recommended.get("stages") and earlier.get("stages") != recommended["stages"]:
        posted.append(Event("Normal", BalancedReason.RECOMMENDED, recommended["text"]))
    posted += _unheeded_events(seen.status, reported)
    if (took := reconfigured_seconds(seen, reported)) is not None:
        kind = seen.transition.kind if seen.transition is not None else ""
        posted.append(Event("Normal", EventReason.RECONFIGURED, f"{kind} is done, {duration(took)} after it was begun"))
    return tuple(dict.fromkeys(posted))  # what an epoch gained, it gained for all its operators


def _unheeded_events(before: Object, now: Object) -> list[Event]:
    """One for each number that somebody writes while others decide on it."""
    known, present = mapping_at(before, "asked"), mapping_at(now, "asked")
    is_new = known.get("class") == present.get("class") and known != present
    note = mapping_at(now, "autoscale").get("unheeded")
    return [Event("Warning", EventReason.NOT_SCALED, note)] if is_new and note else []


def reconfigured_seconds(seen: Observation, reported: Object) -> float | None:
    """Seconds from the beginning of a change to its first batch, at the moment when it has come through; else None."""
    if seen.transition is None or "intent" in reported or seen.stats is None:
        return None
    if seen.transition.epoch is not None and (seen.stats.epoch or 0) < seen.transition.epoch:
        return None  # it was withdrawn
    since = seen.transition.begun
    first = [batch.began_at for batch in seen.stats.batches if batch.epoch == seen.stats.epoch and batch.began_at >= since]
    return max(min(first, default=seen.now) - since, 0.0)


def _condition_events(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[Event]:
    if before is not None and (before["status"], before["reason"]) == (now["status"], now["reason"]):
        return []
    one = Condition(now["type"], now["status"], now["reason"], now["message"])
    if one.is_bad:
        return [Event("Warning", one.reason, one.message)]
    was = Condition(before["type"], before["status"], before["reason"], before["message"]) if before else None
    if one.type == ConditionType.READY and (
        one.status == "True" or one.reason in (ReadyReason.SUSPENDING, ReadyReason.DELETING)
    ):
        return [Event("Normal", one.reason, one.message)]
    if one.type == ConditionType.BALANCED and one.reason in conditions.LEFT:
        return [Event("Normal", one.reason, one.message)]
    if one.type == ConditionType.MUTATED and one.status == "True":
        return [Event("Normal", one.reason, one.message)]
    if one.type == ConditionType.DEGRADED and was is not None and was.is_bad:
        return [Event("Normal", EventReason.RECOVERED, f"{was.reason} is over")]
    return []


def _rerouting_events(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[Event]:
    posted: list[Event] = []
    if before is None:
        moved = "no keys moved"
        if now["keysMoved"]:
            moved = f"{now['operator']} moved {count(now['keysMoved'])} keys, {size(now['bytesMoved'])}"
        text = f"epoch {now['epoch']} runs since batch {now['batch']}: {moved}; {now['reason']}"
        posted.append(Event("Normal", EventReason.REROUTED, text))
    if "measuredGain" in now and (before is None or "measuredGain" not in before):
        gained, expected = percent(now["measuredGain"]), percent(now["predictedGain"])
        text = f"epoch {now['epoch']}: gained {gained} of a batch, expected {expected}"
        posted.append(Event("Normal", EventReason.GAIN_MEASURED, text))
    return posted
