"""An assessment: all that one judgement of a routing is made from, as a value that can be judged in any process. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from streamtopology.contract.reasons import SOURCE, Binding, RemedyKind, StageReason
from streamtopology.routing.control.binding import binding
from streamtopology.routing.control.decisions import TopologyFacts
from streamtopology.routing.control.slot_model import SlotModel, estimate
from streamtopology.routing.control.stage_work import StageWork, apart, work_of
from streamtopology.routing.control.stages import JointStage, Remedy, ShareStage, Stage
from streamtopology.routing.control.stages_in_window import operators_of, stages_in_window
from streamtopology.routing.control.window import LoadSpan, WindowBatch
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.planners.switch_costs import FEWEST_BATCHES, SwitchCosts

# Entries of a table that make no epoch too large for what it travels in.
FEW_ENTRIES = 64

# Seconds; a shorter batch counts as one of these.
SHORTEST_BATCH = 1e-3

# Slots up to which capacities are estimated in milliseconds; the time grows with their cube.
QUICK_SLOTS = 128


@dataclass(frozen=True, eq=False)
class Assessment:
    """The window under `current`. `bar`: the imbalance of a stage up to which nothing will be done about it.

    `horizon_seconds`: in which a re-routing must earn its cost.
    """

    window: tuple[WindowBatch, ...]
    spans: tuple[LoadSpan, ...]
    current: Epoch
    facts: TopologyFacts
    tolerance: float
    max_entries: int
    bar: float
    horizon_seconds: float

    def remedies(self) -> dict[str, Remedy]:
        """The best remedy of each stage that can be re-routed: capacities, then plans. Takes up to seconds."""
        model, switch = self._model, self._switch
        return {stage.name: stage.remedy(model, self.tolerance, self.max_entries, switch) for stage in self._stages(model)}

    def if_quiet(self) -> dict[str, Remedy] | None:
        """The remedies without any plan, if all stages are within the bar; None if that takes long to see, or they are not."""
        if len(self.facts.declared_cpu) > QUICK_SLOTS:
            return None
        model = self._model
        judged: dict[str, Remedy] = {}
        for stage in self._stages(model):
            remedy = self._unplanned(stage, model)
            if remedy is None or remedy.imbalance > self.bar:
                return None
            judged[stage.name] = remedy
        return judged

    def with_fewer_entries(self) -> Assessment | None:
        """The same for tables of half as many entries; None if they are few already."""
        return replace(self, max_entries=self.max_entries // 2) if self.max_entries >= FEW_ENTRIES else None

    def _unplanned(self, stage: Stage, model: SlotModel) -> Remedy | None:
        """The stage's imbalance; None where only a plan shows it: planned for locality, or poured by its routers."""
        if isinstance(stage, JointStage):
            return None
        if isinstance(stage, ShareStage):
            return stage.remedy(model, self.tolerance, self.max_entries)
        if stage.splitting is not None:
            return None
        off = stage.imbalance(model)
        return Remedy(off, 0.0, 0.0, 0.0, 0.0, StageReason(RemedyKind.TABLE, stage.name, off))

    def binding(self) -> Binding | None:
        """The constraint that bounds the batches under the current epoch; None where nothing was measured of them."""
        batches = self._under_current
        if not batches:
            return None
        model = self._model
        return binding(
            self._stages(model), model, _measured(batches), _usual_seconds(batches), self.tolerance, self.facts.combinable
        )

    def binding_if_quick(self) -> Binding | None:
        """The same; None if that takes long to see."""
        return self.binding() if len(self.facts.declared_cpu) <= QUICK_SLOTS else None

    def one_more(self, classes: Mapping[str, Sequence[int]], growing: Collection[str]) -> dict[str, float]:
        """Return, by class of executors, how many times the rows/s there could be with one more of it."""
        batches = self._under_current
        if not batches:
            return {}
        measured = _measured(batches)
        stages = [stage for stage in self._stages(self._model) if measured.keys() & set(operators_of(stage))]
        routed = {name for stage in stages for name in operators_of(stage)}
        elsewhere = _usual_seconds(batches) - sum(seconds for name, seconds in measured.items() if name in routed)
        return one_more(stages, self._model, max(elsewhere, 0.0), classes, growing)

    @property
    def usual_seconds(self) -> float:
        """Seconds of a batch in the window, the median."""
        return _usual_seconds(self.window)

    @property
    def _switch(self) -> SwitchCosts:
        batches = self.horizon_seconds / max(self.usual_seconds, SHORTEST_BATCH)
        return SwitchCosts(max(batches, FEWEST_BATCHES), self.facts.portion_bytes)

    @property
    def _under_current(self) -> list[WindowBatch]:
        return [batch for batch in self.window if batch.epoch == self.current.number]

    @cached_property
    def _model(self) -> SlotModel:
        return estimate([batch.timings for batch in self.window], self.facts.declared_cpu)

    def _stages(self, model: SlotModel) -> list[Stage]:
        stages = stages_in_window(self.window, self.spans, self.current, self.facts)
        return [stage for stage in stages if all(name in model.rates for name in operators_of(stage))]


def _usual_seconds(batches: Sequence[WindowBatch]) -> float:
    return float(np.median([batch.seconds for batch in batches]))


def _measured(batches: Sequence[WindowBatch]) -> dict[str, float]:
    """Seconds of each stage by its last task, medians; without a source that was read during the batch before."""
    by_stage: defaultdict[str, list[float]] = defaultdict(list)
    for batch in batches:
        for stage in batch.timings.stages:
            if stage != SOURCE or not batch.read_ahead:
                by_stage[stage].append(float(batch.timings.of_stage(stage)["task_seconds"].max()))
    return {stage: float(np.median(seconds)) for stage, seconds in by_stage.items()}


def worst(judged: Mapping[str, Remedy]) -> float:
    """The imbalance of the worst stage; 0 without any."""
    return max((remedy.imbalance for remedy in judged.values()), default=0.0)


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
