"""The control loop: observe batches, judge now and then, and re-route when that pays. Pure; the clock is passed in.

Stages (the source and each operator) are barriers, so each is balanced on its own. Quiet at balance by four rules: a
judgement only every interval and over enough batches of the current epoch (few where it is glaringly out of balance);
nothing within the tolerance; after a re-routing an imbalance must be clear or last; and the seconds saved over the
horizon must outweigh the cost.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from streamtopology.routing import groupings
from streamtopology.routing.capacity import SOURCE, SlotModel, Turn, estimate, settled_from, turns
from streamtopology.routing.epoch import Epoch, Route
from streamtopology.routing.placement import Placement
from streamtopology.routing.planners import JOINT_PLANNERS, Plan
from streamtopology.routing.report import LoadReport, SourceReport
from streamtopology.routing.stages import JointStage, Remedy, ShareStage, Stage, TableStage

MIN_BATCHES = 4
"""Batches under the current epoch before it is judged: the fewest with a median that one bad batch does not make."""

GLARING = 0.5
"""An imbalance beyond this is answered after `FEW_BATCHES`: no noise looks like it, and every batch under it is dear."""

FEW_BATCHES = 2
"""Batches under the current epoch that tell whether it is glaringly out of balance."""

MAX_BATCHES = 32
"""Batches that a window holds at most: medians do not get better by more, and reports take memory."""

CLEAR = 1.5
"""After a re-routing, an imbalance beyond this many tolerances is answered at once, a smaller one when it lasts."""

LASTING = 2
"""Judgements in a row that find a stage out of tolerance before a small imbalance counts as lasting."""

HORIZON_INTERVALS = 6
"""Intervals over which a re-routing must earn its cost."""

SWITCH_SECONDS = 0.3
"""What a switch costs beside moving state: the first batch of an epoch computes what moves, and is not read ahead."""

MOVED_BYTES_PER_SECOND = 50e6
"""How fast state is pulled, on the cautious side."""

LOCALITY_MAY_COST = 0.1
"""Share of the horizon that operators planned for locality may lose by a switch, and by worse balance after it."""

DISAPPOINTING = 0.25
"""A re-routing that gained less than this share of what was predicted puts the next judgement off, longer each time."""

LONGEST_PATIENCE = 4
"""Intervals that a judgement is put off at most."""


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
class TopologyFacts:
    """What the controller must know of the topology beside the epoch.

    `declared_cpu`: cores > 0 per slot number, slots that are gone included. `planners`: operator -> name
    of the planner of its table policy. `choosers`: operators whose policy chooses per tuple by capacities given to it.
    Operators in neither are left alone: choosers that learn find out themselves how fast their instances are.
    `source_by_share`: whether source rows can be placed by share per slot.
    """

    declared_cpu: tuple[float, ...]
    planners: Mapping[str, str] = field(default_factory=dict[str, str])
    choosers: frozenset[str] = frozenset()
    source_by_share: bool = True

    @staticmethod
    def of(routes: Mapping[str, Route], declared_cpu: Sequence[float], source_by_share: bool) -> TopologyFacts:
        """The facts of operators that are routed by `routes`, as their groupings say."""
        specs = {name: groupings.get(route.policy) for name, route in routes.items()}
        return TopologyFacts(
            declared_cpu=tuple(declared_cpu),
            planners={name: spec.planner for name, spec in specs.items() if spec.planner is not None},
            choosers=frozenset(name for name, spec in specs.items() if spec.kind == "chooser" and spec.learning is None),
            source_by_share=source_by_share,
        )


@dataclass(frozen=True)
class Nothing:
    """No change, and why: one sentence for people."""

    reason: str


@dataclass(frozen=True)
class Proposal:
    """A new epoch with what it changes and is worth. Gain is seconds per batch, cost is seconds once."""

    epoch: Epoch
    plans: Mapping[str, Plan]
    source_shares: tuple[float, ...]
    reason: str
    predicted_gain_seconds: float
    cost_seconds: float


@dataclass(frozen=True)
class Recommend(Proposal):
    """Worth doing, but the mode is Recommend: publish it for people and go on as before."""


@dataclass(frozen=True)
class Reroute(Proposal):
    """Publish this epoch."""


Decision = Nothing | Recommend | Reroute


@dataclass(frozen=True)
class Outcome:
    """What a re-routing brought: seconds per batch, predicted and measured (at the batch size after it).

    `batch_seconds_before`: what a batch of that size took before.
    """

    epoch: int
    predicted_gain_seconds: float
    measured_gain_seconds: float
    batch_seconds_before: float


@dataclass(frozen=True)
class _Observation:
    at: float
    seconds: float
    epoch: int
    reports: tuple[LoadReport, ...]
    turns: tuple[Turn, ...]
    source_rows: int
    source_is_hidden: bool
    """Sources were read beside the batch before, and operators hardly waited for them: nothing to gain there."""

    @property
    def seconds_per_row(self) -> float:
        return self.seconds / max(self.source_rows, 1)


@dataclass(frozen=True)
class _Trial:
    """A re-routing that has been decided and not yet been measured."""

    epoch: int
    decided_at: float
    predicted_gain_seconds: float
    seconds_per_row_before: float


class Controller:
    """Feed it every committed batch with `observe`, ask it with `step`. It keeps a bounded window and does no I/O."""

    def __init__(self, settings: RebalanceSettings, clock: Callable[[], float]) -> None:
        """`clock` gives seconds, monotonic; `settings` may be replaced while running by `configure`."""
        self._settings = settings
        self._clock = clock
        self._window: deque[_Observation] = deque(maxlen=MAX_BATCHES)
        self._first_of_epoch = -1
        self._judged_at = clock()
        self._settling = False
        self._patience = 1
        self._out_of_tolerance: Counter[str] = Counter()
        self._rerouted: set[str] = set()
        self._trial: _Trial | None = None
        self._outcomes: list[Outcome] = []
        self._verdict: str | None = None
        self._imbalance: float | None = None

    @property
    def verdict(self) -> str | None:
        """The reason of the last judgement, which holds until the next one; None before the first."""
        return self._verdict

    @property
    def imbalance(self) -> float | None:
        """Of the worst stage at the last judgement, over its window; None before the first."""
        return self._imbalance

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The re-routings whose gain has been measured, in order."""
        return tuple(self._outcomes)

    def configure(self, settings: RebalanceSettings) -> None:
        """Other settings from now on; what was observed stays."""
        self._settings = settings

    def observe(
        self,
        batch_number: int,
        batch_seconds: float,
        reports: Sequence[LoadReport],
        source_reports: Sequence[SourceReport],
        epoch_number: int,
    ) -> None:
        """Takes note of a committed batch. The first batch of an epoch moves state or compiles: it is not judged by."""
        if not reports:
            return
        if self._first_of_epoch < epoch_number:
            self._first_of_epoch = epoch_number
            return
        rows = sum(report.rows for report in source_reports) or sum(report.rows for report in reports)
        seen = turns(reports, source_reports)
        waited = max((report.task_seconds for report in source_reports), default=0.0)
        hidden = any(report.ahead for report in source_reports) and waited <= self._settings.tolerance * batch_seconds
        self._window.append(_Observation(self._clock(), batch_seconds, epoch_number, tuple(reports), seen, rows, hidden))
        self._measure_trial(batch_number)

    def model(self, facts: TopologyFacts) -> SlotModel | None:
        """The slots as the window shows them; None before the first batch."""
        window = self._recent()
        return estimate([seen.turns for seen in window], facts.declared_cpu) if window else None

    def step(self, now: float, current: Epoch, facts: TopologyFacts) -> Decision:
        """Decides at time `now` under the epoch that batches run under; cheap when it is not time to judge."""
        waiting = self._reason_to_wait(now, current)
        if waiting:
            return Nothing(waiting)
        window = self._recent()
        seen = self._batches_under(current)
        if seen < MIN_BATCHES:
            judged = self._judge(window, current, facts)
            if max((remedy.imbalance for remedy in judged.values()), default=0.0) <= GLARING:
                return Nothing(f"{seen} of {MIN_BATCHES} batches seen under epoch {current.number}")
            return self._decide(now, judged, window, current)
        if not self._settling and (start := settled_from([seen.turns for seen in window])):
            self._settling = True
            self._forget_all_but(len(window) - start)
            return Nothing("a capacity has just changed: waiting for batches under the new one")
        self._settling = False
        return self._decide(now, self._judge(window, current, facts), window, current)

    def consider(self, current: Epoch, facts: TopologyFacts) -> tuple[Decision, Mapping[str, Remedy]]:
        """What would be decided by what has been observed, whether or not it is time to, and what is known of each stage."""
        window = self._recent()
        if not window:
            return Nothing("no batch has been observed"), {}
        judged = self._judge(window, current, facts)
        return self._proposal(judged, window, current), judged

    def fitted(self, rescaled: Epoch, facts: TopologyFacts) -> Epoch:
        """`rescaled`, an epoch over other slots or instances than those observed, with the tables and shares that fit them.

        A slot that nothing was measured of counts by its declared CPU. What it costs is not weighed, as the change is
        wanted; only what is noticeably better is taken. Where re-routing is not to be done by itself, or nothing was
        observed, the epoch stays as it is.
        """
        window = self._recent()
        if not window or self._settings.mode != "Auto":
            return rescaled
        judged = self._judge(window, rescaled, facts)
        noticeable = {name: remedy for name, remedy in judged.items() if remedy.gain_seconds > remedy.noise_seconds}
        routes, shares = _remedied(rescaled, noticeable)
        return replace(rescaled, routes=routes, source_shares=shares)

    def _decide(self, now: float, judged: Mapping[str, Remedy], window: list[_Observation], current: Epoch) -> Decision:
        self._judged_at = now
        proposal = self._proposal(judged, window, current)
        self._verdict = proposal.reason
        self._imbalance = max((remedy.imbalance for remedy in judged.values()), default=None)
        if isinstance(proposal, Reroute):
            self._rerouted |= set(judged)
            self._out_of_tolerance.clear()
            per_row = float(np.median([seen.seconds_per_row for seen in window if seen.epoch == current.number]))
            self._trial = _Trial(proposal.epoch.number, now, proposal.predicted_gain_seconds, per_row)
        return proposal

    def _reason_to_wait(self, now: float, current: Epoch) -> str | None:
        settings = self._settings
        if settings.mode == "Off":
            return "rebalance is off"
        if self._trial and current.number < self._trial.epoch:
            if now - self._trial.decided_at < HORIZON_INTERVALS * settings.interval_seconds:
                return f"epoch {self._trial.epoch} has been published and is not active yet"
            self._trial = None
        interval = settings.interval_seconds * self._patience
        if now - self._judged_at < interval:
            return f"the next judgement is due in {interval - (now - self._judged_at):.1f} s"
        seen = self._batches_under(current)
        if seen < FEW_BATCHES:
            return f"{seen} of {FEW_BATCHES} batches seen under epoch {current.number}"
        return None

    def _batches_under(self, epoch: Epoch) -> int:
        return sum(observation.epoch == epoch.number for observation in self._window)

    def _recent(self) -> list[_Observation]:
        """The window: the last intervals, but at least the batches that a judgement needs."""
        span = self._settings.interval_seconds * self._settings.window_intervals
        newest = self._window[-1].at if self._window else 0.0
        window = list(self._window)
        return [seen for i, seen in enumerate(window) if newest - seen.at < span or i >= len(window) - MIN_BATCHES]

    def _forget_all_but(self, newest: int) -> None:
        while len(self._window) > newest:
            self._window.popleft()

    def _judge(self, window: list[_Observation], current: Epoch, facts: TopologyFacts) -> dict[str, Remedy]:
        """What could be done about each stage that can be re-routed."""
        model = estimate([seen.turns for seen in window], facts.declared_cpu)
        return {
            stage.name: stage.remedy(model, self._settings.tolerance, self._settings.max_table_entries)
            for stage in _stages(window, current, facts)
            if all(name in model.rates for name in _names(stage))
        }

    def _proposal(self, judged: Mapping[str, Remedy], window: list[_Observation], current: Epoch) -> Decision:
        tolerance = self._settings.tolerance
        out = {name for name, remedy in judged.items() if remedy.imbalance > tolerance or remedy.brings_locality}
        self._out_of_tolerance = Counter({name: self._out_of_tolerance[name] + 1 for name in out})
        if not out:
            worst = max((remedy.imbalance for remedy in judged.values()), default=0.0)
            return Nothing(f"balanced: imbalance {worst:.1%} is within the tolerance of {tolerance:.1%}")
        ripe = {name for name in out if self._is_ripe(name, judged[name].imbalance)}
        if not ripe:
            return Nothing(f"{_stage_list(sorted(out))} is a little out of balance: waiting whether that lasts")
        worthwhile = {
            name: remedy
            for name, remedy in judged.items()
            if remedy.gain_seconds > remedy.noise_seconds or remedy.brings_locality
        }
        if not ripe & worthwhile.keys():
            return Nothing(f"{_stage_list(sorted(ripe))} is out of balance, but no plan is noticeably better")
        gain = sum(remedy.gain_seconds for remedy in worthwhile.values())
        cost = SWITCH_SECONDS + sum(remedy.moved_bytes for remedy in worthwhile.values()) / MOVED_BYTES_PER_SECOND
        usual = float(np.median([seen.seconds for seen in window]))
        horizon = HORIZON_INTERVALS * self._settings.interval_seconds
        batches = horizon / max(usual, 1e-3)
        allowed = LOCALITY_MAY_COST * horizon if any(remedy.brings_locality for remedy in worthwhile.values()) else 0.0
        if gain * batches + allowed <= cost:
            return Nothing(f"not worth it: saves {gain:.3f} s a batch over {batches:.0f} batches, costs {cost:.2f} s")
        reason = "; ".join(remedy.reason for _, remedy in sorted(worthwhile.items()))
        epoch = _next_epoch(current, worthwhile, reason)
        plans = {name: plan for remedy in worthwhile.values() for name, plan in remedy.plans.items()}
        kind = Recommend if self._settings.mode == "Recommend" else Reroute
        return kind(epoch, plans, epoch.source_shares, reason, gain, cost)

    def _is_ripe(self, name: str, imbalance: float) -> bool:
        clear = imbalance > CLEAR * self._settings.tolerance
        return name not in self._rerouted or clear or self._out_of_tolerance[name] >= LASTING

    def _measure_trial(self, batch_number: int) -> None:
        trial = self._trial
        if trial is None:
            return
        after = [seen for seen in self._window if seen.epoch >= trial.epoch]
        if len(after) < MIN_BATCHES:
            return
        rows = float(np.median([seen.source_rows for seen in after]))
        per_row = float(np.median([seen.seconds_per_row for seen in after]))
        before = trial.seconds_per_row_before * rows
        measured = before - per_row * rows
        self._outcomes.append(Outcome(trial.epoch, trial.predicted_gain_seconds, measured, before))
        disappointed = trial.predicted_gain_seconds > 0 and measured < DISAPPOINTING * trial.predicted_gain_seconds
        self._patience = min(2 * self._patience, LONGEST_PATIENCE) if disappointed else 1
        self._trial = None


def _stages(window: Sequence[_Observation], current: Epoch, facts: TopologyFacts) -> list[Stage]:
    """The stages that may be re-routed, with what the window says of them."""
    n_slots = len(facts.declared_cpu)
    present = current.placement.present if current.placement else tuple(range(n_slots))
    stages: list[Stage] = []
    together: dict[tuple[str, tuple[int, ...]], list[TableStage]] = {}
    if facts.source_by_share and not all(seen.source_is_hidden for seen in window[-FEW_BATCHES:]):
        rows = float(np.mean([seen.source_rows for seen in window]))
        in_force = [current.source_shares[slot] for slot in present] if current.source_shares else None
        stages.append(ShareStage(SOURCE, present, rows, _shares(in_force, len(present))))
    for name, route in current.routes.items():
        reports = [report for seen in window for report in seen.reports if report.operator == name]
        if not reports:
            continue
        homes = tuple(current.placement.home(i) if current.placement else i % n_slots for i in route.instances)
        planner = facts.planners.get(name)
        if planner is not None and route.table is not None:
            under_it = [report for seen in window for report in seen.reports if seen.epoch == current.number]
            of_now = [report for report in under_it if report.operator == name]
            stage = TableStage(name, route, homes, reports, of_now, len(window), planner)
            if planner in JOINT_PLANNERS:
                together.setdefault((planner, route.instances), []).append(stage)
            else:
                stages.append(stage)
        elif name in facts.choosers:
            rows = sum(report.rows for report in reports) / len(window)
            shares = _shares(route.options.get("capacities"), len(route.instances))
            stages.append(ShareStage(name, homes, rows, shares))
    return [*stages, *(JointStage(tuple(operators), planner) for (planner, _), operators in together.items())]


def _names(stage: Stage) -> list[str]:
    """The operators (or the source) that the stage consists of."""
    return [operator.name for operator in stage.operators] if isinstance(stage, JointStage) else [stage.name]


def _shares(weights: object, count: int) -> npt.NDArray[np.float64]:
    """Published weights as shares; equal ones where none have been published for this many."""
    published = np.asarray(weights or (), np.float64)
    return published / published.sum() if len(published) == count else np.full(count, 1 / count)


def _next_epoch(current: Epoch, remedies: Mapping[str, Remedy], reason: str) -> Epoch:
    routes, source_shares = _remedied(current, remedies)
    return Epoch(current.number + 1, routes, source_shares, reason, current.placement)


def _remedied(epoch: Epoch, remedies: Mapping[str, Remedy]) -> tuple[dict[str, Route], tuple[float, ...]]:
    """The epoch's routes and source shares with the remedies in place of what they are for."""
    routes = dict(epoch.routes)
    source_shares = epoch.source_shares
    for name, remedy in remedies.items():
        if name == SOURCE:
            source_shares = _by_slot(remedy.shares, epoch.placement)
        elif remedy.plans:
            routes |= {operator: replace(routes[operator], table=plan.table) for operator, plan in remedy.plans.items()}
        else:
            routes[name] = replace(routes[name], options={**routes[name].options, "capacities": list(remedy.shares)})
    return routes, source_shares


def _by_slot(shares: tuple[float, ...], placement: Placement | None) -> tuple[float, ...]:
    """Shares of the slots that are there, by slot number; none for slots that are gone."""
    if placement is None:
        return shares
    of_slot = dict(zip(placement.present, shares, strict=True))
    return tuple(of_slot.get(slot, 0.0) for slot in range(len(placement.slots)))


def _stage_list(names: list[str]) -> str:
    return "the source" if names == [SOURCE] else ", ".join(names)
