"""The control loop inside the driver's process: watches committed batches, publishes epochs, keeps their history.

An epoch is *ready* when its plan is in the checkpoint, and *active* from the first batch record that names it. The
driver takes the newest ready one at each batch boundary; nothing waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from streamtopology.jobs.batch import Plan
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.dag import Dag
from streamtopology.jobs.driver import Committed
from streamtopology.jobs.history import BatchOutcome, History, Reconfiguration
from streamtopology.jobs.learning import messages
from streamtopology.routing import groupings
from streamtopology.routing.capacity import SOURCE, SlotModel, bound
from streamtopology.routing.controller import Controller, Nothing, Recommend, Reroute, TopologyFacts
from streamtopology.routing.epoch import Epoch, Route
from streamtopology.routing.table import RoutingTable
from streamtopology.routing.topology import Topology


def first_routes(dag: Dag, topology: Topology, before: Mapping[str, Route]) -> dict[str, Route]:
    """Routes of every node: as `before` where its table still fits, else hashing over all instances."""
    routes: dict[str, Route] = {}
    for node in dag.nodes:
        instances = tuple(range(node.parallelism))
        options = topology.operator(node.operator).grouping.options
        known = before.get(node.name)
        spec = groupings.get(node.policy)
        table = spec.first_table(instances, options)
        if node.policy != "fields" and known is not None and _fits(known, spec.kind, instances, table):
            table = known.table
        routes[node.name] = Route(node.policy, table, instances, options)
    return routes


def _fits(known: Route, kind: str, instances: tuple[int, ...], first: RoutingTable | None) -> bool:
    """Whether the table of `known` can go on in place of the `first` one of a grouping of this kind."""
    if known.table is None or first is None or known.instances != instances:
        return False
    return groupings.get(known.policy).kind == kind and len(known.table.buckets) == len(first.buckets)


@dataclass
class _Published:
    """A published epoch until its gain is known."""

    plan: Plan
    reason: str
    published_at: float
    plan_seconds: float
    predicted_gain: Mapping[str, float]
    active_after: float | None = None


class InProcessRouter:
    """Implements the driver's `Router`. `clock` is monotonic seconds; `declared_cpu` cores per slot."""

    def __init__(
        self, plan: Plan, checkpoint: Checkpoint, controller: Controller, history: History,
        declared_cpu: Callable[[], tuple[float, ...]], clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._ready = plan
        self._active = plan
        self._checkpoint = checkpoint
        self._controller = controller
        self._history = history
        self._declared_cpu = declared_cpu
        self._clock = clock
        self._published: dict[int, _Published] = {}
        self._waiting: _Published | None = None
        self._told = ""
        self._outcomes_seen = 0
        self._rows_per_source_row: dict[str, float] = {}
        self._lock = threading.Lock()
        self._deciding = threading.Lock()  # one new epoch at a time: `apply` comes from another thread
        checkpoint.write_epoch(plan.epoch.number, plan.to_json())

    @property
    def topology(self) -> Topology:
        return self._ready.topology

    @property
    def epoch(self) -> Epoch:
        return self._active.epoch

    def ready(self) -> Plan:
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

    def committed(self, done: Committed) -> None:
        """Learn from a batch, then judge; a plan that pays becomes the next epoch."""
        epoch = done.attempt.epoch
        reports = [turned.report for turned in done.results.turns]
        sources = [report for report in done.results.sources if report.slot >= 0]
        self._controller.observe(done.attempt.number, done.seconds, reports, sources, epoch)
        self._note_rows(done)
        model = self._controller.model(self._facts())
        self._history.batch_done(_outcome(done, model))
        self._note_first_batch_under(done)
        self._note_gains()
        with self._deciding:
            if not self._is_changing(flushed=done.attempt.flush):
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
        """Run `topology`, which differs in routing only, from the next batch on. Returns the new epoch's number."""
        with self._deciding:
            self._controller.configure(topology.rebalance)
            dag = replace(self._ready, topology=topology).compile()
            routes = first_routes(dag, topology, self._ready.epoch.routes)
            number = 1 + max(self._checkpoint.epochs())
            epoch = Epoch(number, routes, self._ready.epoch.source_shares, why)
            self._publish(topology, epoch, 0.0, {})
            return number

    def publish(self, epoch: Epoch) -> None:
        """Run under `epoch`, made by someone else than the controller, from the next batch on. It follows the newest one."""
        newest = self.ready().epoch.number
        if epoch.number <= newest:
            raise ValueError(f"epoch {epoch.number} cannot be published: epoch {newest} is there already")
        self._publish(self._ready.topology, epoch, 0.0, {})

    def bound(self) -> float:
        """Rows/s of the source that no routing can beat, by the capacities measured last; 0 before any batch."""
        model = self._controller.model(self._facts())
        if model is None or not self._rows_per_source_row:
            return 0.0
        known = {stage: rows for stage, rows in self._rows_per_source_row.items() if stage in model.rates}
        return bound(model, known).rows_per_second

    def _publish(self, topology: Topology, epoch: Epoch, plan_seconds: float, gains: Mapping[str, float]) -> None:
        """Saved before it is taken: an epoch is ready only when the checkpoint holds all of it."""
        plan = replace(self._ready, topology=topology, epoch=epoch)
        published = _Published(plan, epoch.reason, self._clock(), plan_seconds, gains)
        self._checkpoint.write_epoch(epoch.number, plan.to_json())
        with self._lock:
            self._published[epoch.number] = published
            if _keeps_partials(self._ready.compile(), plan.compile()):
                self._ready, self._waiting = plan, None
            else:
                self._waiting = published

    def _is_changing(self, flushed: bool) -> bool:
        """Whether a plan is about to become active; one that waited for the partials is ready once they have `flushed`."""
        with self._lock:
            if self._waiting is not None and flushed:
                self._ready, self._waiting = self._waiting.plan, None
            return self._waiting is not None or self._ready is not self._active

    def _facts(self) -> TopologyFacts:
        by_share = all(source.reads_descriptors for source in self.topology.sources)
        return TopologyFacts.of(self._ready.epoch.routes, self._declared_cpu(), by_share)

    def _note_rows(self, done: Committed) -> None:
        if not done.rows:
            return
        rows: dict[str, float] = {SOURCE: 1.0}
        for turned in done.results.turns:
            rows[turned.report.operator] = rows.get(turned.report.operator, 0.0) + turned.report.rows / done.rows
        self._rows_per_source_row = rows

    def _note_first_batch_under(self, done: Committed) -> None:
        epoch = done.attempt.epoch
        if done.attempt.previous_epoch in (None, epoch):
            return
        published = self._published.get(epoch)
        if published is None:
            return
        changed = set(published.predicted_gain) | {n for n, keys in done.results.keys_moved.items() if keys} or {SOURCE}
        for operator in sorted(changed):
            self._history.rerouted(
                Reconfiguration(
                    epoch=epoch,
                    batch=done.attempt.number,
                    operator=operator,
                    reason=published.reason,
                    keys_moved=done.results.keys_moved.get(operator, 0),
                    bytes_moved=done.results.bytes_moved.get(operator, 0),
                    plan_seconds=published.plan_seconds,
                    published_to_active_seconds=published.active_after or 0.0,
                    predicted_gain=published.predicted_gain.get(operator, 0.0),
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


def _keeps_partials(before: Dag, after: Dag) -> bool:
    """Whether every partial node that may hold tuples back is still there afterwards."""
    left = {node.name for node in after.nodes}
    return all(node.name in left for node in before.nodes if node.is_partial and node.flush_every > 1)


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
        done.attempt.number, done.attempt.attempt, done.attempt.epoch, done.rows, done.seconds,
        done.started_at + done.seconds, reports, tuple(done.results.sources), capacities, imbalance,
        messages(done.results.told),
    )  # fmt: skip
