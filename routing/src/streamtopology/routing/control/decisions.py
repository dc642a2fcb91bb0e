"""Inputs and decisions of the controller, as values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streamtopology.contract.reasons import EpochReason, Hold
from streamtopology.routing.control.part_seconds import PART_SECONDS
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.groupings import learning_of
from streamtopology.routing.planners import Plan
from streamtopology.topology import OperatorSpec, combinable, groupings, poured


class RebalanceSettings(Protocol):
    """The manifest's `rebalance`, as far as the controller reads it."""

    @property
    def mode(self) -> str: ...
    @property
    def interval_seconds(self) -> float: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def max_table_entries(self) -> int: ...
    @property
    def window_intervals(self) -> int: ...


@dataclass(frozen=True)
class PartCosts:
    """The cost of merging the parts of a split key. seconds: of one part, on a slot of speed 1, as its share of one batch.

    apart: in a stage of its own; else parts ride with the rows of the next batch.
    """

    seconds: float
    apart: bool = True


@dataclass(frozen=True)
class TopologyFacts:
    """Facts of the topology that the controller needs in addition to the epoch.

    `declared_cpu`: cores > 0 per slot number, slots that are gone included. `planners`: operator -> name of the planner of
    its table policy. `choosers`: operators whose policy chooses per tuple by capacities given to it. Operators in neither
    are left alone: choosers that learn find out themselves how fast their instances are. `source_by_share`: whether source
    rows can be placed by share per slot. `combinable`: operators of which it is known whether the state of a key may be
    gathered in parts. `splitting`: operators whose tables may have split keys, as their routers pour these. `portion_bytes`:
    of state that moves with the first batch of a switch, at all executors together. `fed_by_sources`: operators that get
    rows of a source. `free_bytes`: of memory for more state, by slot; infinite for slots without a limit, which are left out.
    """

    declared_cpu: tuple[float, ...]
    planners: Mapping[str, str] = field(default_factory=dict[str, str])
    choosers: frozenset[str] = frozenset()
    source_by_share: bool = True
    combinable: Mapping[str, bool] = field(default_factory=dict[str, bool])
    splitting: Mapping[str, PartCosts] = field(default_factory=dict[str, PartCosts])
    portion_bytes: float = math.inf
    fed_by_sources: frozenset[str] = frozenset()
    free_bytes: Mapping[int, float] = field(default_factory=dict[int, float])

    @staticmethod
    def of(
        routes: Mapping[str, Route],
        declared_cpu: Sequence[float],
        source_by_share: bool,
        operators: Sequence[OperatorSpec] = (),
        part_seconds: Mapping[str, float] | None = None,
        portion_bytes: float = math.inf,
        free_bytes: Mapping[int, float] | None = None,
    ) -> TopologyFacts:
        """The facts of `operators` that are routed by `routes`, by their groupings and traits.

        `part_seconds`: of merging a part of a key, by operator of which it was measured.
        """
        measured = part_seconds or {}
        specs = {name: groupings.get(route.policy) for name, route in routes.items()}
        in_parts = combinable(operators)
        names = {one.name for one in operators}
        splitting = {
            name: PartCosts(measured.get(name, PART_SECONDS) if name in in_parts else 0.0, apart=False)
            for name in sorted(poured(operators))
            if name in specs and specs[name].pours
        }
        return TopologyFacts(
            declared_cpu=tuple(declared_cpu),
            planners={name: spec.planner for name, spec in specs.items() if spec.planner is not None},
            choosers=frozenset(
                name for name, spec in specs.items() if spec.kind == "chooser" and learning_of(spec.name) is None
            ),
            source_by_share=source_by_share,
            combinable=in_parts,
            splitting=splitting,
            portion_bytes=portion_bytes,
            fed_by_sources=frozenset(one.name for one in operators if {edge.source for edge in one.inputs} - names),
            free_bytes=free_bytes or {},
        )


@dataclass(frozen=True)
class Proposal:
    """A new epoch with what it changes and is worth. Gain is seconds per batch, cost is seconds once."""

    epoch: Epoch
    plans: Mapping[str, Plan]
    predicted_gain_seconds: float
    cost_seconds: float

    @property
    def reason(self) -> EpochReason:
        return self.epoch.reason


@dataclass(frozen=True)
class Recommend(Proposal):
    """Worth doing, but the mode is Recommend: publish it for people and keep the routing."""


@dataclass(frozen=True)
class Reroute(Proposal):
    """Publish this epoch."""


Decision = Hold | Recommend | Reroute


@dataclass(frozen=True)
class Outcome:
    """The gain of a re-routing: seconds per batch, predicted and measured (at the batch size after it).

    `batch_seconds_before`: what a batch of that size took before. `error_seconds`: standard error of the measured gain.
    """

    epoch: int
    predicted_gain_seconds: float
    measured_gain_seconds: float
    batch_seconds_before: float
    error_seconds: float
