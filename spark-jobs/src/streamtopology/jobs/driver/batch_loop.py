"""The micro-batch loop: from the source's offsets to the commit record.

Executors die, tasks are retried, and an abandoned attempt may still be running while the next one writes. A batch must
count exactly once all the same. Two rules give that:

- An attempt is recorded before any work, and every file that it writes carries the attempt in its name.
- One commit record, written last and create-if-absent, names the attempt that counts and all of its files. Files that no
  commit record names do not exist.

So a failure is handled in one way only: forget the attempt and begin another. There is no partial progress to repair,
and no need to know whether the old tasks have stopped.

Re-routing needs no protocol of its own either. The loop takes the newest ready epoch at each batch boundary, so all
instances switch at the same row, and moved state is part of what the commit covers.

The loop knows no Spark. It runs attempts through `AttemptRunner`, which tests implement in one process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from streamtopology.contract.stats import LostAttempts
from streamtopology.jobs.checkpoint import BatchRecord, Checkpoint, CommitRecord
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS
from streamtopology.jobs.connectors.sources.assignment import deal
from streamtopology.jobs.connectors.sources.descriptors import Descriptor
from streamtopology.jobs.driver.attempt_runner import AttemptLost, AttemptRunner, Executor, LargeEnvelope
from streamtopology.jobs.driver.batch_trace import batch_span
from streamtopology.jobs.driver.calibration import Calibration
from streamtopology.jobs.driver.commit import closed_until, skipped_texts, stage_bad_rows, staged_outputs, state_after
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.driver.early_word import EarlyWord
from streamtopology.jobs.driver.failures import another_driver, raise_failures
from streamtopology.jobs.driver.lateness import Lateness
from streamtopology.jobs.driver.lookup_tables import LookupTables
from streamtopology.jobs.driver.prefetch import Prefetch, foreseen_attempt
from streamtopology.jobs.driver.progress import BatchInProgress, BatchInput, Progress, RunningAttempt
from streamtopology.jobs.driver.publisher import Publisher
from streamtopology.jobs.driver.read_sizes import TOLERANCE
from streamtopology.jobs.driver.rehearsal import attempt_alone, warm_up
from streamtopology.jobs.driver.timeline import Timeline
from streamtopology.jobs.driver.watermarks import Watermarks
from streamtopology.jobs.errors import BatchTooLarge, PrecopyUnusable, TopologyFailed
from streamtopology.jobs.exchange.collect import between_barriers
from streamtopology.jobs.plan.attempt import Attempt, place_instances
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.results import Results
from streamtopology.jobs.rerouting.gradual import GradualSwitching
from streamtopology.jobs.rerouting.port import CommittedAttempt, Router
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.epochs.switch_progress import GradualSwitch
from streamtopology.tracing.span import Emit

MOST_ATTEMPTS = 20
_CAUSES = "Possible causes: too little memory, an operator that ends its process, executors that cannot reach each other"
# Seconds before the second, the third attempt, and so on: most losses are single ones, some last a minute.
RETRY_PAUSES = (0.0, 0.0, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class BatchLoop:
    """Runs one batch after the other.

    `run`: id of this start of the topology, part of the keys of worker caches. `calibration`: of
    `costPerTuple`. `notify` gets a sentence for each retry. `begins` gets the number of each batch, and about how many
    rows it reads, None if that is unknown; `loses` gets its lost attempts. `settled` gets the placement of each committed
    batch: executors of other slots are no longer needed. `pause` sleeps for the given seconds, `clock` gives epoch seconds.
    `trace` gets the spans of each committed batch; None: nobody wants them.
    """

    runner: AttemptRunner
    checkpoint: Checkpoint
    router: Router
    publisher: Publisher
    compaction: Compaction
    switching: GradualSwitching
    watermarks: Watermarks
    run: str
    calibration: Calibration = field(default_factory=Calibration)
    notify: Callable[[str], None] = print
    begins: Callable[[int, int | None], None] = lambda number, rows: None
    loses: Callable[[LostAttempts], None] = lambda lost: None
    settled: Callable[[Placement], None] = lambda placement: None
    pause: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time
    progress: Progress = field(default_factory=Progress)
    lateness: Lateness = field(default_factory=Lateness)
    early_word: EarlyWord = field(default_factory=EarlyWord)
    trace: Emit | None = None

    @cached_property
    def tables(self) -> LookupTables:
        """What operators look up in."""
        return LookupTables(self.checkpoint, self.notify, self.clock)

    def resume(self, planned_on: int | None) -> CommitRecord | None:
        """Resume from the newest commit, and publish it again: it may not have reached all sinks.

        `planned_on`: the batch of the newest commit before our plan was made. By that plan keys that have moved since would go
        where their state is not, and instances that hold tuples back since would be forgotten: raises AnotherDriver.
        """
        commit = self.checkpoint.resume()
        if (None if commit is None else commit.batch) != planned_on:
            newest = "the newest batch was taken back" if commit is None else f"batch {commit.batch} was committed"
            raise another_driver(self.checkpoint.uri, newest)
        if commit is not None:
            plan = ExecutionPlan.from_json(self.checkpoint.read_epoch(commit.epoch))
            self.progress.commit, self.progress.plan = commit, plan
            attempts = self.checkpoint.batch_records(commit.batch)
            self.watermarks.restore(commit, closed_until(commit, attempts))
            for record in attempts:
                self.progress.knowledge.restore(record.chooser_loads)
            self.publisher.publish_again(commit, plan.topology)
        return commit

    @property
    def last_spark_batch(self) -> int:
        """Spark's number of the newest committed batch; -1 before the first."""
        return -1 if self.progress.commit is None else self.progress.commit.spark_batch

    @property
    def positions(self) -> Mapping[str, Any]:
        """The end of the newest commit in each source."""
        commit = self.progress.commit
        return {} if commit is None else commit.end.positions

    @property
    def range_end(self) -> Mapping[str, Any] | None:
        """The end of the range that the newest commit has read a part of; None if nothing of it is left."""
        commit = self.progress.commit
        return None if commit is None else commit.range_end

    def recorded(self) -> BatchRecord | None:
        """The newest attempt at the next batch, by a driver that did not commit it, or whose commit was taken back."""
        return max(self.checkpoint.batch_records(self.next_batch), key=lambda record: record.attempt, default=None)

    @property
    def next_batch(self) -> int:
        """The number of the batch that follows the newest commit."""
        return self.progress.next_batch

    @property
    def reading_seconds(self) -> float:
        """Time the sources took in the newest batch that was not prefetched."""
        return self.progress.reading_seconds

    def warm_up(self, rounds: int = 10) -> None:
        """Send empty batches through every stage, so that the first real batch finds kernels compiled and plans cached.

        A lost one is not repeated: the first real batch then finds less prepared.
        """
        plan = self.router.ready()

        def dry_attempt() -> tuple[Attempt, list[Executor]]:
            executors = self._executors(plan)
            return replace(self._attempt(plan, executors), dry=True, previous=None), executors

        warm_up(self.runner, dry_attempt, self.progress.dag(plan).depth, self.notify, rounds)

    def rehearse_on(self, executor: Executor, rounds: int = 5) -> None:
        """Send empty batches through one executor alone, so that its first real batch finds it ready.

        May be called from another thread while a batch runs on the other executors.
        """
        plan = self.router.ready()
        depth = plan.compile().depth
        alone = attempt_alone(plan, self.run, self.checkpoint.uri, self.calibration.of(plan.topology))
        for _ in range(rounds):
            self.runner.run(alone, depth, [executor])

    def share_to_read(self, descriptors: Sequence[Descriptor]) -> float:
        """Return the share of `descriptors` that the next batch may read, by memory and by time; 1 or more: all of them."""
        plan, rows = self.router.ready(), sum(descriptor.rows for descriptor in descriptors)
        most_rows = self.progress.pace.most_rows(plan.topology.trigger.latency_seconds)
        return min(self.progress.sizes.share_to_read(descriptors, plan), most_rows / max(rows, 1))

    def batch(self, given: BatchInput) -> None:
        """Run a batch; retry until committed.

        Raises BatchTooLarge if the rows have to be cut smaller; nothing is committed then. Raises TopologyFailed when the
        input or an operator is at fault: a retry would fail, too.
        """
        self._run_until_committed(self._begin(given))

    def batch_without_rows(self, flush: bool = False, final: bool = False) -> None:
        """Run one more batch, without rows: what the watermark has passed closes. Nothing happens before the first batch.

        `flush` empties all partials, `final` closes all windows, too. Raises TopologyFailed.
        """
        last = self.progress.commit
        if last is not None:
            range_end = None if final else last.range_end
            given = BatchInput(last.spark_batch, end=last.end, range_end=range_end, flush=flush, final=final)
            self._run_until_committed(self._begin(given))

    @property
    def is_due(self) -> bool:
        """True if a batch without rows would close windows, fire timers or take in partials."""
        last = self.progress.commit
        if last is None or self.has_gathered:
            return self.has_gathered
        return self.watermarks.has_passed(self.progress.due) or (last.due_at is not None and last.due_at <= self.clock())

    @property
    def has_gathered(self) -> bool:
        """True if the newest commit holds parts of divided keys, which the next batch takes to their homes."""
        return self.progress.commit is not None and bool(self.progress.commit.partials)

    @property
    def is_rescaled(self) -> bool:
        """True if the next batch runs on other executors: by one without rows, those that leave hand over their state."""
        plan = self.progress.plan
        return plan is not None and self.router.ready().placement.names != plan.placement.names

    def _run_until_committed(self, batch: BatchInProgress) -> None:
        reason, cause, losses = "", "", 0
        for number in range(batch.first_attempt, batch.first_attempt + MOST_ATTEMPTS):
            attempt, executors = self._record_attempt(batch, number)
            try:
                results = self._run(batch, attempt, executors)
            except AttemptLost as loss:
                reason, losses = str(loss), losses + 1
                batch.timeline.lose(number, loss)
                self.notify(f"batch {batch.number}, attempt {number}: {reason}; retrying on the remaining executors")
                cause = self.early_word.likely_cause(loss) if losses > 1 else ""
                if cause:
                    self.notify(cause)
                self.loses(LostAttempts(batch.number, losses, "; ".join(filter(None, (reason, cause)))))
                self.pause(RETRY_PAUSES[min(losses, len(RETRY_PAUSES)) - 1])
            except PrecopyUnusable as failure:
                reason = f"{failure}; the state moves with the batches"
                batch.timeline.lose(number, failure)
                self.notify(f"batch {batch.number}, attempt {number}: {reason}")
                self.checkpoint.precopies.release(attempt.epoch)
            else:
                self._finish(batch, attempt, results)
                return
        raise TopologyFailed(
            f"batch {batch.number} was lost in each of {MOST_ATTEMPTS} attempts, in the last one because {reason}. "
            f"{cause or _CAUSES}. See the executors' logs"
        )

    def prefetch(self, descriptors: Sequence[str]) -> None:
        """Start reading the next batch's rows while `batch` runs in another thread.

        Nothing is prefetched when an epoch was published meanwhile that does more than re-route the same instances.
        """
        running, last = self.progress.running, self.progress.commit
        if running is None or last is None or not self.progress.may_prefetch:
            return
        plan = self.router.ready()
        if not plan.is_rerouting_of(running.plan):
            return
        attempt = running.attempt
        dealt = deal(descriptors, plan.epoch.source_shares, attempt.slot_by_partition, plan.placement.present)
        foreseen_commit = replace(last, epoch=attempt.epoch, switch=attempt.switch)
        switch = self.switching.of_batch(foreseen_commit, running.plan, plan)
        blobs = self.progress.sizes.blobs([Descriptor.from_json(text) for text in descriptors], plan)
        foreseen = foreseen_attempt(attempt, plan.epoch.number, switch, dealt, blobs)
        self.progress.prefetch = Prefetch(foreseen, running.executors, self.runner.prefetch(foreseen, running.executors))

    def drain(self, for_good: bool) -> None:
        """Flush all partials in one last batch, once the sources have no more rows; if `for_good`, close all windows, too.

        Open windows wait for rows of the next run. Closed for good, they stay closed: rows of a later run are late.
        """
        self.batch_without_rows(flush=True, final=for_good)

    # --- the steps of a batch ---

    def _begin(self, given: BatchInput) -> BatchInProgress:
        """Choose the plan of the next batch, with the executors that have arrived."""
        timeline, progress = Timeline.begin(), self.progress
        number = progress.next_batch
        parts = [Descriptor.from_json(text) for text in given.descriptors]
        self.begins(number, None if given.rows is not None else sum(part.rows for part in parts))
        self.runner.begin_batch(number)
        self.router.arrived({executor.slot for executor in self.runner.executors()})
        tried = self.checkpoint.batch_records(number)
        plan = self._plan_for(tried)
        switch = self.switching.of_batch(progress.commit, progress.plan, plan)
        progress.knowledge.forget_changed(progress.plan, plan)
        first_attempt = 1 + max((record.attempt for record in tried), default=0)
        dag, last = progress.dag(plan), progress.commit
        tables = self.tables.of_batch(plan, number, tried[-1] if tried else None, {} if last is None else last.tables)
        return BatchInProgress(number, given, plan, dag, switch, first_attempt, parts, timeline, tables)

    def _plan_for(self, tried: Sequence[BatchRecord]) -> ExecutionPlan:
        """Return the plan of the batch's record, or the newest that is ready if the batch has none.

        A manifest that changed or moved since supersedes the recorded plan, which may be why the batch was never committed.
        """
        ready = self.router.ready()
        if not tried:
            return ready
        if tried[-1].epoch > ready.epoch.number:  # made after our plan, which was then the newest
            raise another_driver(self.checkpoint.uri, f"batch {tried[-1].batch} was recorded under epoch {tried[-1].epoch}")
        if tried[-1].epoch not in self.checkpoint.epochs():  # swept after the checkpoint went back to before the batch
            return ready
        recorded = ExecutionPlan.from_json(self.checkpoint.read_epoch(tried[-1].epoch))
        return recorded if recorded.processes_as(ready) else ready

    def _record_attempt(self, batch: BatchInProgress, number: int) -> tuple[Attempt, list[Executor]]:
        """Record an attempt, which activates its epoch; the record precedes the work of any task."""
        executors = self._executors(batch.plan)
        given = batch.input
        attempt = self._attempt(batch.plan, executors, given.descriptors, batch.switch)
        attempt = replace(
            attempt,
            number=batch.number,
            attempt=number,
            flush=given.flush or attempt.flush,
            final=given.final,
            watermark=attempt.watermark if given.is_whole else attempt.closed_until,
            most_bytes=attempt.most_bytes if given.is_limited else None,
            blobs=self.progress.sizes.blobs(batch.parts, batch.plan),
            tables={operator: table.path for operator, table in batch.tables.items()},
        )
        recorded = self.checkpoint.record(
            BatchRecord(
                batch=attempt.number,
                attempt=attempt.attempt,
                epoch=attempt.epoch,
                spark_batch=given.spark_batch,
                watermark=attempt.watermark,
                sources=given.to_read,
                chooser_loads={node: loads.tolist() for node, loads in attempt.chooser_loads.items()},
                tables=batch.tables,
            )
        )
        if not recorded:
            raise another_driver(self.checkpoint.uri, f"attempt {attempt.attempt} at batch {attempt.number} was recorded")
        self.router.active(attempt.epoch, attempt.number)
        return attempt, executors

    def _run(self, batch: BatchInProgress, attempt: Attempt, executors: Sequence[Executor]) -> Results:
        """Run `attempt`; return its results, with seconds between barriers.

        Raises AttemptLost, BatchTooLarge, PrecopyUnusable, TopologyFailed.
        """
        progress = self.progress
        prefetch = progress.take_prefetch(attempt, executors)
        progress.running = RunningAttempt(attempt, tuple(executors), batch.plan)
        began_at = batch.timeline.submit()
        sent = None if prefetch is None else prefetch.sent
        results = self.runner.run(attempt, batch.dag.depth, executors, batch.input.rows, sent)
        try:
            raise_failures(results)
        except BatchTooLarge:
            progress.sizes.were_too_large(results.read_bytes)
            raise
        except LargeEnvelope:
            progress.sizes.envelope_was_too_large()
            raise
        progress.sizes.measured(results.read_bytes)
        results = progress.clocks.by_driver(results, began_at, batch.timeline.collect(), prefetch is not None)
        timed = between_barriers(results, began_at, lambda name: batch.dag.node(name).level, prefetch is not None)
        if prefetch is None:
            progress.reading_seconds = max((report.task_seconds for report in timed.sources), default=0.0)
        return timed

    def _finish(self, batch: BatchInProgress, attempt: Attempt, results: Results) -> None:
        """Commit and publish the batch, then pass it on to all that learn from it."""
        commit, timeline = self._commit(batch, attempt, results), batch.timeline
        timeline.commit()
        self.progress.committed(commit, batch.plan, results.due)
        self.progress.knowledge.count(results)
        crowded = self.early_word.texts(results, batch.plan.placement)
        for text in [*skipped_texts(commit.batch, results), *self.lateness.texts(commit.batch, results), *crowded]:
            self.notify(text)
        self.publisher.publish(commit)
        timeline.publish()
        self.compaction.after(commit, batch.dag)
        self.progress.knowledge.learned.learn(batch.plan.epoch, results.learning_reports)
        rows, seconds = sum(report.rows for report in results.sources), time.monotonic() - timeline.began_at
        self.switching.committed(seconds, results.moving_seconds, attempt)
        self.progress.network.measured(results, attempt.partitions, seconds)
        if not timeline.lost:  # its seconds say nothing of the next batch's
            self.progress.pace.measured(sum(part.rows for part in batch.parts), seconds, results.working_seconds)
        steps = timeline.steps(results.working_seconds)
        done = CommittedAttempt(attempt, results, rows, seconds, timeline.began_epoch, steps)
        self.router.committed(done)
        self.settled(batch.plan.placement)
        timeline.judge()
        if self.trace is not None:
            self.trace(lambda: batch_span(batch, done))

    def _commit(self, batch: BatchInProgress, attempt: Attempt, results: Results) -> CommitRecord:
        if batch.input.is_whole:
            self.watermarks.advance(results.event_times, batch.input.poll)
        else:
            self.watermarks.hear(results.event_times)
        if attempt.final:
            self.watermarks.end()
        outputs = staged_outputs(results)
        if results.set_aside:
            outputs.setdefault(DEAD_LETTERS, []).append(stage_bad_rows(self.checkpoint, attempt, results.set_aside))
        state = state_after(self.progress.commit, results, batch.plan.epoch, batch.dag.stateful)
        commit = CommitRecord(
            batch=attempt.number,
            attempt=attempt.attempt,
            epoch=attempt.epoch,
            spark_batch=batch.input.spark_batch,
            state=self.compaction.adopt(state, results.compacted),
            outputs=outputs,
            watermark_after=self.watermarks.current(),
            max_event_times=self.watermarks.newest(),
            rows_in=sum(report.rows for report in results.sources),
            switch=attempt.switch,
            end=batch.input.end,
            partials=results.partials,
            range_end=batch.input.range_end,
            silent_since=self.watermarks.silent_since(),
            recorded_at=attempt.recorded_at,
            due_at=results.due_at,
            tables=batch.tables,
        )
        if not self.checkpoint.commit(commit):
            raise another_driver(self.checkpoint.uri, f"batch {attempt.number} was committed")
        return commit

    def _executors(self, plan: ExecutionPlan) -> list[Executor]:
        """Return the executors of the plan's slots, at least one, and of slots that only hand over their state."""
        now = set(plan.placement.names)
        before = self.progress.placement_before(plan)
        leaving = set(before.names if before else ()) - now
        executors = self.runner.await_executors(lambda executor: executor.slot in now)
        return executors + [executor for executor in self.runner.executors() if executor.slot in leaving]

    def _attempt(
        self,
        plan: ExecutionPlan,
        executors: Sequence[Executor],
        descriptors: Sequence[str] = (),
        switch: GradualSwitch | None = None,
    ) -> Attempt:
        """Return an attempt under `plan` on `executors`, numbered 0, after the newest commit."""
        placement = plan.placement
        numbers = {name: number for number, name in enumerate(placement.slots)}
        slots = tuple(numbers[executor.slot] for executor in executors)
        last = self.progress.commit
        return Attempt(
            run=self.run,
            checkpoint=self.checkpoint.uri,
            number=0,
            attempt=0,
            epoch=plan.epoch.number,
            previous_epoch=None if last is None else last.epoch,
            previous=None if last is None else (last.batch, last.attempt),
            slot_by_partition=slots,
            partition_by_instance=place_instances(slots, placement, self.progress.placement_before(plan)),
            watermark=self.watermarks.current(),
            closed_until=self.watermarks.closed_until(),
            recorded_at=max(self.clock(), -math.inf if last is None or last.recorded_at is None else last.recorded_at),
            flush=self.router.must_flush(),
            descriptors=deal(descriptors, plan.epoch.source_shares, slots, placement.present),
            most_bytes=TOLERANCE * self.progress.sizes.most_of_task(plan),
            chooser_loads=dict(self.progress.knowledge.loads),
            iterations_per_second=self.calibration.of(plan.topology),
            dead_letter=plan.topology.on_bad_tuple == "deadLetter",
            precopied_at=self.switching.copied_at(last, plan),
            knowledge=self.progress.knowledge.learned.to_wire(plan.epoch),
            counts_pairs=self.progress.network.matters,
            switch=switch,
            previous_switch=None if last is None else last.switch,
            compactions=self.compaction.asked,
            paces=self.router.paces(plan),
            partials={} if last is None else last.partials,
        )
