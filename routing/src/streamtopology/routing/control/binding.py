"""The constraint that bounds the time of a batch: a key, fixed seconds, capacity, or no part of routing at all. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamtopology.contract.reasons import SOURCE, Binding, BindingKind
from streamtopology.routing.control.slot_model import Floats, SlotModel
from streamtopology.routing.control.stages import JointStage, ShareStage, Stage, TableStage
from streamtopology.routing.planners.balance import balanced_seconds, finish_seconds

MOSTLY = 0.5
"""The share of a stage that fixed seconds must have, or of a batch that its stages lack, to be its bound."""


@dataclass(frozen=True, eq=False)
class _Work:
    """The work of one stage. Arrays are float64[instances]; `rows` per batch, `done`: when each instance is, in seconds."""

    name: str
    instances: tuple[int, ...]
    capacities: Floats
    fixed: Floats
    done: Floats
    rows: float
    heaviest: tuple[int, float] | None = None
    """The hash of the heaviest key, and its rows; None without keys, and where routers divide these among instances."""

    @property
    def together(self) -> float:
        """The seconds after which all instances are done if they finish together."""
        return balanced_seconds(self.rows, self.capacities, self.fixed)


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
    for stage in (stage for given in stages for stage in _apart(given)):
        if stage.name == longest:
            work = _work(stage, model)
            return _of_key(work, tolerance, combinable) or _of_instances(work, tolerance)
    return None


def _of_key(work: _Work, tolerance: float, combinable: Mapping[str, bool]) -> Binding | None:
    """The constraint of a key that, alone on the instance that is done with it first, ends after all would together."""
    if work.heaviest is None:
        return None
    key, rows = work.heaviest
    alone = finish_seconds(np.full(len(work.instances), rows), work.capacities, work.fixed)
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


def _of_instances(work: _Work, tolerance: float) -> Binding:
    """The constraint of the instance that is done last; where it is not alone, that of all of them."""
    last = int(np.argmax(work.done))
    together = work.together
    fixed_share = 1 - work.rows / float(work.capacities.sum()) / together if together > 0 else 0.0
    kind = BindingKind.FIXED if fixed_share > MOSTLY else BindingKind.CAPACITY
    if work.done[last] > (1 + tolerance) * together:
        kind = BindingKind.INSTANCE
    return Binding(kind, work.name, float(work.done[last]), together, fixed_share, work.instances[last])


def _apart(stage: Stage) -> Sequence[ShareStage | TableStage]:
    return stage.operators if isinstance(stage, JointStage) else [stage]


def _work(stage: ShareStage | TableStage, model: SlotModel) -> _Work:
    if isinstance(stage, TableStage):
        given = stage.plan_input(model, tolerance=0.0, max_entries=0)
        may_be_divided = given.splitting is not None
        heaviest = int(np.argmax(given.key_loads)) if len(given.key_loads) and not may_be_divided else None
        return _Work(
            name=stage.name,
            instances=given.instances,
            capacities=given.capacities,
            fixed=given.fixed_seconds,
            done=finish_seconds(stage.present_loads(model), given.capacities, given.fixed_seconds),
            rows=float(given.key_loads.sum() + given.bucket_loads.sum()),
            heaviest=None if heaviest is None else (int(given.key_hashes[heaviest]), float(given.key_loads[heaviest])),
        )
    capacities, fixed = model.of_instances(stage.name, np.array(stage.slot_by_instance))
    loads = stage.rows * stage.shares
    done = finish_seconds(loads, capacities, fixed)
    if stage.name == SOURCE:
        done = np.where(loads > 0, done, 0.0)
    return _Work(stage.name, tuple(range(len(loads))), capacities, fixed, done, stage.rows)
