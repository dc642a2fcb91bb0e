"""The micro-batch loop: the story of a batch, from the source's offsets to the commit record.

The batch is the unit of retry. An attempt is recorded before any work, runs as one Spark action, and counts only when
the one commit record, written last, names it. Everything an attempt leaves that no commit names does not exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streamtopology.jobs.batch import Attempt, Plan, place_instances
from streamtopology.jobs.checkpoint import BatchRecord, Checkpoint, CommitRecord, StateRef
from streamtopology.jobs.dag import PARTIAL, Dag
from streamtopology.jobs.executors import AttemptLost, ExecutorWatch
from streamtopology.jobs.failures import TopologyFailed
from streamtopology.jobs.learning import Lessons
from streamtopology.jobs.logs import begin_batch
from streamtopology.jobs.pinning import ExecutorInfo, Sending, Slot
from streamtopology.jobs.portions import Switching
from streamtopology.jobs.publishing import DEAD_LETTER, DEAD_LETTERS, Publisher
from streamtopology.jobs.reading_ahead import Ahead
from streamtopology.jobs.sources.split import deal
from streamtopology.jobs.stages import Results, between_barriers, run_attempt
from streamtopology.jobs.tasks import rehearse
from streamtopology.jobs.upkeep import Upkeep
from streamtopology.jobs.watermarks import Watermarks
from streamtopology.routing.controller import MIN_BATCHES
from streamtopology.routing.epoch import Epoch
from streamtopology.routing.placement import Placement
from streamtopology.routing.switching import Switch
from streamtopology.routing.topology import Level, difference

MOST_ATTEMPTS = 20
PAUSES = (0.0, 0.0, 0.5, 1.0, 2.0, 5.0)
"""Seconds before the second, the third attempt, and so on: most losses are one, others pass only in a minute or so."""


class Router(Protocol):
    """Where the driver gets its epochs, and whom it tells what a batch did (in-process controller or ConfigMap)."""

    def arrived(self, slots: Collection[str]) -> None:
        """Executors of these slots may be given work; a batch is about to begin."""
        ...

    def ready(self) -> Plan:
        """The newest plan that a batch may run under."""
        ...

    def must_flush(self) -> bool:
        """Whether the next batch has to empty its partials, because the plan after it has none."""
        ...

    def active(self, epoch: int, batch: int) -> None:
        """`batch` is recorded to run under `epoch`: from now on that epoch can only be superseded."""
        ...

    def committed(self, done: Committed) -> None: ...


@dataclass(frozen=True)
class Committed:
    """A batch that counts: what ran, on which slots, how long it took from its start to its commit record."""

    attempt: Attempt
    results: Results
    rows: int
    seconds: float
    started_at: float


@dataclass
class Driver:
    """Runs batches one after the other. `slot_of` names the slot of an executor.

    `settled` is told the placement of each committed batch: executors of other slots are needed no more. `pause` waits that
    many seconds.
    """

    spark: SparkSession
    checkpoint: Checkpoint
    watch: ExecutorWatch
    router: Router
    publisher: Publisher
    upkeep: Upkeep
    switching: Switching
    watermarks: Watermarks
    slot_of: Callable[[ExecutorInfo], str]
    run: str
    iterations_per_second: float = 0.0
    tell: Callable[[str], None] = print
    settled: Callable[[Placement], None] = lambda placement: None
    pause: Callable[[float], None] = time.sleep
    _chooser_loads: dict[str, np.ndarray] = field(default_factory=dict)
    _lessons: Lessons = field(default_factory=Lessons)
    _dags: dict[int, Dag] = field(default_factory=dict)
    _last: CommitRecord | None = None
    _last_plan: Plan | None = None
    _at_work: tuple[Attempt, list[Slot], Plan] | None = None
    _ahead: Ahead | None = None
    _to_be_measured: int = MIN_BATCHES
    reading_seconds: float = 0.0
    """How long the sources took in the newest batch."""

    def resume(self) -> CommitRecord | None:
        """Take up the checkpoint where its newest commit left it, and repeat what may not have reached the sinks."""
        self._last = self.checkpoint.last_commit()
        if self._last is not None:
            self._last_plan = Plan.from_json(self.checkpoint.read_epoch(self._last.epoch))
            self.watermarks.restore(self._last.max_event_times, self._last.watermark_after)
            for record in self.checkpoint.batch_records(self._last.batch):
                self._chooser_loads = {node: np.array(loads) for node, loads in record.chooser_loads.items()}
            self.publisher.publish(self._last)
        return self._last

    @property
    def last_spark_batch(self) -> int:
        """What Spark calls the newest batch that is committed; -1 before the first."""
        return -1 if self._last is None else self._last.spark_batch

    @property
    def next_batch(self) -> int:
        """The number of the batch that has yet to be committed."""
        return 0 if self._last is None else self._last.batch + 1

    def warm_up(self, rounds: int = 10) -> None:
        """Send empty batches through every stage, so that the first real one finds kernels compiled and plans made.

        One that is lost is not sent again: the first real batch will then find less prepared.
        """
        plan = self.router.ready()
        depth = self._dag(plan).depth
        rehearsal = replace(self._attempt(0, 0, plan, self._executors(plan), ()), previous=None)
        rehearse(rehearsal, depth)
        for _ in range(rounds):
            executors = self._executors(plan)
            attempt = replace(self._attempt(0, 0, plan, executors, ()), dry=True, previous=None)
            try:
                with self.watch.guard([executor.slot for executor in executors]):
                    results = run_attempt(self.spark, attempt, depth, [executor.slot for executor in executors], None)
            except AttemptLost as lost:
                self.tell(f"warming up: {lost}")
                continue
            self._stop_on_failures(results)

    def rehearse_on(self, executor: ExecutorInfo, rounds: int = 5) -> None:
        """Send empty batches through one executor alone: the first batch that it has a part in finds it ready.

        It may be called from another thread while a batch is at work on the others.
        """
        plan = self.router.ready()
        depth = plan.compile().depth
        alone = Attempt(
            run=self.run, checkpoint=self.checkpoint.uri, number=0, attempt=0, epoch=plan.epoch.number, previous_epoch=None,
            previous=None, homes=(0,), placement=(0,) * len(plan.placement.homes), dry=True,
            iterations_per_second=self.iterations_per_second,
        )  # fmt: skip
        for _ in range(rounds):
            run_attempt(self.spark, alone, depth, [executor.slot], None)

    def batch(
        self, descriptors: Sequence[str], frame: DataFrame | None, spark_batch: int, at_end: bool = False, final: bool = False
    ) -> None:
        """Run the batch that Spark numbers `spark_batch`, until it is committed; a batch that is, is only published.

        `at_end`: one more batch, without rows, in which all partials hand over; `final`: and all windows close.

        Raises TopologyFailed when the input or an operator is at fault: no attempt would do better.
        """
        started, started_at = time.perf_counter(), time.time()
        if self._last is not None and spark_batch <= self._last.spark_batch and not at_end:
            self.publisher.publish(self._last)
            return
        number = self.next_batch
        begin_batch(self.spark.sparkContext, number)
        self.router.arrived({self.slot_of(executor) for executor in self.watch.admitted()})
        tried = self.checkpoint.batch_records(number)
        plan = self._plan_for(tried)
        switch = self.switching.of_batch(self._last, self._last_plan, plan)
        self._forget_loads_of_others(plan)
        first = 1 + max((record.attempt for record in tried), default=0)
        why = ""
        for attempt_number in range(first, first + MOST_ATTEMPTS):
            executors = self._executors(plan)
            slots = [executor.slot for executor in executors]
            attempt = self._attempt(number, attempt_number, plan, executors, descriptors, switch, at_end, final)
            self._record(attempt, spark_batch, len(descriptors))
            ahead = self._take_ahead(attempt, slots)
            self._at_work = attempt, slots, plan
            try:
                with self.watch.guard(slots):
                    begun_at = time.time()
                    results = run_attempt(self.spark, attempt, self._dag(plan).depth, slots, frame, ahead)
            except AttemptLost as lost:
                why = str(lost)
                self.tell(f"batch {number}, attempt {attempt_number}: {why}; trying again on the executors that are there")
                self.pause(PAUSES[min(attempt_number - first, len(PAUSES) - 1)])
                continue
            if (why_not := self._unusable_copy(results)) is not None:
                why = f"{why_not}; all state moves with the batch"
                self.tell(f"batch {number}, attempt {attempt_number}: {why}")
                self.checkpoint.migrations.release(attempt.epoch)
                continue
            self._stop_on_failures(results)
            results = self._timed(results, begun_at, self._dag(plan), was_ahead=ahead is not None)
            self.upkeep.after(self._commit(attempt, plan, spark_batch, results), self._dag(plan))
            self._lessons.take_in(plan.epoch, results.told)
            rows, seconds = sum(report.rows for report in results.sources), time.perf_counter() - started
            self.switching.committed(seconds, attempt)
            self.router.committed(Committed(attempt, results, rows, seconds, started_at))
            self.settled(plan.placement)
            return
        raise TopologyFailed(
            f"batch {number} was lost in each of {MOST_ATTEMPTS} attempts, the last one by: {why}. Too little memory, an "
            "operator that ends its process, executors that do not reach each other? See the executors' logs"
        )

    def read_ahead(self, descriptors: Sequence[str]) -> None:
        """Start reading what the next batch will be given while `batch`, in another thread, is at work.

        Not when an epoch has been published since that is more than another routing of the same instances. Nor in a run's
        first batches: shares are wrong then, and a slow executor's reading would be in all that is measured.
        """
        if self._at_work is None or self._last is None or self._to_be_measured > 0:
            return
        attempt, slots, running = self._at_work
        plan = self.router.ready()
        if plan.is_rerouting_of(running):
            dealt = deal(descriptors, plan.epoch.source_shares, attempt.homes, plan.placement.present)
            foreseen = replace(self._last, epoch=attempt.epoch, switch=attempt.switch)
            switch = self.switching.of_batch(foreseen, running, plan)
            self._ahead = Ahead.begin(self.spark, attempt, plan.epoch.number, switch, slots, dealt)

    def drain(self, for_good: bool) -> None:
        """The sources have no more rows now: empty all partials in one last batch; and close all windows, if `for_good`.

        Else windows stay open for the rows that the next run finds. Closed for good, they stay closed: rows of a later run
        are late.
        """
        if self._last is not None:
            self.batch((), None, self._last.spark_batch, at_end=True, final=for_good)

    def _plan_for(self, tried: Sequence[BatchRecord]) -> Plan:
        """The epoch a batch was recorded with is the epoch it keeps, else the newest that is ready.

        A manifest that has changed since supersedes it: the old one may be why the batch never came to its commit.
        """
        ready = self.router.ready()
        if not tried:
            return ready
        recorded = Plan.from_json(self.checkpoint.read_epoch(tried[-1].epoch))
        return recorded if difference(recorded.topology, ready.topology).level == Level.IGNORE else ready

    def _executors(self, plan: Plan) -> list[ExecutorInfo]:
        """The executors of the plan's slots, at least one, and those of slots that are only now to hand over their state."""
        now = set(plan.placement.names)
        left = self._placement_left(plan)
        leaving = set(left.names) - now if left else set()
        executors = self.watch.await_admitted(wanted=lambda executor: self.slot_of(executor) in now)
        return executors + [executor for executor in self.watch.admitted() if self.slot_of(executor) in leaving]

    def _dag(self, plan: Plan) -> Dag:
        if plan.epoch.number not in self._dags:
            self._dags = {plan.epoch.number: plan.compile()}
        return self._dags[plan.epoch.number]

    def _attempt(
        self, number: int, attempt: int, plan: Plan, executors: Sequence[ExecutorInfo], descriptors: Sequence[str],
        switch: Switch | None = None, at_end: bool = False, final: bool = False,
    ) -> Attempt:  # fmt: skip
        placement = plan.placement
        homes = tuple(placement.slots.index(self.slot_of(executor)) for executor in executors)
        last = self._last
        return Attempt(
            run=self.run, checkpoint=self.checkpoint.uri, number=number, attempt=attempt, epoch=plan.epoch.number,
            previous_epoch=None if last is None else last.epoch,
            previous=None if last is None else (last.batch, last.attempt),
            homes=homes,
            placement=place_instances(homes, placement, self._placement_left(plan)),
            watermark=self.watermarks.current(),
            flush=at_end or self.router.must_flush(), final=final,
            descriptors=deal(descriptors, plan.epoch.source_shares, homes, placement.present),
            chooser_loads=dict(self._chooser_loads), iterations_per_second=self.iterations_per_second,
            dead_letter=plan.topology.on_bad_tuple == "deadLetter", copied_at=self.switching.copied_at(last, plan),
            knowledge=self._lessons.to_wire(plan.epoch), switch=switch, previous_switch=None if last is None else last.switch,
        )  # fmt: skip

    def _placement_left(self, plan: Plan) -> Placement | None:
        """Where instances were in the batch before, if this one runs under another epoch."""
        last = self._last_plan
        return None if last is None or last.epoch.number == plan.epoch.number else last.placement

    def _forget_loads_of_others(self, plan: Plan) -> None:
        """Where the instances change, choosers start anew: else a new one would get all tuples until it had caught up."""
        before = {} if self._last_plan is None else self._last_plan.epoch.routes
        now = plan.epoch.routes
        same = {node for node, route in now.items() if node in before and before[node].instances == route.instances}
        self._chooser_loads = {node: loads for node, loads in self._chooser_loads.items() if node in same}

    def _take_ahead(self, attempt: Attempt, slots: Sequence[Slot]) -> Sending | None:
        """What has been read ahead for this attempt, if anything."""
        ahead, self._ahead = self._ahead, None
        return ahead.sending if ahead is not None and ahead.serves(attempt, slots) else None

    def _timed(self, results: Results, begun_at: float, dag: Dag, was_ahead: bool) -> Results:
        """`results` with seconds counted between barriers."""
        timed = between_barriers(results, begun_at, lambda name: dag.node(name).level, was_ahead)
        if was_ahead:
            return timed
        self.reading_seconds = max((report.task_seconds for report in timed.sources), default=0.0)
        return timed

    def _record(self, attempt: Attempt, spark_batch: int, descriptors: int) -> None:
        """The batch record activates the attempt's epoch; it is there before any task works, and it is ours alone."""
        recorded = self.checkpoint.record(
            BatchRecord(
                batch=attempt.number,
                attempt=attempt.attempt,
                epoch=attempt.epoch,
                spark_batch=spark_batch,
                watermark=attempt.watermark,
                sources={"descriptors": descriptors},
                chooser_loads={node: loads.tolist() for node, loads in attempt.chooser_loads.items()},
            )
        )
        if not recorded:
            raise self._another_driver(f"attempt {attempt.attempt} at batch {attempt.number} was recorded")
        self.router.active(attempt.epoch, attempt.number)

    def _unusable_copy(self, results: Results) -> str | None:
        """Why state that was copied ahead could not be used, if it could not: where it was copied from it still is."""
        return next((failure["sentence"] for failure in results.failures if failure["of_a_copy"]), None)

    def _stop_on_failures(self, results: Results) -> None:
        if results.failures:
            first = min(results.failures, key=lambda failure: not failure["known"])
            detail = "" if first["known"] else f"\n{first['traceback']}"
            where = "" if first["known"] else f"{first['where']}: "
            raise TopologyFailed(f"{where}{first['sentence']}{detail}")

    def _commit(self, attempt: Attempt, plan: Plan, spark_batch: int, results: Results) -> CommitRecord:
        self.watermarks.advance(results.sources)
        if attempt.final:
            self.watermarks.end()
        commit = CommitRecord(
            batch=attempt.number, attempt=attempt.attempt, epoch=attempt.epoch, spark_batch=spark_batch,
            state=self.upkeep.adopt(_state_after(self._last, results, plan.epoch)), outputs=self._outputs(attempt, results),
            watermark_after=self.watermarks.current(), max_event_times=self.watermarks.newest(),
            rows_in=sum(report.rows for report in results.sources), switch=attempt.switch,
        )  # fmt: skip
        if not self.checkpoint.commit(commit):
            raise self._another_driver(f"batch {attempt.number} was committed")
        self._to_be_measured = max(self._to_be_measured - 1, 0)
        self._last, self._last_plan = commit, plan
        for turned in results.turns:
            self._count_for_choosers(turned.report.operator, turned.report.instance, turned.report.rows)
        self.publisher.publish(commit)
        return commit

    def _another_driver(self, what: str) -> TopologyFailed:
        return TopologyFailed(
            f"{what} by another driver on checkpoint {self.checkpoint.uri}; only one driver may run a topology: stop one of "
            "the two"
        )

    def _outputs(self, attempt: Attempt, results: Results) -> dict[str, list[str]]:
        """Staged files per sink, in the order of instances."""
        outputs: dict[str, list[str]] = {}
        for turned in results.turns:
            for sink, paths in turned.outputs.items():
                outputs.setdefault(sink, []).extend(paths)
            if turned.dead_letters is not None:
                outputs.setdefault(DEAD_LETTERS, []).append(turned.dead_letters)
        if results.set_aside:
            rows = pa.RecordBatch.from_pylist([dict(row) for row in results.set_aside], DEAD_LETTER)
            path = self.checkpoint.stage_output("sources.dead", 0, attempt.number, attempt.attempt, [rows])
            outputs.setdefault(DEAD_LETTERS, []).append(path)
        return outputs

    def _count_for_choosers(self, node: str, instance: int, rows: int) -> None:
        loads = self._chooser_loads.get(node, np.zeros(0))
        if instance >= len(loads):
            loads = np.concatenate([loads, np.zeros(instance + 1 - len(loads))])
        loads[instance] += rows
        self._chooser_loads[node] = loads


def _state_after(last: CommitRecord | None, results: Results, epoch: Epoch) -> dict[str, dict[int, StateRef]]:
    """Every instance's chain of files: what the last commit named, and the delta of this batch if it changed anything.

    What an instance held that the epoch has no more is with others now.
    """
    state = {node: dict(instances) for node, instances in last.state.items()} if last else {}
    for node in epoch.routes.keys() & state.keys():
        active = epoch.routes[node].instances
        held_back = node.endswith(PARTIAL)
        state[node] = {i: held for i, held in state[node].items() if i in active or (held_back and held.keys)}
    for turned in results.turns:
        report = turned.report
        before = state.setdefault(report.operator, {}).get(report.instance, StateRef(None, (), 0, 0))
        deltas = (*before.deltas, *turned.adopted, *(() if turned.delta is None else (turned.delta,)))
        state[report.operator][report.instance] = replace(
            before, deltas=deltas, keys=report.state_keys, bytes=report.state_bytes
        )
    return state
