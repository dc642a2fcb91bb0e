"""Reports of steps that the API server refuses."""

from __future__ import annotations

from collections.abc import Sequence

from streamtopology.contract.conditions import DegradedReason, EventReason
from streamtopology.k8s import names
from streamtopology.k8s.decide.attempts import Refusal
from streamtopology.k8s.decide.manifest_fields import manifest_fields
from streamtopology.k8s.decide.steps import Event, Step
from streamtopology.k8s.io.api import ApiError
from streamtopology.k8s.io.apply import NameTakenError

# Statuses of refusals that stay as they are until somebody changes something.
LASTING = (400, 403, 422)

# The number of times in a row from which on a refusal is reported that may be over the next time, and one by an object that
# garbage collection is about to delete: 3.5 and 31 seconds.
TRIES, LEFT_OVER_TRIES = 3, 6


def report_of(step: Step, refusal: ApiError | NameTakenError) -> Refusal:
    """The report of a refused step: at once what stays refused as it is, later what may go well the next time."""
    if isinstance(refusal, NameTakenError):
        tries = LEFT_OVER_TRIES if refusal.is_left_over else 1
        return Refusal((DegradedReason.NAME_TAKEN, refusal.what), tries, refusal.remedy)
    causes = manifest_fields(step, refusal.fields)
    blamed = f"because of {', '.join(causes)}: " if causes else ""
    text = f"{step}: {blamed}{refusal.message or refusal.reason} ({refusal.status}){_way_out(step, refusal)}"
    return Refusal((DegradedReason.APPLY_REFUSED, text), 1 if refusal.status in LASTING else TRIES)


def _way_out(step: Step, refusal: ApiError) -> str:
    """Of a ConfigMap whose data nobody may change any more, our own keys included; else empty."""
    is_frozen = step.place[0] == names.CONFIG_MAP.kind and {"data", "binaryData"} & set(refusal.fields)
    return f": somebody has made it immutable; delete the ConfigMap {step.place[1]}, it is written anew" if is_frozen else ""


def unwritten(refusal: ApiError | NameTakenError, times: int, is_claimed: bool) -> Event | None:
    """The event for a topology whose status, or claim by this release, is refused: no condition can say so.

    None for another refusal, and for one that may be over the next time. `times`: in a row.
    """
    if not isinstance(refusal, ApiError) or f"/{names.TOPOLOGY.plural}/" not in refusal.what:
        return None
    is_status = refusal.what.endswith("/status")
    if (is_claimed and not is_status) or times < (1 if refusal.status in LASTING else TRIES):
        return None
    part = "its status" if is_status else f"the annotation {names.SERVED_BY}"
    text = f"the API server refuses {part}, without which nothing is done for this topology"
    return Event("Warning", EventReason.WRITE_REFUSED, f"{text}: {refusal.message or refusal.reason} ({refusal.status})")


def stops_all(refusal: ApiError | NameTakenError) -> bool:
    """True if the next look would end there as well, whatever starts it: our token is not valid, or the status is refused.

    Each answer of a driver starts one.
    """
    if not isinstance(refusal, ApiError):
        return False
    return refusal.status == 401 or (refusal.status in LASTING and refusal.what.endswith("/status"))


def is_busy(refused: Sequence[ApiError | NameTakenError]) -> bool:
    """True if the API server asks for fewer calls."""
    return any(isinstance(one, ApiError) and one.status == 429 for one in refused)
