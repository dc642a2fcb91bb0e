"""All topologies that the operator runs, as the operator's page shows them. Pure: it reads manifests with their status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamtopology.contract.conditions import ConditionType
from streamtopology.contract.formatting import clipped, counted
from streamtopology.contract.page import VerdictState
from streamtopology.contract.pods import driver_name
from streamtopology.k8s.decide.fields import items_at, mapping_at
from streamtopology.k8s.instants import parse_time
from streamtopology.k8s.resources.objects import Object

LISTING_VERSION = 1

# Topologies in one answer: those that need somebody first.
MOST_LISTED = 1000

# Characters of a sentence.
_MOST_TEXT = 400

_NEEDS_SOMEBODY = ("Failed", "Invalid")
_RUNS = ("Running", "Reconfiguring")
_ORDER = (VerdictState.ACT, VerdictState.WATCH, VerdictState.WAIT, VerdictState.GOOD)


def listing(topologies: Iterable[Object], now: float) -> dict[str, Any]:
    """The value behind the page at `now` (seconds since 1970); at most `MOST_LISTED`, and how many there are."""
    rows = sorted(
        (_row(one) for one in topologies), key=lambda row: (_ORDER.index(row["state"]), row["namespace"], row["name"])
    )
    return {"version": LISTING_VERSION, "now": now, "total": len(rows), "topologies": rows[:MOST_LISTED]}


def _row(topology: Object) -> dict[str, Any]:
    metadata, status = topology["metadata"], mapping_at(topology, "status")
    conditions = {one["type"]: one for one in items_at(status, "conditions")}
    phase = status.get("phase", "New")
    state, text = _state(phase, conditions)
    rerouting = _complete(status.get("lastRerouting"))
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "service": driver_name(metadata["name"]),
        "phase": phase,
        "state": state,
        "text": clipped(text, _MOST_TEXT),
        "executors": mapping_at(status, "executors").get("summary"),
        "rows_per_second": status.get("throughput") if phase in _RUNS else None,
        "imbalance": status.get("imbalance") if phase in _RUNS else None,
        "rerouted_at": parse_time(rerouting["at"]) if rerouting else None,
        "rerouting": _rerouting(rerouting) if rerouting else None,
    }


def _complete(rerouting: Object | None) -> Object | None:
    """None of one that lacks what is shown: a status can be edited, and one topology's must not hide all others."""
    return rerouting if rerouting and {"at", "epoch", "operator", "keysMoved"} <= rerouting.keys() else None


def _state(phase: str, conditions: dict[str, Object]) -> tuple[VerdictState, str]:
    """As a sentence of the page begins, and the reason in words: what somebody has to mend comes before all else."""
    ready, degraded, stalled, balanced = (
        {"status": "Unknown", "message": "", **conditions.get(kind, {})}
        for kind in (ConditionType.READY, ConditionType.DEGRADED, ConditionType.STALLED, ConditionType.BALANCED)
    )
    if phase in _NEEDS_SOMEBODY:
        return VerdictState.ACT, ready["message"]
    for bad in (stalled, degraded):
        if bad["status"] == "True":
            return VerdictState.ACT, bad["message"]
    if phase not in _RUNS:
        return VerdictState.WAIT, ready["message"]
    if balanced["status"] == "False":
        return VerdictState.WATCH, balanced["message"]
    return VerdictState.GOOD, ""


def _rerouting(rerouting: Object) -> str:
    moved = counted(rerouting["keysMoved"], "key", "keys")
    return f"epoch {rerouting['epoch']}, {moved} of {rerouting['operator']}"
