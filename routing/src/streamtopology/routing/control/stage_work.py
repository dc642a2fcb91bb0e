"""The work of a stage in one batch, and the speed of its instances, as the slots were measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamtopology.contract.reasons import SOURCE
from streamtopology.routing.control.slot_model import Floats, SlotModel
from streamtopology.routing.control.stages import JointStage, ShareStage, Stage, TableStage
from streamtopology.routing.planners.balance import balanced_seconds, finish_seconds


@dataclass(frozen=True, eq=False)
class StageWork:
    """The work of one stage. Arrays are float64[instances]; `rows` per batch, `done`: when each instance is, in seconds."""

    name: str
    instances: tuple[int, ...]
    capacities: Floats
    fixed: Floats
    done: Floats
    rows: float
    # The hash of the heaviest key, and its rows; None without keys, and where routers divide these among instances.
    heaviest: tuple[int, float] | None = None

    @property
    def together(self) -> float:
        """The seconds after which all instances are done if they finish together."""
        return balanced_seconds(self.rows, self.capacities, self.fixed)

    @property
    def seconds_alone(self) -> Floats:
        """The seconds (float64[instances]) after which an instance with the heaviest key alone is done; 0 without one."""
        if self.heaviest is None:
            return np.zeros(len(self.instances))
        return finish_seconds(np.full(len(self.instances), self.heaviest[1]), self.capacities, self.fixed)

    @property
    def least_seconds(self) -> float:
        """The seconds of the stage under the best routing: all together, or the heaviest key alone at its best instance."""
        return max(self.together, float(self.seconds_alone.min()))


def apart(stage: Stage) -> Sequence[ShareStage | TableStage]:
    return stage.operators if isinstance(stage, JointStage) else [stage]


def work_of(stage: ShareStage | TableStage, model: SlotModel) -> StageWork:
    if isinstance(stage, TableStage):
        given = stage.plan_input(model, tolerance=0.0, max_entries=0)
        may_be_divided = given.splitting is not None
        heaviest = int(np.argmax(given.key_loads)) if len(given.key_loads) and not may_be_divided else None
        return StageWork(
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
    return StageWork(stage.name, tuple(range(len(loads))), capacities, fixed, done, stage.rows)
