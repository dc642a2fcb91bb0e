"""The control loop in the driver's process: watches committed batches, publishes epochs, keeps their history.

Planning must not delay a batch, and a plan must not take effect in the middle of one. So an epoch has two steps. It is
*ready* when its whole plan is in the checkpoint. It is *active* from the first batch record that names it. The driver
takes the newest ready epoch at each batch boundary, and nothing waits for an epoch.

A crash between the two steps is harmless: the next start finds the plan complete, or not at all. On Kubernetes the operator
plans and `pods.configmap_follower` takes this module's place.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import PARTIAL, SOURCE, EpochCause, EpochReason, Hold, HoldReason, RemedyKind
from streamtopology.contract.stats import Slot
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.exchange.learning import messages
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.initial_routes import first_routes, measured_routes
from streamtopology.jobs.rerouting.epoch_ledger import EpochLedger
from streamtopology.jobs.rerouting.gradual import portion_bytes
from streamtopology.jobs.rerouting.port import CommittedAttempt
from streamtopology.jobs.rerouting.precopy import Precopy
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.control.decisions import Decision, PartCosts, Recommend, Reroute, TopologyFacts
from streamtopology.routing.control.feed import CommittedBatch, Feed
from streamtopology.routing.control.part_seconds import PartSeconds
from streamtopology.routing.control.slot_model import SlotModel, bound
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.epochs.rescaling import class_of, instances_of, most_instances, rescaled_shares, slot_names
from streamtopology.routing.planners.plan import Splitting
from streamtopology.routing.planners.split import scouts_beyond
from streamtopology.routing.table.pouring import Pace
from streamtopology.topology import Topology


class InProcessRouter:
    """Implements the driver's `Router`. `clock` is monotonic seconds; `declared_cpu` cores of the slots by name.

    Unless it `decides`, it only measures, and its epochs come from callers of `apply` and `publish`.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        checkpoint: Checkpoint,
        controller: Controller,
        history: History,
        declared_cpu: Callable[[], Mapping[str, float]],
        clock: Callable[[], float],
        decides: bool = True,
        precopy: Precopy | None = None,
    ) -> None:
        self._ready = plan
        self._active = plan
        self._checkpoint = checkpoint
        self._controller = controller
        self._feed = Feed(controller)
        self._history = history
        self._declared_cpu = declared_cpu
        self._clock = clock
        self._decides = decides
        self._precopy = precopy or Precopy(checkpoint, None, lambda text: None, clock)
        self._prepared: ExecutionPlan | None = None
        self._arrived: frozenset[str] = frozenset()
        self._awaiting_flush: ExecutionPlan | None = None
        self._ledger = EpochLedger(history, clock)
        self._last_notice = ""
        self._rows_per_source_row: dict[str, float] = {}
        self._rows: dict[str, float] = {}
        self._part_seconds = PartSeconds()
        self._model: SlotModel | None = None
        self._bound = 0.0
        self._bound_looked_for_at = -math.inf
        self._lock = threading.Lock()
        self._deciding = threading.Lock()  # one new epoch at a time: `apply` comes from another thread
        checkpoint.write_epoch(plan.epoch.number, plan.to_json())
        self._show_slots()

    @property
    def topology(self) -> Topology:
        """The newest topology applied; its plan may wait for partials to be flushed."""
        return self.newest().topology

    @property
    def epoch(self) -> Epoch:
        return self._active.epoch

    def ready(self) -> ExecutionPlan:
        prepared = self._prepared
        if prepared is not None and self._precopy.poll():
            with self._lock:
                if self._prepared is prepared:
                    self._ready, self._prepared = prepared, None
        with self._lock:
            return self._ready

    def must_flush(self) -> bool:
        """True if a plan that no longer splits an edge waits for one batch that flushes the partials."""
        with self._lock:
            return self._awaiting_flush is not None

    def paces(self, plan: ExecutionPlan) -> Mapping[str, Pace]:
        if self._model is None:
            return {}
        facts = self._facts_of(plan.topology, replace(plan.epoch, placement=plan.placement))
        return paces(plan, facts.splitting, self._model, self._rows)

    def active(self, epoch: int, batch: int) -> None:
        with self._lock:
            self._ledger.active(epoch)
            if self._ready.epoch.number == epoch:
                self._active = self._ready
        self._show_slots()

    def committed(self, done: CommittedAttempt) -> None:
        """Learn from a batch, then decide; a plan that pays becomes the next epoch."""
        batch = _batch(done)
        self._feed.take(batch)
        self._note_rows(done)
        self._model = model = self._controller.model(self._facts())
        self._bound = self._bound_by(model)
        self._note_parts(done)
        self._history.batch_done(batch_outcome(done, model, self._bound))
        self._ledger.committed(done)
        self._ledger.note_gains(self._controller.outcomes)
        with self._deciding:
            changing = self._is_changing(flushed=done.attempt.flush) or batch.moving
            if not changing and not self._decides:
                self._look_for_the_bound()
            elif not changing and not done.attempt.flush:  # at the end of the input a plan, of seconds, would be for nobody
                self._judge(done)

    def _look_for_the_bound(self) -> None:
        """Find what bounds the batches where an operator judges, as often as that one does."""
        now = self._clock()
        if now - self._bound_looked_for_at >= self._active.topology.rebalance.interval_seconds:
            self._bound_looked_for_at = now
            self._history.bound_by(self._controller.binding(self._active.epoch, self._facts()))

    def _judge(self, done: CommittedAttempt) -> None:
        started = self._clock()
        decision = self._controller.step(started, self._active.epoch, self._facts())
        self._history.judged(_verdict(decision))
        if isinstance(decision, Recommend) or (isinstance(decision, Hold) and not decision.reason.is_waiting):
            self._history.bound_by(self._controller.binding(self._active.epoch, self._facts()))
        if isinstance(decision, Reroute):
            gains = predicted_gains(decision, usual_seconds=max(done.seconds, 1e-9))
            self._publish(self._ready.topology, decision.epoch, self._clock() - started, gains)
        elif isinstance(decision, Recommend):
            self._notify(done, f"recommended: {describe(decision.reason)}")
        elif isinstance(decision, Hold) and decision.reason is HoldReason.NOT_WORTH_COST:
            self._notify(done, describe(decision))

    def apply(self, topology: Topology, changes: Sequence[str]) -> int:
        """Run `topology`, which needs no restart, from the next batch on. Returns the new epoch's number.

        `changes`: a sentence for each change. Slots that it no longer has are drained; new ones take part once their executors
        have arrived.
        """
        with self._deciding:
            former = self.topology.rebalance
            self._controller.configure(topology.rebalance)
            try:
                return self._change_to(topology, EpochReason(EpochCause.APPLIED, changes=tuple(changes)))
            except BaseException:
                self._controller.configure(former)
                raise

    def arrived(self, slots: Collection[str]) -> None:
        """Include executors that the topology waited for, and drop instances that a restart had kept."""
        with self._deciding:
            self._arrived = frozenset(slots)
            newest = self.newest()
            now = _taking_part(newest.topology, newest.placement, self._arrived)
            placed = frozenset(newest.placement.names)
            if joined := [name for name in now if name not in placed]:
                self._change_to(newest.topology, EpochReason(EpochCause.JOINED, slots=tuple(joined)))
            elif not _is_as_asked(newest):
                self._change_to(newest.topology, EpochReason(EpochCause.DRAINED))

    def awaited(self) -> tuple[str, ...]:
        """Return the slots of the topology whose executors have not arrived yet."""
        newest = self.newest()
        placed = frozenset(newest.placement.names)
        return tuple(name for name in slot_names(newest.topology) if name not in placed)

    def newest(self) -> ExecutionPlan:
        """Return the newest published plan, which may wait for a flush of partials or for its pre-copy."""
        return self._awaiting_flush or self._prepared or self._ready

    def _change_to(self, topology: Topology, reason: EpochReason) -> int:
        """Publish an epoch for `topology` on the slots whose executors take part."""
        before = self._ready
        names = _taking_part(topology, before.placement, self._arrived)
        placement = before.placement.rescaled(names, most_instances(topology, len(names)))
        dag = replace(before, topology=topology).compile()
        routes = first_routes(dag, topology, measured_routes(before), placement, len(names))
        number = 1 + max(self._checkpoint.epochs())
        shares = rescaled_shares(before.epoch.source_shares, before.placement, placement)
        epoch = Epoch(number, routes, shares, reason, placement)
        started = self._clock()
        if placement != before.placement or _instances(epoch) != _instances(before.epoch):
            epoch = self._controller.fit_epoch(epoch, self._facts_of(topology, epoch))
        self._publish(topology, epoch, self._clock() - started, {})
        return number

    def publish(self, epoch: Epoch, prepared: bool = False) -> None:
        """Run under `epoch`, made outside the controller, from the next batch on; its number is above the newest one's.

        Its placement may be missing: that is decided here. One that is only `prepared` runs after its pre-copy. Raises
        ValueError if it does not follow the newest epoch, or does not fit the running topology.
        """
        with self._deciding:
            newest = self.newest()
            if epoch.number <= newest.epoch.number:
                raise ValueError(f"epoch {epoch.number} cannot be published: epoch {newest.epoch.number} exists already")
            if (why := newest.misfit(epoch)) is not None:
                raise ValueError(why)
            self._publish(newest.topology, replace(epoch, placement=newest.placement), 0.0, {}, prepared)

    def withdraw(self) -> int | None:
        """Give up the epoch that is only prepared; returns its number, None where there is none.

        Batches are routed as before, by an epoch of their own: the next plan is numbered after the newest, and the number of
        the one that was given up is taken in the checkpoint.
        """
        with self._deciding:
            prepared, ready = self._prepared, self._ready
            if prepared is None:
                return None
            given_up = prepared.epoch.number
            reason = EpochReason(EpochCause.WITHDRAWN, epoch=given_up)
            number = 1 + max(self._checkpoint.epochs())
            epoch = replace(ready.epoch, number=number, reason=reason, placement=ready.placement)
            self._publish(ready.topology, epoch, 0.0, {})
            return given_up

    def bound(self) -> float:
        """Return the source rows/s of a perfect division by the capacities after the last batch; 0 before the first."""
        return self._bound

    def _bound_by(self, model: SlotModel | None) -> float:
        if model is None or not self._rows_per_source_row:
            return 0.0
        known = {stage: rows for stage, rows in self._rows_per_source_row.items() if stage in model.rates}
        return bound(model, known, self._active.placement.present).rows_per_second

    def run_prepared(self, number: int) -> None:
        """Let the prepared epoch of this number run now, copied or not."""
        with self._lock:
            if self._prepared is not None and self._prepared.epoch.number == number:
                self._precopy.close()
                self._ready, self._prepared = self._prepared, None

    def _publish(
        self, topology: Topology, epoch: Epoch, plan_seconds: float, gains: Mapping[str, float], prepared: bool = False
    ) -> None:
        """Save an epoch, then make it ready: only when the checkpoint holds all of it.

        An epoch that moves much state is only prepared. It supersedes an earlier plan that is not ready yet.
        """
        published_at = self._clock()
        self._history.bound_by(None)
        plan = replace(self._ready, topology=topology, epoch=epoch)
        self._checkpoint.write_epoch(epoch.number, plan.to_json())
        self._precopy.give_up()
        keeps_partials = _keeps_partials(self._ready, plan)
        large = prepared or (self._precopy.start is not None and self._precopy.is_large(self._ready, plan))
        is_prepared = keeps_partials and large and self._precopy.begin(self._ready, plan)
        with self._lock:
            self._ledger.published(epoch, published_at, plan_seconds, gains)
            self._awaiting_flush = None if keeps_partials else plan
            self._prepared = plan if is_prepared else None
            if keeps_partials and not is_prepared:
                self._ready = plan

    def _is_changing(self, flushed: bool) -> bool:
        """True if a plan is about to become active; one that waited for partials is ready once they are `flushed`."""
        with self._lock:
            if self._awaiting_flush is not None and flushed:
                self._ready, self._awaiting_flush = self._awaiting_flush, None
            return bool(self._awaiting_flush or self._prepared) or self._ready is not self._active

    def _facts(self) -> TopologyFacts:
        return self._facts_of(self._ready.topology, replace(self._ready.epoch, placement=self._ready.placement))

    def _facts_of(self, topology: Topology, epoch: Epoch) -> TopologyFacts:
        by_share = all(source.reads_descriptors for source in topology.sources)
        slots, present = (epoch.placement.slots, epoch.placement.present) if epoch.placement else ((), ())
        return TopologyFacts.of(
            epoch.routes,
            self._cpu_of(slots),
            by_share,
            topology.operators,
            self._part_seconds.estimates(),
            portion_bytes(topology, len(present)),
        )

    def _cpu_of(self, slots: Sequence[str]) -> tuple[float, ...]:
        """Return the cores per slot number; 1 for a slot that is gone, which no plan uses."""
        declared = self._declared_cpu()
        return tuple(declared.get(slot, 1.0) for slot in slots)

    def _show_slots(self) -> None:
        placement = self._active.placement
        cpu = self._cpu_of(placement.slots)
        self._history.slots_are(
            Slot(number, name, class_of(name), cpu[number], number in placement.present)
            for number, name in enumerate(placement.slots)
        )

    def _note_rows(self, done: CommittedAttempt) -> None:
        if not done.rows:
            return
        rows: dict[str, float] = {SOURCE: 1.0}
        for result in done.results.instances:
            rows[result.report.operator] = rows.get(result.report.operator, 0.0) + result.report.rows / done.rows
        self._rows_per_source_row = rows
        self._rows = {name: per_row * done.rows for name, per_row in rows.items()}

    def _note_parts(self, done: CommittedAttempt) -> None:
        self._part_seconds.keep(self._active.epoch.routes)
        reports = (result.report for result in done.results.instances)
        self._part_seconds.measure(reports, None if self._model is None else self._model.speeds)
        self._history.part_seconds = self._part_seconds.estimates()

    def _notify(self, done: CommittedAttempt, text: str) -> None:
        if text != self._last_notice:
            self._last_notice = text
            self._history.event(done.started_at, done.attempt.number, text)


def predicted_gains(decision: Reroute, usual_seconds: float) -> dict[str, float]:
    """Predicted gains by stage, as shares of a usual batch; what no plan saves is by stages that get rows in other shares."""
    saved = {name: plan.predicted_seconds_before - plan.predicted_seconds_after for name, plan in decision.plans.items()}
    shared = [stage.stage for stage in decision.reason.stages if stage.kind is RemedyKind.SHARES]
    rest = decision.predicted_gain_seconds - sum(saved.values())
    saved |= {name: rest / len(shared) for name in shared}
    return {name: seconds / usual_seconds for name, seconds in saved.items()}


def _verdict(decision: Decision) -> Hold | EpochReason | None:
    """The decision as the history keeps it: of a re-routing that is made, the epoch itself is kept."""
    match decision:
        case Hold():
            return decision
        case Recommend():
            return decision.reason
        case Reroute():
            return None


def _batch(done: CommittedAttempt) -> CommittedBatch:
    """Return the batch as the controller needs it."""
    attempt, reports = done.attempt, [result.report for result in done.results.instances]
    return CommittedBatch(
        number=attempt.number,
        epoch=attempt.epoch,
        seconds=done.seconds,
        reports=reports,
        source_reports=done.results.sources,
        moving=attempt.switch is not None,
        remote_seconds=done.results.remote_seconds,
    )


def _taking_part(topology: Topology, placement: Placement, arrived: Collection[str]) -> tuple[str, ...]:
    """Return the slots of the topology whose executors take part or have arrived; if there are none, the old slots."""
    known = {*placement.names, *arrived}
    return tuple(name for name in slot_names(topology) if name in known) or placement.names


def _is_as_asked(plan: ExecutionPlan) -> bool:
    """True if every operator has exactly the instances that the topology demands on the slots that take part."""
    topology, placement = plan.topology, plan.placement
    return all(
        route.instances
        == placement.instances(instances_of(topology.operator(node.removesuffix(PARTIAL)), len(placement.present)))
        for node, route in plan.epoch.routes.items()
    )


def _instances(epoch: Epoch) -> dict[str, tuple[int, ...]]:
    return {node: route.instances for node, route in epoch.routes.items()}


def _keeps_partials(before: ExecutionPlan, after: ExecutionPlan) -> bool:
    """True if every instance of a partial node that may hold tuples back exists afterwards, too."""
    left = _instances(after.epoch)
    holding = [node.name for node in before.compile().nodes if node.is_partial and node.flush_every > 1]
    return all(set(before.epoch.routes[name].instances) <= set(left.get(name, ())) for name in holding)


def batch_outcome(done: CommittedAttempt, model: SlotModel | None, bound: float = 0.0) -> BatchOutcome:
    """Return the batch's outcome, with each instance's capacity where `model` knows it, and the capacity `bound`."""
    reports = tuple(result.report for result in done.results.instances)
    capacities: dict[tuple[str, int], float] = {}
    for report in reports:
        if model is not None and report.operator in model.rates:
            capacities[report.operator, report.instance] = float(model.rates[report.operator][report.slot])
    return BatchOutcome(
        number=done.attempt.number,
        attempt=done.attempt.attempt,
        epoch=routing_epoch(done),
        rows=done.rows,
        seconds=done.seconds,
        committed_at=done.started_at + done.seconds,
        reports=reports,
        source_reports=tuple(done.results.sources),
        capacities=capacities,
        messages=messages(done.results.learning_reports),
        rows_out=_rows_out(done),
        moving=done.attempt.switch is not None,
        bound=bound,
        remote_seconds=done.results.remote_seconds,
        steps=done.steps,
        memory=done.results.memory,
    )


def _rows_out(done: CommittedAttempt) -> dict[str, int]:
    """Return the rows that the batch gave to each sink."""
    rows: dict[str, int] = {}
    for result in done.results.instances:
        for sink, count in result.rows_out.items():
            rows[sink] = rows.get(sink, 0) + count
    return rows


def routing_epoch(done: CommittedAttempt) -> int:
    """Return the newest epoch that routed all keys of the batch."""
    return done.attempt.epoch if done.attempt.switch is None else done.attempt.switch.follows


def paces(
    plan: ExecutionPlan, splitting: Mapping[str, PartCosts], model: SlotModel, rows: Mapping[str, float]
) -> dict[str, Pace]:
    """Return the paces of the nodes of `splitting` that `model` knows on all their slots; `rows`: of a batch, by node."""
    known: dict[str, Pace] = {}
    for node, costs in splitting.items():
        instances = plan.epoch.routes[node].instances
        slots = np.array([plan.placement.slot_of(instance) for instance in instances])
        if node not in model.rates or slots.min() < 0 or slots.max() >= len(model.speeds):
            continue
        capacities, fixed = model.of_instances(node, slots)
        if not (np.isfinite(capacities).all() and np.isfinite(fixed).all() and capacities.min() > 0):
            continue
        price = Splitting(costs.seconds * model.base_rates[node], costs.apart)
        beyond = scouts_beyond(rows.get(node, 0.0), capacities, fixed, price)
        at = list(instances)
        of_instance, fixed_of = np.zeros(instances[-1] + 1), np.zeros(instances[-1] + 1)
        of_instance[at], fixed_of[at] = capacities, np.maximum(fixed, 0.0)
        known[node] = Pace(of_instance, fixed_of, scouts_beyond=beyond)
    return known
