"""An answer of `/stats` of which a test says what it is about: the rest as a driver writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamtopology.contract.phases import Activity, Phase
from streamtopology.contract.stats import Stats

_EMPTY = Stats(topology="flow", activity=Activity(Phase.RUNNING)).to_wire()
_BATCH = {
    "attempt": 1, "moving": False, "imbalance": {}, "capacities": [], "locality": [], "messages": [], "reports": [],
    "source_reports": [],
}  # fmt: skip


def whole(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer with every field."""
    given = _EMPTY | answer
    last = given["last_batch"]
    return given | {
        "slots": [{"present": True, **slot} for slot in given["slots"]],
        "last_batch": last and _BATCH | last,
        "batches": [_BATCH | batch for batch in given["batches"]],
    }
