"""Judge drivers' answers: what each controller proposes, how many executors each autoscaler wants. Pure but for the clocks.

The controller here is the one that runs in the driver on one machine (`routing.control`), fed from `/stats` instead of from
memory. So a topology is balanced alike in both places.

This is the one module of the operator that loads numba and METIS. `process` runs it apart from the event loop: one process
reads answers and keeps windows, others make plans.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from streamtopology.contract.reasons import Hold
from streamtopology.contract.routing_configmap import LARGEST_EPOCH, pack
from streamtopology.contract.stats import Stats, StatsFormatError, read_stats
from streamtopology.contract.stats_question import Question
from streamtopology.k8s.decide.answers import Gain, Judged, Judgement, PlanningRequest, Scaling
from streamtopology.routing.control import autoscaler
from streamtopology.routing.control.assessment import Assessment
from streamtopology.routing.control.autoscaler import BatchLoad, ClassLoad, History
from streamtopology.routing.control.class_choice import ClassHistory, decide_classes, options_of
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.control.decisions import Decision, Outcome, Proposal, Recommend, TopologyFacts
from streamtopology.routing.control.feed import Feed
from streamtopology.routing.control.next_epoch import with_remedies
from streamtopology.routing.control.observed import ObservedBatch
from streamtopology.routing.control.stages import Remedy
from streamtopology.routing.control.timings import Timings
from streamtopology.routing.epochs.epoch import Epoch, EpochFormatError
from streamtopology.routing.load.load_report import ReportFormatError
from streamtopology.topology import Autoscale

# The autoscaler's window of load; at most `MOST_BATCHES` batches of it.
SCALING_SECONDS = 60.0

MOST_BATCHES = 256

# Measured gains in an answer, the newest: status has fewer.
MOST_GAINS = 16


Remedies = Mapping[str, Remedy]


def plan(assessment: Assessment) -> Remedies:
    """The remedies of an assessment. StatsFormatError: the driver's loads are damaged."""
    try:
        return assessment.remedies()
    except ReportFormatError as damage:
        raise StatsFormatError(str(damage)) from damage


@dataclass
class Judging:
    """The controller and the autoscaler of one topology, fed with the same batches."""

    controller: Controller
    scaler: Scaler
    feed: Feed
    current: Epoch | None = None
    pending: Pending | None = None

    def read_routing(self, stats: Stats) -> None:
        """Take the routing of an answer, unless it is known: then the answer does not have it. StatsFormatError."""
        if stats.routing is None:
            return
        try:
            self.current = Epoch.from_wire(stats.routing)
        except EpochFormatError as damage:
            raise StatsFormatError(f"routing: {damage}") from damage


@dataclass(frozen=True)
class Pending:
    """An answer whose assessment is being judged: all that the judgement goes along with."""

    assessment: Assessment
    began: float
    read: Judged
    request: PlanningRequest


class Judge:
    """One controller and one autoscaler for each topology, by its uid."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._clock = clock
        self._topologies: dict[str, Judging] = {}

    def judge(self, uid: str, answer: bytes, request: PlanningRequest) -> Judged:
        """Observe the batches in the answer that are new, then judge, if that is allowed. StatsFormatError."""
        read = self.read(uid, answer, request)
        while isinstance(read, Assessment):
            read = self.conclude(uid, plan(read))
        return read

    def read(self, uid: str, answer: bytes, request: PlanningRequest) -> Judged | Assessment:
        """The first half of `judge`, which takes milliseconds: a judgement, or what is to be planned for one."""
        try:
            stats = read_stats(json.loads(answer), request.topology)
        except (json.JSONDecodeError, RecursionError) as error:
            raise StatsFormatError(f"the answer is not JSON: {error}") from error
        topology = self._topology(uid, stats.batch, request)
        topology.pending = None
        topology.read_routing(stats)
        topology.scaler.hear(stats.answered_at, self._clock())
        try:
            topology.feed.take_stats(stats)
            return self._judged_or_due(topology, stats, request)
        except ReportFormatError as damage:
            raise StatsFormatError(str(damage)) from damage

    def _judged_or_due(self, topology: Judging, stats: Stats, request: PlanningRequest) -> Judged | Assessment:
        outcomes = topology.controller.outcomes[-MOST_GAINS:]
        gains = tuple(_gain(outcome) for outcome in outcomes if outcome.batch_seconds_before > 0)
        read = Judged(stats.without_reports(), gains=gains, known=self._known(topology))
        if not request.may_judge or not stats.settled or topology.current is None:
            return read
        began = self._clock()
        routes = topology.current.routes
        facts = TopologyFacts.of(
            routes, stats.cpu, request.by_share, request.operators, stats.part_seconds, free_bytes=stats.free_bytes
        )
        due = topology.controller.begin(began, topology.current, facts)
        if not isinstance(due, Assessment):
            return self._with_judgement(topology, read, request, due, began)
        if (quiet := due.if_quiet()) is None:
            topology.pending = Pending(due, began, read, request)
            return due
        return self._with_judgement(topology, read, request, topology.controller.conclude(began, due, quiet), began)

    def conclude(self, uid: str, remedies: Remedies) -> Judged | Assessment:
        """The second half of `judge`, by the remedies of the assessment.

        Returns an assessment for smaller tables if these make an epoch that is too large for a ConfigMap. KeyError: none is
        pending of that topology.
        """
        topology = self._topologies[uid]
        pending, topology.pending = topology.pending, None
        if pending is None:
            raise KeyError(uid)
        smaller = pending.assessment.with_fewer_entries()
        if smaller is not None and not _fits(with_remedies(pending.assessment.current, remedies)):
            topology.pending = replace(pending, assessment=smaller)
            return smaller
        decision = topology.controller.conclude(self._clock(), pending.assessment, remedies)
        return self._with_judgement(topology, pending.read, pending.request, decision, pending.began)

    def _with_judgement(
        self, topology: Judging, read: Judged, request: PlanningRequest, decision: Decision, began: float
    ) -> Judged:
        judgement = self._judgement(topology.controller, decision, read.stats.generation or 0, request, began)
        return replace(read, judgement=judgement, scaling=topology.scaler.judge(read.stats, request, self._clock()))

    @staticmethod
    def _known(topology: Judging) -> Question:
        """The next question to the driver: for all that is not known yet."""
        routing = topology.current.number if topology.current is not None else None
        return Question(topology.feed.newest, as_observed=True, routing=routing)

    def forget(self, uid: str) -> None:
        self._topologies.pop(uid, None)

    def _topology(self, uid: str, newest_batch: int | None, request: PlanningRequest) -> Judging:
        """The topology's controller and autoscaler; new ones for another checkpoint, which counts its batches from 0."""
        known = self._topologies.get(uid)
        if known is None or (newest_batch is not None and newest_batch < known.feed.newest):
            controller, scaler = Controller(request.rebalance, self._clock), Scaler()
            known = self._topologies[uid] = Judging(controller, scaler, Feed(controller, scaler))
        known.controller.configure(request.rebalance)
        known.scaler.configure(request.autoscale)
        return known

    def _judgement(
        self, controller: Controller, decision: Decision, generation: int, request: PlanningRequest, began: float
    ) -> Judgement:
        if isinstance(decision, Hold):
            judged = Judgement("hold", decision, generation)
            if request.rebalance.mode == "Off":
                return judged  # nothing is judged any more: the last verdict is of another time
        else:
            kind = "recommend" if isinstance(decision, Recommend) else "reroute"
            judged = _proposed(kind, decision, generation, self._clock() - began)
        return replace(judged, verdict=controller.verdict, imbalance=controller.imbalance)


@dataclass(frozen=True)
class _Busy:
    """The timings of a batch, packed. `committed_at`: by our clock."""

    committed_at: float
    seconds: float
    timings: Timings


class Scaler:
    """The built-in autoscaler of one topology: its window of batches and its history. It keeps none unless it is to scale.

    The driver's host may have another time of day than ours. So each batch is dated by its age in the driver's answer.
    """

    def __init__(self) -> None:
        self._scales = False
        self._scaled: tuple[str, ...] = ()
        self._ahead = 0.0
        self._batches: deque[_Busy] = deque(maxlen=MOST_BATCHES)
        self._history: History = ()
        self._class_history: ClassHistory = ()
        self._judged_at = -math.inf

    def configure(self, autoscale: Autoscale | None) -> None:
        """Keep batches from now on, or none any more. Numbers in the histories are of the classes that they were made for."""
        self._scales = autoscale is not None and autoscale.by == "Operator"
        if not self._scales:
            self._batches.clear()
        scaled = tuple(one.name for one in autoscale.scaled) if autoscale is not None else ()
        if scaled != self._scaled:
            self._scaled, self._history, self._class_history = scaled, (), ()

    def hear(self, answered_at: float, now: float) -> None:
        """An answer came `now`, by our clock; it was given at `answered_at`, by the driver's."""
        self._ahead = now - answered_at

    def observe(self, batch: ObservedBatch) -> None:
        if not self._scales:
            return
        committed_at = batch.committed_at + self._ahead
        self._batches.append(_Busy(committed_at, batch.seconds, batch.timings))
        while self._batches[0].committed_at <= committed_at - SCALING_SECONDS:
            self._batches.popleft()

    def judge(self, stats: Stats, request: PlanningRequest, now: float) -> Scaling | None:
        """The wanted replicas, at most once in the controller's interval; None in between, and where someone else scales."""
        settings = request.autoscale
        if settings is None or settings.by != "Operator" or now - self._judged_at < request.rebalance.interval_seconds:
            return None
        classes = self._loads(stats, request, now)
        if classes is None:
            return None
        self._judged_at = now
        return self._decide(now, classes, stats, request)

    def _decide(self, now: float, classes: Mapping[str, ClassLoad], stats: Stats, request: PlanningRequest) -> Scaling:
        settings = request.autoscale
        assert settings is not None
        wanted = sum(one.replicas for one in request.executors if one.name in settings.start)
        rate = stats.rows_per_second or 0.0
        given = autoscaler.ScalingInput(now, wanted, classes, rate, _lag(stats), _crowded(stats))
        if not settings.classes:
            decision = autoscaler.decide(given, settings, self._history)
            self._history = decision.history
            return Scaling({settings.executor_class: decision.replicas}, decision.reason)
        options, priced = options_of(settings, request.executors, classes)
        chosen = decide_classes(given, options, settings, self._class_history, priced)
        self._class_history = chosen.history
        return Scaling(chosen.replicas, chosen.reason)

    def _loads(self, stats: Stats, request: PlanningRequest, now: float) -> Mapping[str, ClassLoad] | None:
        """The load of each class, none at all in an idle stream; None where it is not known, as in a long batch."""
        assert request.autoscale is not None
        recent = [
            BatchLoad(batch.committed_at, batch.seconds, batch.timings)
            for batch in self._batches
            if batch.committed_at > now - SCALING_SECONDS
        ]
        if not recent:
            is_idle = stats.idle_seconds is not None and not stats.lag_rows
            absent = {one.name: 0 for one in request.autoscale.classes}
            return autoscaler.idle_loads({**absent, **stats.slots_by_class}) if is_idle else None
        if max(int(batch.timings.table["slot"].max(initial=0)) for batch in recent) >= len(stats.cpu):
            return None  # these batches ran on more executors than there are now
        return self._with_absent(autoscaler.loads(recent, stats.present_classes, stats.cpu, now), stats, request)

    @staticmethod
    def _with_absent(known: Mapping[str, ClassLoad], stats: Stats, request: PlanningRequest) -> Mapping[str, ClassLoad]:
        """`known`, and the scaled classes without executors: by their CPU, of which a core does as much as on average."""
        assert request.autoscale is not None
        scaled = [one for one in request.executors if one.name in request.autoscale.start]
        return {**{one.name: ClassLoad(0, 0.0, one.cpu / max(stats.cpu)) for one in scaled}, **known}


def _lag(stats: Stats) -> float | None:
    """The rows that wait beyond one batch, as many as wait in an ordinary stream, too; None where no source reports any."""
    if stats.lag_rows is None:
        return None
    return float(max(stats.lag_rows - (stats.last_batch.rows if stats.last_batch else 0), 0))


def _fits(epoch: Epoch) -> bool:
    return len(pack(epoch.to_json())) <= LARGEST_EPOCH


def _gain(outcome: Outcome) -> Gain:
    before = outcome.batch_seconds_before
    return Gain(outcome.epoch, outcome.predicted_gain_seconds / before, outcome.measured_gain_seconds / before)


def _proposed(kind: Literal["recommend", "reroute"], proposal: Proposal, generation: int, seconds: float) -> Judgement:
    plans = proposal.plans.values()
    return Judgement(
        kind=kind,
        reason=proposal.reason,
        generation=generation,
        number=proposal.epoch.number,
        packed=pack(proposal.epoch.to_json()),
        stages=tuple(sorted(proposal.plans)),
        predicted_gain_seconds=proposal.predicted_gain_seconds,
        cost_seconds=proposal.cost_seconds,
        moved_keys=round(sum(plan.moved_keys_estimate for plan in plans)),
        moved_bytes=round(sum(plan.moved_bytes for plan in plans)),
        plan_seconds=seconds,
    )


def _crowded(stats: Stats) -> float:
    """The share of the room for state that it takes at all executors together; 0 where no memory has a limit."""
    return sum(one.state_bytes for one in stats.memory) / max(sum(one.room_bytes for one in stats.memory), 1)
