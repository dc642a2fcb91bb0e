"""The stages of a topology as the controller judges them: how far from balance, and what could be done about it.

A stage is the source or an operator. It proposes a remedy (shares, or a table by its policy's planner); whether the remedy
is worth its cost is decided for all stages together (`weighing`), since they pay for one switch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from streamtopology.contract.reasons import SOURCE, KeyMove, LinkMove, RemedyKind, StageReason
from streamtopology.routing import planners
from streamtopology.routing.control.decisions import PartCosts
from streamtopology.routing.control.memory import added_bytes, arriving_bytes
from streamtopology.routing.control.moves import heaviest_links, heaviest_moves
from streamtopology.routing.control.slot_model import SlotModel
from streamtopology.routing.epochs.epoch import Route
from streamtopology.routing.load.load_report import KeyPairs, LoadReport, merge_pairs
from streamtopology.routing.load.planner_load import (
    PlannerLoad,
    over_virtual_workers,
    planner_load_of,
    without_gone,
    work_rows,
)
from streamtopology.routing.planners.balance import balanced_loads, fewest_loads, finish_seconds, imbalance
from streamtopology.routing.planners.joint import ALONE, Edge, JointPlan, JointPlanInput
from streamtopology.routing.planners.plan import DEFAULT_BETA, Plan, PlanInput, Splitting
from streamtopology.routing.planners.switch_costs import AT_ONCE, SwitchCosts
from streamtopology.topology import groupings

Floats = npt.NDArray[np.float64]

# A plan aims at this share of the tolerance: one that just met it would be out of it again with the next noise.
AIM = 0.25

# A gain counts when it is more than this share of the tolerance, relative to the stage's seconds.
NOTICEABLE = 0.5


# Operators are planned again for locality when a larger share of their tuples would stay on their server.
MORE_LOCAL = 0.05


@dataclass(frozen=True)
class Remedy:
    """The assessment of one stage and its best remedy: a plan for a table, or shares per instance.

    `seconds_before`: of a batch, by the reports; `gain_seconds` of them are saved. A gain up to `noise_seconds` is not
    distinguishable from noise. `plans`: by operator, one but for operators planned together. `locality_gain`: share of the
    tuples between these that would stay on their server and do not now, or what a planner has in its place. `keys`, `links`:
    the first of those that make the difference. `arriving_bytes`: of state that a slot gets more than it gives, by slot.
    """

    imbalance: float
    seconds_before: float
    gain_seconds: float
    noise_seconds: float
    moved_bytes: float
    reason: StageReason
    plans: Mapping[str, Plan] = field(default_factory=dict[str, Plan])
    shares: tuple[float, ...] = ()
    locality_gain: float = 0.0
    keys: tuple[KeyMove, ...] = ()
    links: tuple[LinkMove, ...] = ()
    arriving_bytes: Mapping[int, float] = field(default_factory=dict[int, float])

    @property
    def is_noticeable(self) -> bool:
        """True if the gain is distinguishable from noise."""
        return self.is_noticeable_by(1.0)

    def is_noticeable_by(self, trust: float) -> bool:
        """True if this share of the gain is distinguishable from noise."""
        return trust * self.gain_seconds > self.noise_seconds

    @property
    def brings_locality(self) -> bool:
        """True if it would be done for locality alone."""
        return self.locality_gain > MORE_LOCAL


@dataclass(frozen=True)
class ShareStage:
    """A stage whose rows are divided by shares: the source over slots, or a chooser over its instances.

    `slot_by_instance`: the slot of each instance (the source has one on every slot). `shares` float64[instances], the
    ones in force, sum 1; `rows` per batch. `link_seconds` float64[instances], None where it takes no time: for how
    long a row keeps the link of the instance that sends it on busy, in the mean over those that stay, too. `is_hidden`: rows
    are read during the batch before, so that only their way over the links takes time.
    """

    name: str
    slot_by_instance: tuple[int, ...]
    rows: float
    shares: Floats
    link_seconds: Floats | None = None
    is_hidden: bool = False

    def remedy(self, model: SlotModel, tolerance: float, max_entries: int, switch: SwitchCosts = AT_ONCE) -> Remedy:
        """Shares by which all instances finish together; source rows are read by no more slots than that takes."""
        capacities, fixed = self._machines(model)
        if self.name == SOURCE:
            best = fewest_loads(self.rows, capacities, fixed, AIM * tolerance)
        else:
            best = balanced_loads(self.rows, capacities, fixed)
        before = self._seconds(self.rows * self.shares, capacities, fixed)
        after = self._seconds(best, capacities, fixed)
        off = max(before / after - 1.0, 0.0) if after > 0 else 0.0
        return Remedy(
            imbalance=off,
            seconds_before=before,
            gain_seconds=before - after,
            noise_seconds=_noise([] if self.is_hidden else [self.name], model, tolerance, before),
            moved_bytes=0.0,
            reason=StageReason(RemedyKind.SHARES, self.name, off),
            shares=tuple((best / best.sum()).tolist()) if best.sum() > 0 else tuple(self.shares.tolist()),
        )

    def _machines(self, model: SlotModel) -> tuple[Floats, Floats]:
        """Rows/s of the instances with their links, and fixed seconds."""
        if self.is_hidden and self.link_seconds is not None:
            return 1 / self.link_seconds, np.zeros(len(self.link_seconds))
        capacities, fixed = model.of_instances(self.name, np.array(self.slot_by_instance))
        return (capacities if self.link_seconds is None else capacities / (1 + capacities * self.link_seconds)), fixed

    def _seconds(self, loads: Floats, capacities: Floats, fixed: Floats) -> float:
        """The finish of the last instance. A slot without source rows starts no task; an instance always runs."""
        waited_for = loads > 0 if self.name == SOURCE else np.full(len(loads), True)
        return float(finish_seconds(loads, capacities, fixed)[waited_for].max(initial=0.0))


@dataclass(frozen=True, eq=False)
class TableStage:
    """An operator routed by a table that a planner may change.

    `slot_by_instance`: the slot of each active instance. `reports` are those of the whole window (`batches` batches), each of
    one or more of them: loads of keys do not depend on the epoch. `present` are the ones under the current epoch
    (`batches_at_present` batches): loads of instances do. `splitting`: where its table may have split keys. `newest`: the
    reports of the newest batches. `batches_with_pairs`: those of `batches` in which pairs of keys were counted.
    """

    name: str
    route: Route
    slot_by_instance: tuple[int, ...]
    reports: Sequence[LoadReport]
    present: Sequence[LoadReport]
    batches: int
    planner: str
    batches_at_present: int = 1
    splitting: PartCosts | None = None
    newest: Sequence[LoadReport] = ()
    batches_with_pairs: int = 0

    def remedy(self, model: SlotModel, tolerance: float, max_entries: int, switch: SwitchCosts = AT_ONCE) -> Remedy:
        """The planner's table, aimed well within the tolerance.

        Where routers split keys by themselves, instances are in balance though the table is not: then it counts.
        """
        given = self.plan_input(model, tolerance, max_entries, switch)
        plan = planners.get(self.planner)(given)
        off = self.imbalance(model) if self.splitting is None else max(self.imbalance(model), plan.imbalance_before)
        return Remedy(
            imbalance=off,
            seconds_before=plan.predicted_seconds_before,
            gain_seconds=plan.predicted_seconds_before - plan.predicted_seconds_after,
            noise_seconds=_noise([self.name], model, tolerance, plan.predicted_seconds_before),
            moved_bytes=plan.moved_bytes,
            reason=StageReason(RemedyKind.TABLE, self.name, off, plan.imbalance_after),
            plans={self.name: plan},
            keys=heaviest_moves(self.name, given, plan),
            arriving_bytes=arriving_bytes(given, plan, self.slot_by_instance),
        )

    def plan_input(self, model: SlotModel, tolerance: float, max_entries: int, switch: SwitchCosts = AT_ONCE) -> PlanInput:
        """The planner's input for this operator."""
        if self.route.table is None:
            raise ValueError(f"operator {self.name!r} has no routing table to plan")
        capacities, fixed = self._machines(model)
        load = self._without_gone(planner_load_of(self.reports, self.batches, model))
        grouping = groupings.get(self.route.policy)
        options = grouping.check_options(self.route.options)
        if grouping.kind == "virtual":
            load = over_virtual_workers(load, len(self.route.table.buckets))
        return PlanInput(
            current=self.route.table,
            instances=self.route.instances,
            capacities=capacities,
            fixed_seconds=fixed,
            key_hashes=load.key_hashes,
            key_loads=load.key_loads,
            key_state=load.key_state,
            bucket_loads=load.bucket_loads,
            bucket_state=load.bucket_state,
            bucket_keys=load.bucket_keys,
            tolerance=AIM * tolerance,
            max_entries=max_entries,
            beta=cast(float, options.get("beta", DEFAULT_BETA)),
            options=options,
            splitting=self._splitting(model),
            switch=switch,
        )

    def _without_gone(self, load: PlannerLoad) -> PlannerLoad:
        """`load` without keys that are gone; where an instance is missing in the newest reports, they do not show it."""
        if {report.instance for report in self.newest} < {report.instance for report in self.reports}:
            return load
        return without_gone(load, self.newest)

    def imbalance(self, model: SlotModel) -> float:
        """Of what the instances did under the current epoch."""
        return imbalance(self.present_loads(model), *self._machines(model))

    def _splitting(self, model: SlotModel) -> Splitting | None:
        """The price of a part in rows."""
        if self.splitting is None:
            return None
        return Splitting(self.splitting.seconds * model.base_rates[self.name], self.splitting.apart)

    def _machines(self, model: SlotModel) -> tuple[Floats, Floats]:
        """Capacities and fixed seconds of the active instances."""
        return model.of_instances(self.name, np.array(self.slot_by_instance))

    def present_loads(self, model: SlotModel) -> Floats:
        """Work per batch of each active instance under the current epoch."""
        work = dict.fromkeys(self.route.instances, 0.0)
        for report in self.present:
            if report.instance in work:
                work[report.instance] += work_rows(report, model)
        return np.array([work[instance] / max(self.batches_at_present, 1) for instance in self.route.instances])


@dataclass(frozen=True, eq=False)
class JointStage:
    """Operators with the same active instances that a joint planner makes tables for: for locality, not for balance alone.

    `remote_seconds`: how long a row between two servers keeps a link busy, where the planner weighs that (decision 88).
    Planners of policy `locality` do not: locality is what the policy was chosen for, and the controller bounds what it may
    cost (decision 49).
    """

    operators: tuple[TableStage, ...]
    planner: str
    remote_seconds: float = 0.0

    @property
    def name(self) -> str:
        return "+".join(operator.name for operator in self.operators)

    def remedy(self, model: SlotModel, tolerance: float, max_entries: int, switch: SwitchCosts = AT_ONCE) -> Remedy:
        """The planner's tables, one for each operator."""
        alone = {operator.name: operator.plan_input(model, tolerance, max_entries, switch) for operator in self.operators}
        counted = max(operator.batches_with_pairs for operator in self.operators)
        given = JointPlanInput(alone, self._pairs(), max(counted, 1), self.remote_seconds)
        planned = planners.get_joint(self.planner)(given)
        before = max(plan.predicted_seconds_before for plan in planned.plans.values())
        off = max(operator.imbalance(model) for operator in self.operators)
        saved = sum(plan.predicted_seconds_before - plan.predicted_seconds_after for plan in planned.plans.values())
        nearer = planned.locality_after - planned.locality_before
        if self.remote_seconds:  # by seconds alone, those of the network included
            before = planned.remote_before + sum(plan.predicted_seconds_before for plan in planned.plans.values())
            saved += planned.remote_before - planned.remote_after
            planned_off = [plan.imbalance_before for plan in planned.plans.values()]
            off, nearer = max(off, *planned_off, saved / max(before - saved, 1e-9)), 0.0
        is_worst = self.planner == "locality-worst"  # a bound for comparisons, wanted whatever it costs
        return Remedy(
            imbalance=off,
            seconds_before=before,
            gain_seconds=0.0 if is_worst else saved,
            noise_seconds=_noise([operator.name for operator in self.operators], model, tolerance, before),
            moved_bytes=sum(plan.moved_bytes for plan in planned.plans.values()),
            reason=self._reason(planned, off),
            plans=planned.plans,
            locality_gain=-nearer if is_worst else nearer,
            links=heaviest_links(given, planned.plans),
            arriving_bytes=added_bytes(
                arriving_bytes(alone[operator.name], planned.plans[operator.name], operator.slot_by_instance)
                for operator in self.operators
            ),
        )

    def _reason(self, planned: JointPlan, off: float) -> StageReason:
        if planned.chosen == ALONE:
            after = max(plan.imbalance_after for plan in planned.plans.values())
            return StageReason(RemedyKind.TABLE, self.name, off, after)
        before, after = planned.locality_before, planned.locality_after
        return StageReason(RemedyKind.LOCALITY, self.name, off, local_before=before, local_planned=after)

    def _pairs(self) -> dict[Edge, KeyPairs]:
        """The key pairs of every edge between two of the operators, over the window."""
        names = {operator.name for operator in self.operators}
        return {
            (operator.name, consumer): pairs
            for operator in self.operators
            for consumer, pairs in merge_pairs(operator.reports).items()
            if consumer in names
        }


Stage = ShareStage | TableStage | JointStage


def _noise(stages: Sequence[str], model: SlotModel, tolerance: float, seconds: float) -> float:
    """The gain that is noise where the stages last `seconds`: a share of the tolerance, or the standard error if it is more."""
    return max([NOTICEABLE * tolerance * seconds, *(model.error_seconds(stage, seconds) for stage in stages)])
