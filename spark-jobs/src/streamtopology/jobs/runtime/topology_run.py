"""A topology that runs on a cluster: all that a driver needs, assembled and closed again.

The parts know each other only by the values and ports that they are given. This module is the one place that chooses them:
a cluster of processes or of pods, a router that decides or one that follows, a checkpoint in a folder or a bucket. What
can be refused is refused here, before the first batch.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopology.contract import formatting
from streamtopology.contract.phases import Phase
from streamtopology.contract.stats import LiveExecutor, Slot
from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord
from streamtopology.jobs.checkpoint.location import checkpoint_uri
from streamtopology.jobs.connectors.sinks.dead_letters import FOLDER as DEAD_LETTERS
from streamtopology.jobs.connectors.sources.descriptors import SourceError
from streamtopology.jobs.driver.batch_loop import BatchLoop
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.driver.publisher import Publisher
from streamtopology.jobs.driver.watermarks import END_OF_TIME, Watermarks
from streamtopology.jobs.observe.history import History, RunningBatch
from streamtopology.jobs.observe.stats import Standing
from streamtopology.jobs.operators import load as load_operator
from streamtopology.jobs.own_command import DEFAULT_WORK_DIR
from streamtopology.jobs.plan.as_of import keyed_nodes, plan_as_of
from streamtopology.jobs.realtime.desk_socket import DeskSocket
from streamtopology.jobs.realtime.runner import RealTimeRunner
from streamtopology.jobs.realtime.secure import Keys
from streamtopology.jobs.rerouting.gradual import GradualSwitching
from streamtopology.jobs.rerouting.precopy import Precopy, PrecopyProcess
from streamtopology.jobs.rerouting.router import InProcessRouter
from streamtopology.jobs.runtime.begun import begun_checkpoint
from streamtopology.jobs.runtime.first_plan import first_plan
from streamtopology.jobs.runtime.preflight.checks import check_before_start, source_schemas
from streamtopology.jobs.runtime.preflight.cpu_doubts import cpu_warning, thousandths_meant
from streamtopology.jobs.runtime.preflight.sink_columns import rows_of_sinks
from streamtopology.jobs.runtime.streaming_query import Drain, TopologyQuery, Until, source_frames, spark_schemas, unread_text
from streamtopology.jobs.spark.cluster import Cluster, WorkersRun, executor_slots
from streamtopology.jobs.spark.executors import ExecutorInfo
from streamtopology.jobs.view.run_ending import LeftBehind
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.epochs.rescaling import slot_names, with_replicas
from streamtopology.topology import Level, Topology, difference, format_cpu, load, parse_cpu
from streamtopology.tracing.span import Emit

if TYPE_CHECKING:
    from streamtopology.jobs.spark.attempt_runner import SparkAttemptRunner


@dataclass(frozen=True)
class RunOptions:
    """The end of the run, the folder of the checkpoint if the manifest names none, and the checkpoint that was used before.

    Unless it `decides`, the run takes its epochs from outside (an operator) and only measures. `warming_up`: the text for
    people while it warms up, if there is more to say than that. `trace` gets the spans of each batch, where traces are on.
    `owner`: the topology's name in its checkpoint, if it had another there.
    """

    until: Until = field(default_factory=Until)
    work_dir: Path = DEFAULT_WORK_DIR
    decides: bool = True
    warming_up: str = ""
    former_checkpoint: str = ""
    trace: Emit | None = None
    owner: str = ""


def new_history(topology: Topology, hides_keys: bool = False) -> History:
    """Return the history of a future run; its slots get their numbers with its first plan."""
    slots = executor_slots(topology)
    infos = tuple(Slot(index, slot.name, slot.class_name, slot.cpu) for index, slot in enumerate(slots))
    return History(topology.name, infos, policies_of(topology), hides_keys=hides_keys)


def policies_of(topology: Topology) -> dict[str, str]:
    return {operator.name: operator.grouping.policy for operator in topology.operators}


def drain_answer(unread: Mapping[str, str], running: RunningBatch | None, now: bool) -> str:
    """Return the answer to a drain, of sources that hold the `unread` input while the batch `running` runs, if any."""
    if running is None:
        before, after = "", ""
    else:
        before = f"batch {running.number} is still running, for {formatting.duration(running.seconds)} now; "
        after = " after it"
    if not unread:
        return f"{before}the sources hold nothing more: closing all open windows{after}"
    if now:
        return f"{before}{unread_text(unread)}: their rows will be late, as all windows close{after or ' now'}"
    reading = f"reading them{after or ' first'}, then closing all windows"
    return f"{before}{unread_text(unread)}: {reading}; --now closes without reading them, and makes them late"


def _unsaid(text: str) -> None:
    """Nobody hears of a plan that is made to see whether it can be."""


class TopologyRun:
    """One run of a topology on a cluster that is up. `history` records its course, `bound()` its best possible throughput."""

    def __init__(self, cluster: Cluster, topology: Topology, base_dir: Path, history: History, options: RunOptions) -> None:
        self._cluster = cluster
        self._history = history
        self._options = options
        self._base_dir = base_dir
        self._real_time = topology.trigger.real_time
        is_read_by_spark = any(not source.reads_descriptors for source in topology.sources)
        frames = source_frames(cluster.spark, topology, base_dir) if is_read_by_spark else {}
        schemas = source_schemas(topology, spark_schemas(topology, frames))
        plan_on = partial(first_plan, topology, schemas, base_dir)
        self.checkpoint = begun_checkpoint(
            replace(topology, name=options.owner or topology.name),
            checkpoint_uri(topology, options.work_dir),
            options.former_checkpoint,
            lambda source: plan_on(source, _unsaid),
            self.notify,
        )
        self._planned_on = max(self.checkpoint.commits(), default=None)
        plan = plan_on(self.checkpoint, self.notify)
        copier = PrecopyProcess if options.decides else None  # elsewhere the operator starts a Job
        self._precopy = Precopy(self.checkpoint, copier, self.notify, time.monotonic)
        self._router = InProcessRouter(
            plan,
            self.checkpoint,
            Controller(topology.rebalance, time.monotonic),
            history,
            self._declared_cpu,
            time.monotonic,
            options.decides,
            self._precopy,
        )
        self._start_missing(topology)
        self._publisher = Publisher.of(self.checkpoint, topology, base_dir, rows_of_sinks(topology, plan.compile()))
        self._undo = ExitStack()
        self._leave_executors: Callable[[], None] = lambda: None  # tasks of Spark hold none between batches
        self._batches_run = f"{self.checkpoint.run}/{uuid.uuid4().hex[:8]}"
        self._runner = self._attempt_runner(reads_rows=bool(frames))
        self._driver = BatchLoop(
            runner=self._runner,
            checkpoint=self.checkpoint,
            router=self._router,
            publisher=self._publisher,
            compaction=Compaction(self.checkpoint, notify=self.notify),
            switching=GradualSwitching(self.checkpoint, self.notify),
            watermarks=Watermarks(topology.sources),
            run=self._batches_run,
            notify=self.notify,
            begins=history.batch_begins,
            loses=history.attempt_lost,
            settled=self._release,
            trace=options.trace,
        )
        self._changed_by = plan.epoch.number
        self._folder = self.checkpoint.spark_folder()
        if self._folder.has_been_mended:
            self.notify("Spark's offset log was behind, ahead or damaged; the run continues from its newest commit")
        self._query = TopologyQuery(topology, frames, self._folder, self._driver, history.input_waits)

    def stream(self) -> None:
        """Run the stream until the options say so, the input ends, or `stop` is called."""
        for _ in self.turns():
            """Nobody else wants a turn."""

    def turns(self) -> Generator[None]:
        """As `stream`; yield after each turn but the last, when the executors are free for another run."""
        with ExitStack() as undo:
            undo.enter_context(self._undo)
            undo.callback(self._folder.close)
            undo.callback(self._publisher.close)
            undo.callback(self._driver.compaction.close)
            undo.enter_context(self._runner.rehearsing(self._driver.rehearse_on))
            undo.callback(self._precopy.close)
            for _ in undo.enter_context(closing(self._query.turns(self._options.until, self._prepare))):
                self._leave_executors()
                yield
                self._driver.warm_up(rounds=1)  # so that no batch waits for workers to start again

    def _attempt_runner(self, reads_rows: bool) -> SparkAttemptRunner | RealTimeRunner:
        """The runner of attempts, as the trigger wants it."""
        cluster = self._cluster
        if not self._real_time:
            from streamtopology.jobs.spark.attempt_runner import SparkAttemptRunner

            return SparkAttemptRunner(cluster.spark, cluster.watch, cluster.slot_of, reads_rows)
        run = uuid.uuid4().hex
        socket = self._undo.enter_context(DeskSocket(Keys.of_run(cluster.secret, run), cluster.desk_listens))
        workers = cluster.workers(
            WorkersRun(run, socket.address, self.checkpoint.next_driver(cluster.served), self._batches_run)
        )
        runner = RealTimeRunner(socket.desk, workers)
        self._undo.callback(runner.close)
        self._leave_executors = runner.close
        return runner

    def standing(self) -> Standing:
        """Return the current state of the run, which `/stats` shows along with its history."""
        admitted = {executor.id for executor in self._cluster.watch.admitted()}
        return Standing(
            routing=self._router.epoch,
            newest_epoch=self._router.ready().epoch.number,
            bound=self.bound(),
            checkpoint=self.checkpoint.uri,
            executors=[self._executor(executor, executor.id in admitted) for executor in self._cluster.watch.present()],
            lag=self._query.lag,
            watermark=self.watermark,
            at=time.time(),
        )

    @property
    def watermark(self) -> float | None:
        """The watermark, in seconds since 1970; None if there is none yet."""
        return self._driver.watermarks.current()

    def _executor(self, executor: ExecutorInfo, admitted: bool) -> LiveExecutor:
        name = self._cluster.slot_of(executor)
        slot = next((slot for slot in self._history.slots if slot.present and slot.executor == name), None)
        class_name = executor.attributes.get("CLASS", "") if slot is None else slot.class_name
        number = None if slot is None else slot.index
        return LiveExecutor(executor.id, class_name, executor.attributes.get("POD_NAME"), number, admitted)

    def _prepare(self) -> None:
        self._history.enter(Phase.WARMING_UP, self._options.warming_up)
        if self._cluster.is_warm:
            self.notify("the executors of the driver before, which was killed, go on with their state")
        else:
            with self._cluster.unlimited():
                self._driver.warm_up()
        if self._planned_on is not None:  # which takes as long as the sinks do, a function of the user's among them
            self._history.enter(Phase.WARMING_UP, f"the sinks get batch {self._planned_on}, unless they have it")
        newest = self._driver.resume(self._planned_on)
        if newest is not None:
            self.notify(f"continuing with batch {newest.batch + 1}: batch {newest.batch} is the newest one committed")
        self._history.enter(Phase.RUNNING)

    @property
    def router(self) -> InProcessRouter:
        """The source of the run's epochs; an epoch made elsewhere can be published here."""
        return self._router

    def bound(self) -> float:
        return self._router.bound()

    def stop(self, drain: bool = False, now: bool = False) -> str:
        """Finish the running batch, then stop; the next run resumes from the checkpoint.

        `drain`: the input is complete. What the sources hold at this moment is read first, or `now` not even that; then a
        last batch flushes partials and closes all windows for good.
        """
        if not drain:
            self._query.stop()
            return "stopping after the running batch"
        unread = self._query.unread()
        self._query.stop(Drain.AT_ONCE if now else Drain.AFTER_READING)
        return drain_answer(unread, self._history.running, now)

    def await_input(self, seconds: float) -> bool:
        """See `TopologyQuery.await_input`."""
        return self._query.await_input(seconds)

    def left_behind(self) -> LeftBehind:
        """Return what the run leaves behind now."""
        unread: dict[str, str] = {}
        with suppress(SourceError):  # a broker is away: the last lines do without
            unread = self._query.unread()
        return left_behind(self.checkpoint, self._router.topology, self._base_dir, unread)

    def resize(self, class_name: str, cpu: str) -> str:
        """Change the CPU of a class of executors while they run."""
        cores = parse_cpu(cpu)
        machine = os.cpu_count() or 1
        if cores > machine and (slip := thousandths_meant(class_name, cores)):
            raise ValueError(f"class {class_name}: {slip} nothing is changed")
        self._cluster.resize(class_name, cores)
        self.notify(f"class {class_name} now has {format_cpu(cores)} CPU per executor")
        return f"class {class_name}: {format_cpu(cores)} CPU per executor, at once{self._cpu_warning()}"

    def apply_file(self, path: str) -> str:
        """Apply the manifest at `path` to the running topology, if that needs no restart."""
        return self.apply(load(Path(path)))

    def scale(self, class_name: str, replicas: int) -> str:
        """Change the number of executors of a class, while the others keep running."""
        answer = self.apply(with_replicas(self._router.topology, class_name, replicas), fit_limits=False)
        return f"{answer}{self._cpu_warning()}"

    def apply(self, topology: Topology, fit_limits: bool = True) -> str:
        """Run `topology` in place of the current one. Raises ValueError if that needs a restart or is impossible.

        `fit_limits`: executors get the CPU that it states, also those that `resize` gave another.
        """
        before = self._router.topology
        change = difference(before, topology)
        if change.level > Level.SCALE:
            raise ValueError(
                f"this needs a restart ({'; '.join(change.sentences)}): stop the topology and run it again; it resumes "
                "from its checkpoint"
            )
        if change.level == Level.IGNORE:
            return f"{self._fit_limits(before, topology) if fit_limits else ''}{self._in_force()}"
        check_before_start(topology, self._base_dir)
        self._cluster.check_room(executor_slots(topology))
        number = self._router.apply(topology, change.sentences)
        self._changed_by = number
        again = self._fit_limits(before, topology) if fit_limits else ""
        self._start_missing(topology)
        self._history.policies = policies_of(topology)
        awaited = self._router.awaited()
        when = f"; {', '.join(awaited)} will take part when warm" if awaited else ""
        return f"{again}epoch {number} runs from the next batch on: {'; '.join(change.sentences)}{when}"

    def _cpu_warning(self) -> str:
        """Return a clause on the CPU that the executors have together, if this machine has less."""
        current = {slot.class_name: slot.cpu for slot in self._cluster.slots}
        return cpu_warning(self._router.topology, current, os.cpu_count() or 1)

    def _in_force(self) -> str:
        """Return since when the run has been what its newest change made it."""
        kept = self._history.batches
        first = next((batch for batch in kept if batch.epoch >= self._changed_by), None)
        if first is None:
            return f"taken already: epoch {self._changed_by} runs from the next batch on"
        if first is kept[0] and self._history.totals.batches > len(kept):
            return f"in force for more than {len(kept):,} batches (epoch {first.epoch})"
        return f"in force since batch {first.number} (epoch {first.epoch})"

    def _fit_limits(self, before: Topology, topology: Topology) -> str:
        """Give each class the CPU that `topology` states, at once; return a clause on each that only `resize` had changed."""
        current = {slot.class_name: slot.cpu for slot in self._cluster.slots}
        changed = [each for each in topology.executors if current.get(each.name, each.cpu) != each.cpu]
        for executor in changed:
            self._cluster.resize(executor.name, executor.cpu)
        again = [executor for executor in changed if executor in before.executors]
        return "".join(f"class {executor.name} has {format_cpu(executor.cpu)} CPU per executor again; " for executor in again)

    def _start_missing(self, topology: Topology) -> None:
        """Start executors for slots that have none, with the current CPU of their class."""
        existing = {slot.name for slot in self._cluster.slots}
        limits = {slot.class_name: slot.cpu for slot in self._cluster.slots}
        missing = [slot for slot in executor_slots(topology) if slot.name not in existing]
        self._cluster.start([replace(slot, cpu=limits.get(slot.class_name, slot.cpu)) for slot in missing])

    def _release(self, placement: Placement) -> None:
        """Release the executors that a committed batch ran without, unless the topology wants them."""
        needed = {*placement.names, *slot_names(self._router.topology)}
        drained = [slot.name for slot in self._cluster.slots if slot.name not in needed]
        if drained:
            self._cluster.release(drained)
            self.notify(f"drained and released: {', '.join(drained)}")

    def _declared_cpu(self) -> dict[str, float]:
        """Return the cores per slot, by the current classes."""
        return {slot.name: slot.cpu for slot in self._cluster.slots}

    def notify(self, text: str) -> None:
        self._history.event(time.time(), self._history.newest, text)


def left_behind(checkpoint: Checkpoint, topology: Topology, base_dir: Path, unread: Mapping[str, str]) -> LeftBehind:
    """Return what `checkpoint` holds, and what sources hold `unread`."""
    commit = checkpoint.last_commit()
    stored = checkpoint.stored()
    fed = newest_fed(checkpoint)
    record = f"commits/{fed}.json"
    return LeftBehind(
        checkpoint=checkpoint.uri,
        bytes=sum(file.bytes for file in stored),
        batch=None if commit is None else commit.batch,
        fed_batch=fed,
        fed_at=next((file.written_at for file in stored if file.path == record), None),
        open_windows={} if commit is None else open_windows(commit, topology, base_dir),
        unread=unread,
        closed=commit is not None and commit.watermark_after == END_OF_TIME,
        dead_letters=checkpoint.where(DEAD_LETTERS),
        keyed_operators=() if commit is None else [node.operator for node in keyed_nodes(plan_as_of(checkpoint, commit))],
    )


def newest_fed(checkpoint: Checkpoint) -> int | None:
    """Return the newest kept batch that has read rows; the flush at the end of a run commits batches without any."""
    return next((number for number in reversed(checkpoint.commits()) if checkpoint.read_commit(number).rows_in), None)


def open_windows(commit: CommitRecord, topology: Topology, base_dir: Path) -> dict[str, int]:
    """Return, by operator with windows, the keys in windows that `commit` leaves open; operators without any are left out."""
    found: dict[str, int] = {}
    for operator in topology.operators:
        cls = load_operator(operator.run, base_dir)
        if cls.drops_late_rows and cls.leaves_out_late(operator.options):
            found[operator.name] = sum(held.keys for held in commit.state.get(operator.name, {}).values())
    return {name: keys for name, keys in found.items() if keys}
