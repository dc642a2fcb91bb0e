"""The control loop inside the driver's process: watches committed batches, publishes epochs, keeps their history.

An epoch is *ready* when its plan is in the checkpoint, and *active* from the first batch record that names it. The
driver takes the newest ready one at each batch boundary; nothing waits for it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from streamtopology.jobs.batch import Plan
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.dag import PARTIAL, Dag
from streamtopology.jobs.driver import Committed
from streamtopology.jobs.history import BatchOutcome, History, Reconfiguration, SlotInfo
from streamtopology.jobs.learning import messages
from streamtopology.jobs.preparing import Preparing
from streamtopology.jobs.stages import Results
from streamtopology.routing import groupings
from streamtopology.routing.capacity import SOURCE, SlotModel, bound
from streamtopology.routing.controller import Controller, Nothing, Recommend, Reroute, TopologyFacts
from streamtopology.routing.epoch import Epoch, Route
from streamtopology.routing.placement import Placement
from streamtopology.routing.rescaling import class_of, instances_of, most_instances, rescaled_shares, slot_names
from streamtopology.routing.topology import Topology


def first_routes(
    dag: Dag, topology: Topology, before: Mapping[str, Route], placement: Placement, executors: int
) -> dict[str, Route]:
    """Routes of every node while `executors` take part: as `before` where its table still fits, else hashing.

    Over other instances than before only what must move moves.
    """
    routes: dict[str, Route] = {}
    for node in dag.nodes:
        operator = topology.operator(node.operator)
        instances = placement.instances(instances_of(operator, executors))
        options = _fitting(operator.grouping.options, instances)
        known = before.get(node.name)
        table = groupings.get(node.policy).first_table(instances, options)
        if known is not None and known.table is not None and table is not None and _goes_on(known, node.policy, options):
            table = known.table if known.instances == instances else known.table.rescaled(instances)
        routes[node.name] = Route(node.policy, table, instances, options)
    return routes


def with_instances(route: Route, others: Collection[int]) -> Route:
    """The route with `others` active, too."""
    both = tuple({*route.instances, *others})
    return replace(route, instances=both, options=_fitting(route.options, both))


def _fitting(options: Mapping[str, object], instances: Sequence[int]) -> Mapping[str, object]:
    """The options without capacities for another number of instances: while executors are starting they are equal."""
    capacities = options.get("capacities")
    if isinstance(capacities, list | tuple) and len(capacities) != len(instances):
        return {name: value for name, value in options.items() if name != "capacities"}
    return options


def _goes_on(known: Route, policy: str, options: Mapping[str, object]) -> bool:
    """Whether the table of `known` serves under `policy`: plain hashing starts anew from any other, virtual workers from
    another number of them."""
    kind = groupings.get(policy).kind
    if groupings.get(known.policy).kind != kind or (policy == "fields" and known.policy != policy):
        return False
    return kind != "virtual" or known.options.get("virtualWorkers") == options.get("virtualWorkers")


@dataclass
class _Published:
    """A published epoch until its gain is known."""

    plan: Plan
    reason: str
    published_at: float
    plan_seconds: float
    predicted_gain: Mapping[str, float]
    active_after: float | None = None


@dataclass
class _Moved:
    """What has moved, by node, since a batch was first routed by `epoch`."""

    epoch: int
    first_batch: int
    batches: int = 0
    keys: Counter[str] = field(default_factory=Counter[str])
    bytes: Counter[str] = field(default_factory=Counter[str])

    def add(self, results: Results) -> None:
        self.batches += 1
        self.keys.update(results.keys_moved)
        self.bytes.update(results.bytes_moved)


class InProcessRouter:
    """Implements the driver's `Router`. `clock` is monotonic seconds; `declared_cpu` cores of the slots by name.

    Unless it `decides`, it only measures, and its epochs come from who calls `apply` and `publish`.
    """

    def __init__(
        self, plan: Plan, checkpoint: Checkpoint, controller: Controller, history: History,
        declared_cpu: Callable[[], Mapping[str, float]], clock: Callable[[], float], decides: bool = True,
        preparing: Preparing | None = None,
    ) -> None:  # fmt: skip
        self._ready = plan
        self._active = plan
        self._checkpoint = checkpoint
        self._controller = controller
        self._history = history
        self._declared_cpu = declared_cpu
        self._clock = clock
        self._decides = decides
        self._preparing = preparing or Preparing(checkpoint, None, lambda text: None, clock)
        self._prepared: _Published | None = None
        self._moved: _Moved | None = None
        self._here: frozenset[str] = frozenset()
        self._published: dict[int, _Published] = {}
        self._waiting: _Published | None = None
        self._told = ""
        self._outcomes_seen = 0
        self._rows_per_source_row: dict[str, float] = {}
        self._bound = 0.0
        self._lock = threading.Lock()
        self._deciding = threading.Lock()  # one new epoch at a time: `apply` comes from another thread
        checkpoint.write_epoch(plan.epoch.number, plan.to_json())
        self._show_slots()

    @property
    def topology(self) -> Topology:
        """What was asked for last; a plan of it may wait for partials to hand over."""
        return self.newest().topology

    @property
    def epoch(self) -> Epoch:
        return self._active.epoch

    def ready(self) -> Plan:
        prepared = self._prepared
        if prepared is not None and self._preparing.is_over():
            with self._lock:
                if self._prepared is prepared:
                    self._ready, self._prepared = prepared.plan, None
        with self._lock:
            return self._ready

    def must_flush(self) -> bool:
        """A plan that no longer splits an edge waits one batch, in which the partials hand over what they hold."""
        with self._lock:
            return self._waiting is not None

    def active(self, epoch: int, batch: int) -> None:
        with self._lock:
            published = self._published.get(epoch)
            if published is not None and published.active_after is None:
                published.active_after = self._clock() - published.published_at
            if self._ready.epoch.number == epoch:
                self._active = self._ready
        self._show_slots()

    def committed(self, done: Committed) -> None:
        """Learn from a batch, then judge; a plan that pays becomes the next epoch."""
        reports = [turned.report for turned in done.results.turns]
        sources = [report for report in done.results.sources if report.slot >= 0]
        moving = done.attempt.switch is not None
        if not moving:
            self._controller.observe(done.attempt.number, done.seconds, reports, sources, done.attempt.epoch)
        self._note_rows(done)
        model = self._controller.model(self._facts())
        self._bound = self._bound_by(model)
        self._history.batch_done(_outcome(done, model))
        self._note_what_moved(done)
        self._note_gains()
        with self._deciding:
            changing = self._is_changing(flushed=done.attempt.flush) or moving
            if not changing and self._decides:
                self._judge(done)

    def _judge(self, done: Committed) -> None:
        started = self._clock()
        decision = self._controller.step(started, self._active.epoch, self._facts())
        if isinstance(decision, Reroute):
            usual = max(done.seconds, 1e-9)
            gains = {
                name: (plan.predicted_seconds_before - plan.predicted_seconds_after) / usual
                for name, plan in decision.plans.items()
            }
            self._publish(self._ready.topology, decision.epoch, self._clock() - started, gains)
        elif isinstance(decision, Recommend):
            self._tell(done, f"recommended: {decision.reason}")
        elif isinstance(decision, Nothing) and decision.reason.startswith("not worth"):
            self._tell(done, decision.reason)

    def apply(self, topology: Topology, why: str) -> int:
        """Run `topology`, which needs no restart, from the next batch on. Returns the new epoch's number.

        Slots that it has no more are drained; those that are new take part when their executors have arrived.
        """
        with self._deciding:
            self._controller.configure(topology.rebalance)
            return self._change_to(topology, why)

    def arrived(self, slots: Collection[str]) -> None:
        """Let executors that the topology has been waiting for take part, and instances go that a restart had kept."""
        with self._deciding:
            self._here = frozenset(slots)
            newest = self.newest()
            now = _taking_part(newest.topology, newest.placement, self._here)
            if joined := [name for name in now if name not in newest.placement.names]:
                self._change_to(newest.topology, f"{', '.join(joined)} joined")
            elif not _is_as_asked(newest):
                self._change_to(newest.topology, "partials that were left over hand over and go")

    def awaited(self) -> tuple[str, ...]:
        """Slots of the topology whose executors have not arrived yet."""
        newest = self.newest()
        return tuple(name for name in slot_names(newest.topology) if name not in newest.placement.names)

    def newest(self) -> Plan:
        """The plan published last, which may wait for partials to hand over or for its state to be copied."""
        not_ready = self._waiting or self._prepared
        return not_ready.plan if not_ready else self._ready

    def _change_to(self, topology: Topology, why: str) -> int:
        """Publish an epoch for `topology` on the slots whose executors take part."""
        before = self._ready
        names = _taking_part(topology, before.placement, self._here)
        placement = before.placement.rescaled(names, most_instances(topology, len(names)))
        dag = replace(before, topology=topology).compile()
        routes = first_routes(dag, topology, before.epoch.routes, placement, len(names))
        number = 1 + max(self._checkpoint.epochs())
        shares = rescaled_shares(before.epoch.source_shares, before.placement, placement)
        epoch = Epoch(number, routes, shares, why, placement)
        started = self._clock()
        if placement != before.placement or _instances(epoch) != _instances(before.epoch):
            epoch = self._controller.fitted(epoch, self._facts_of(topology, epoch))
        self._publish(topology, epoch, self._clock() - started, {})
        return number

    def publish(self, epoch: Epoch, prepared: bool = False) -> None:
        """Run under `epoch`, made by someone else than the controller, from the next batch on. It follows the newest one.

        ValueError: it does not follow it, or does not fit what runs; it need not say the placement, which is decided here.
        One that is only `prepared` runs when its state has been copied.
        """
        with self._deciding:
            newest = self.newest()
            if epoch.number <= newest.epoch.number:
                raise ValueError(f"epoch {epoch.number} cannot be published: epoch {newest.epoch.number} is there already")
            if (why := newest.misfit(epoch)) is not None:
                raise ValueError(why)
            self._publish(newest.topology, replace(epoch, placement=newest.placement), 0.0, {}, prepared)

    def bound(self) -> float:
        """Rows/s of the source that no routing can beat, by the capacities as of the last batch; 0 before any."""
        return self._bound

    def _bound_by(self, model: SlotModel | None) -> float:
        if model is None or not self._rows_per_source_row:
            return 0.0
        known = {stage: rows for stage, rows in self._rows_per_source_row.items() if stage in model.rates}
        return bound(model, known, self._active.placement.present).rows_per_second

    def run_prepared(self, number: int) -> None:
        """The prepared epoch of this number may run now, copied or not."""
        with self._lock:
            if self._prepared is not None and self._prepared.plan.epoch.number == number:
                self._preparing.close()
                self._ready, self._prepared = self._prepared.plan, None

    def _publish(
        self, topology: Topology, epoch: Epoch, plan_seconds: float, gains: Mapping[str, float], prepared: bool = False
    ) -> None:
        """Saved before it is taken: an epoch is ready only when the checkpoint holds all of it.

        What moves much state is only prepared. A plan that was, and is not ready yet, is superseded by this one.
        """
        plan = replace(self._ready, topology=topology, epoch=epoch)
        published = _Published(plan, epoch.reason, self._clock(), plan_seconds, gains)
        self._checkpoint.write_epoch(epoch.number, plan.to_json())
        self._preparing.give_up()
        keeps_partials = _keeps_partials(self._ready, plan)
        large = prepared or (self._preparing.start is not None and self._preparing.is_large(self._ready, plan))
        is_prepared = keeps_partials and large and self._preparing.begin(self._ready, plan)
        with self._lock:
            self._published[epoch.number] = published
            self._waiting = None if keeps_partials else published
            self._prepared = published if is_prepared else None
            if keeps_partials and not is_prepared:
                self._ready = plan

    def _is_changing(self, flushed: bool) -> bool:
        """Whether a plan is about to become active; one that waited for the partials is ready once they have `flushed`."""
        with self._lock:
            if self._waiting is not None and flushed:
                self._ready, self._waiting = self._waiting.plan, None
            return bool(self._waiting or self._prepared) or self._ready is not self._active

    def _facts(self) -> TopologyFacts:
        return self._facts_of(self._ready.topology, replace(self._ready.epoch, placement=self._ready.placement))

    def _facts_of(self, topology: Topology, epoch: Epoch) -> TopologyFacts:
        by_share = all(source.reads_descriptors for source in topology.sources)
        slots = epoch.placement.slots if epoch.placement else ()
        return TopologyFacts.of(epoch.routes, self._cpu_of(slots), by_share)

    def _cpu_of(self, slots: Sequence[str]) -> tuple[float, ...]:
        """Cores per slot number; of a slot that is gone nobody knows, and nothing is planned for it."""
        declared = self._declared_cpu()
        return tuple(declared.get(slot, 1.0) for slot in slots)

    def _show_slots(self) -> None:
        placement = self._active.placement
        cpu = self._cpu_of(placement.slots)
        self._history.slots_are(
            SlotInfo(number, name, class_of(name), cpu[number], number in placement.present)
            for number, name in enumerate(placement.slots)
        )

    def _note_rows(self, done: Committed) -> None:
        if not done.rows:
            return
        rows: dict[str, float] = {SOURCE: 1.0}
        for turned in done.results.turns:
            rows[turned.report.operator] = rows.get(turned.report.operator, 0.0) + turned.report.rows / done.rows
        self._rows_per_source_row = rows

    def _note_what_moved(self, done: Committed) -> None:
        """Tell of a re-routing when all of its state has moved, or when another one has taken its place before."""
        if not done.attempt.hands_over:
            return
        epoch = done.attempt.epoch
        if self._moved is not None and self._moved.epoch != epoch:
            self._tell_of(self._moved)
            self._moved = None
        if self._moved is None:
            self._moved = _Moved(epoch, done.attempt.number)
        self._moved.add(done.results)
        if done.attempt.switch is None:
            self._tell_of(self._moved)
            self._moved = None

    def _tell_of(self, moved: _Moved) -> None:
        published = self._published.get(moved.epoch)
        if published is None:
            return
        changed = set(published.predicted_gain) | {node for node, keys in moved.keys.items() if keys} or {SOURCE}
        for operator in sorted(changed):
            self._history.rerouted(
                Reconfiguration(
                    epoch=moved.epoch,
                    batch=moved.first_batch,
                    operator=operator,
                    reason=published.reason,
                    keys_moved=moved.keys[operator],
                    bytes_moved=moved.bytes[operator],
                    plan_seconds=published.plan_seconds,
                    published_to_active_seconds=published.active_after or 0.0,
                    predicted_gain=published.predicted_gain.get(operator, 0.0),
                    batches=moved.batches,
                )
            )

    def _note_gains(self) -> None:
        for outcome in self._controller.outcomes[self._outcomes_seen :]:
            batches = self._history.batches
            before = [b.seconds for b in batches if b.epoch < outcome.epoch][-8:]
            self._history.gain_measured(outcome.epoch, outcome.measured_gain_seconds / float(np.median(before)))
            self._outcomes_seen += 1

    def _tell(self, done: Committed, text: str) -> None:
        if text != self._told:
            self._told = text
            self._history.event(done.started_at, done.attempt.number, text)


def _epoch_of(done: Committed) -> int:
    """The newest epoch by which all keys of a batch were routed."""
    return done.attempt.epoch if done.attempt.switch is None else done.attempt.switch.follows


def _taking_part(topology: Topology, placement: Placement, here: Collection[str]) -> tuple[str, ...]:
    """The slots of the topology whose executors take part already or have arrived; until one has, those that did."""
    known = {*placement.names, *here}
    return tuple(name for name in slot_names(topology) if name in known) or placement.names


def _is_as_asked(plan: Plan) -> bool:
    """Whether all operators have just the instances that the topology asks for on the slots that take part."""
    topology, placement = plan.topology, plan.placement
    return all(
        route.instances
        == placement.instances(instances_of(topology.operator(node.removesuffix(PARTIAL)), len(placement.present)))
        for node, route in plan.epoch.routes.items()
    )


def _instances(epoch: Epoch) -> dict[str, tuple[int, ...]]:
    return {node: route.instances for node, route in epoch.routes.items()}


def _keeps_partials(before: Plan, after: Plan) -> bool:
    """Whether every instance of a partial node that may hold tuples back is still there afterwards."""
    left = _instances(after.epoch)
    holding = [node.name for node in before.compile().nodes if node.is_partial and node.flush_every > 1]
    return all(set(before.epoch.routes[name].instances) <= set(left.get(name, ())) for name in holding)


def _outcome(done: Committed, model: SlotModel | None) -> BatchOutcome:
    reports = tuple(turned.report for turned in done.results.turns)
    capacities: dict[tuple[str, int], float] = {}
    finish: dict[str, list[float]] = {}
    for report in reports:
        if model is not None and report.operator in model.rates:
            capacities[report.operator, report.instance] = float(model.rates[report.operator][report.slot])
        finish.setdefault(report.operator, []).append(report.busy_seconds)
    imbalance = {name: max(times) / (sum(times) / len(times)) - 1 if sum(times) > 0 else 0.0 for name, times in finish.items()}
    return BatchOutcome(
        done.attempt.number, done.attempt.attempt, _epoch_of(done), done.rows, done.seconds,
        done.started_at + done.seconds, reports, tuple(done.results.sources), capacities, imbalance,
        messages(done.results.told), moving=done.attempt.switch is not None,
    )  # fmt: skip
