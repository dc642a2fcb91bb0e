"""Events that a new status of a snapshot calls for. Pure."""

from __future__ import annotations

from streamtopology.contract.conditions import ConditionType
from streamtopology.k8s.decide.fields import items_at
from streamtopology.k8s.decide.snapshots import SnapshotReason
from streamtopology.k8s.decide.steps import Event
from streamtopology.k8s.resources.objects import Object

# The reasons that call for nobody.
NORMAL = frozenset(
    {SnapshotReason.NOTHING_COMMITTED, SnapshotReason.STARTING, SnapshotReason.COPYING, SnapshotReason.COMPLETED}
)


def events_of_snapshot(before: Object, after: Object) -> tuple[Event, ...]:
    """An event for a reason of Ready that is new."""
    known, ready = _ready(before), _ready(after)
    if ready is None or (known is not None and known["reason"] == ready["reason"]):
        return ()
    kind = "Normal" if ready["reason"] in NORMAL else "Warning"
    return (Event(kind, ready["reason"], ready["message"]),)


def _ready(status: Object) -> Object | None:
    return next((one for one in items_at(status, "conditions") if one["type"] == ConditionType.READY), None)
