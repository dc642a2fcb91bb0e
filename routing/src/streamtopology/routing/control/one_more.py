"""The gain of one more executor of a class, by the speed of those that are there. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from streamtopology.routing.control.slot_model import SlotModel
from streamtopology.routing.control.stage_work import StageWork, apart, work_of
from streamtopology.routing.control.stages import Stage


def one_more(
    stages: Sequence[Stage],
    model: SlotModel,
    elsewhere_seconds: float,
    classes: Mapping[str, Sequence[int]],
    growing: Collection[str],
) -> dict[str, float]:
    """Return, by class, the rows/s under the best routing with one more executor of it, over those with the existing ones.

    `elsewhere_seconds`: of a batch, in none of `stages`. `classes`: the slots of each. `growing`: the stages that would get an
    instance there. A key that cannot be divided takes at least as long as it does alone on the best instance. The new executor
    is taken to be like the median one of its class.
    """
    works = [work_of(stage, model) for given in stages for stage in apart(given)]
    now = elsewhere_seconds + sum(work.least_seconds for work in works)

    def then(slots: Sequence[int]) -> float:
        grown = [_grown(work, model, slots) if work.name in growing else work for work in works]
        return elsewhere_seconds + sum(work.least_seconds for work in grown)

    return {name: now / then(slots) for name, slots in classes.items() if slots} if now > 0 else {}


def _grown(work: StageWork, model: SlotModel, slots: Sequence[int]) -> StageWork:
    """The same work with an instance more, on an executor like those of `slots`."""
    at = np.asarray(slots)
    return replace(
        work,
        instances=(*work.instances, max(work.instances, default=-1) + 1),
        capacities=np.append(work.capacities, np.median(model.rates[work.name][at])),
        fixed=np.append(work.fixed, np.median(model.fixed_seconds[work.name][at])),
        done=np.append(work.done, 0.0),
    )
