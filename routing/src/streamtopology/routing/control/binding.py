"""The constraint that bounds the time of a batch: a key, fixed seconds, capacity, or no part of routing at all. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from streamtopology.contract.reasons import Binding, BindingKind
from streamtopology.routing.control.slot_model import SlotModel
from streamtopology.routing.control.stage_work import StageWork, apart, work_of
from streamtopology.routing.control.stages import Stage

# The share of a stage that fixed seconds must have, or of a batch that its stages lack, to be its bound.
MOSTLY = 0.5


def binding(
    stages: Sequence[Stage],
    model: SlotModel,
    measured: Mapping[str, float],
    batch_seconds: float,
    tolerance: float,
    combinable: Mapping[str, bool],
) -> Binding | None:
    """The constraint of the stage that takes longest, for batches of `batch_seconds`; None where routing cannot say.

    `measured`: seconds of each stage that is part of a batch, by its last task, those included that no planner routes.
    `combinable`: operators of which it is known whether the state of a key may be gathered in parts.
    """
    longest = max(measured, key=measured.__getitem__, default=None)
    if longest is None:
        return None
    in_stages = sum(measured.values())
    if in_stages < MOSTLY * batch_seconds:
        return Binding(BindingKind.ELSEWHERE, longest, in_stages, measured[longest], batch_seconds=batch_seconds)
    for stage in (stage for given in stages for stage in apart(given)):
        if stage.name == longest:
            work = work_of(stage, model)
            return _of_key(work, tolerance, combinable) or _of_instances(work, tolerance)
    return None


def _of_key(work: StageWork, tolerance: float, combinable: Mapping[str, bool]) -> Binding | None:
    """The constraint of a key that, alone on the instance that is done with it first, ends after all would together."""
    if work.heaviest is None:
        return None
    key = work.heaviest[0]
    alone = work.seconds_alone
    best = int(np.argmin(alone))
    if alone[best] <= (1 + tolerance) * work.together:
        return None
    return Binding(
        kind=BindingKind.KEY,
        stage=work.name,
        seconds=float(alone[best]),
        bound_seconds=work.together,
        instance=work.instances[best],
        key=f"{key:016x}",
        combinable=combinable.get(work.name),
    )


def _of_instances(work: StageWork, tolerance: float) -> Binding:
    """The constraint of the instance that is done last; where it is not alone, that of all of them."""
    last = int(np.argmax(work.done))
    together = work.together
    fixed_share = 1 - work.rows / float(work.capacities.sum()) / together if together > 0 else 0.0
    kind = BindingKind.FIXED if fixed_share > MOSTLY else BindingKind.CAPACITY
    if work.done[last] > (1 + tolerance) * together:
        kind = BindingKind.INSTANCE
    return Binding(kind, work.name, float(work.done[last]), together, fixed_share, work.instances[last])
