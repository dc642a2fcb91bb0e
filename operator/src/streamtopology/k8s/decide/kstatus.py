"""The conditions by which Flux, Argo CD and `kubectl wait` judge any resource: Reconciling and Stalled. Pure.

kstatus calls a resource failed while Stalled is True, in progress while Reconciling is True or Ready is not, else current.
"""

from __future__ import annotations

from streamtopology.contract.conditions import ConditionType, DegradedReason, ReadyReason, ReconfiguringReason
from streamtopology.k8s.decide.conditions import Condition

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
    """Reconciling and Stalled, from the other conditions and the unfinished change."""
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
