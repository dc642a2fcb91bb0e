"""The data plane without Spark: a driver, a worker per slot, and envelopes handed from stage to stage in one process.

The product's own `OneProcess`, as `streamtopology try` uses it, whose executors may be lost and come back.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord, Lease, SourceEnd
from streamtopology.jobs.connectors.sinks.base import BatchSink, staged_table
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS
from streamtopology.jobs.connectors.sources.descriptors import Descriptor
from streamtopology.jobs.driver.attempt_runner import AttemptRunner, Executor, ExecutorLost, ShuffleLost
from streamtopology.jobs.driver.batch_loop import BatchLoop
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.driver.progress import BatchInput
from streamtopology.jobs.driver.publisher import Publisher
from streamtopology.jobs.driver.watermarks import Poll, Watermarks
from streamtopology.jobs.exchange.collect import collect
from streamtopology.jobs.plan.as_of import plan_as_of
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.results import Results
from streamtopology.jobs.plan.span import Span
from streamtopology.jobs.rerouting.gradual import GradualSwitching, portions_for
from streamtopology.jobs.rerouting.port import Router
from streamtopology.jobs.runtime.first_plan import first_plan
from streamtopology.jobs.runtime.one_process import FixedPlan, OneProcess, Sent
from streamtopology.jobs.runtime.preflight.checks import source_schemas
from streamtopology.jobs.state import RowState, State
from streamtopology.jobs.worker.cache import WorkerCache
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.table.pouring import Pace
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology import Topology, parse
from streamtopology.tracing.span import Emit
from support.reasons import BY_TEST
from support.states import extracted

SLOTS = 4


def manifest(operators: Sequence[Mapping[str, Any]], sources: Mapping[str, str], **spec: Any) -> dict[str, Any]:
    """A manifest over parquet sources (name -> DDL), with a sink of its name for every operator. `watermarks`: by source."""
    watermarks = spec.pop("watermarks", {})
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": "flow"},
        "spec": {
            "sources": [
                {"name": name, "format": "parquet", "schema": ddl, "options": {"path": "unused"}}
                | ({"watermark": watermarks[name]} if name in watermarks else {})
                for name, ddl in sources.items()
            ],
            "operators": list(operators),
            "sinks": [{"name": given["name"], "input": given["name"], "format": "memory"} for given in operators],
            "executors": [{"name": "slot", "replicas": SLOTS, "cpu": "1"}],
            **spec,
        },
    }


def counting(policy: str = "mixed", **spec: Any) -> dict[str, Any]:
    """A manifest whose operator `n` counts the rows of each `k`."""
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": policy, "key": "k"}, "run": "count"}
    return manifest([operator], {"s": "k BIGINT"}, **spec)


def counts(flow: Flow) -> dict[int, int]:
    """Those in the state of `counting`."""
    return {row["k"]: row["count"] for row in flow.state("n")}


def counted(batches: Iterable[Sequence[int]]) -> Counter[int]:
    """The right counts."""
    return Counter(key for keys in batches for key in keys)


@dataclass(frozen=True)
class Loss:
    """An attempt that comes to nothing: after `stages` stages the executor of slot `slot` dies.

    What its worker remembered is gone. It `returns` for the next attempt, or stays away until `Flow.slots` names it.
    Of None nobody dies: what the last of those stages sent arrives nowhere.
    """

    stages: int
    slot: int | None
    returns: bool = True


class Routes(FixedPlan):
    """A router whose plans the test makes; each is an epoch in the checkpoint before it is ready."""

    def __init__(self, plan: ExecutionPlan, checkpoint: Checkpoint) -> None:
        super().__init__(plan, checkpoint)
        self._checkpoint = checkpoint
        self.prepared: ExecutionPlan | None = None
        self.flush = False
        self.pace: Mapping[str, Pace] = {}

    def reroute(self, tables: Mapping[str, RoutingTable], source_shares: tuple[float, ...] = ()) -> None:
        routes: dict[str, Route] = dict(self.plan.epoch.routes)
        for node, table in tables.items():
            routes[node] = replace(routes[node], table=table)
        placement = self.plan.placement
        epoch = Epoch(1 + max(self._checkpoint.epochs()), routes, source_shares, BY_TEST, placement)
        self.plan = replace(self.plan, epoch=epoch)
        self._checkpoint.write_epoch(epoch.number, self.plan.to_json())

    def prepare(self, tables: Mapping[str, RoutingTable]) -> int:
        """A plan whose state is to be pre-copied: it holds the newest commit, and is not ready. Its epoch."""
        running = self.plan
        last = self._checkpoint.last_commit()
        assert last is not None
        assert last.switch is None, "what still moves may not be copied"
        self.reroute(tables)
        self.prepared, self.plan = self.plan, running
        portions = portions_for(running, self.prepared, last)
        lease = Lease(self.prepared.epoch.number, last.batch, running.epoch.number, portions)
        return self._checkpoint.precopies.take(lease).epoch

    def take_up_prepared(self) -> int | None:
        """Resume the copy that was begun, as a restarted driver does while the epoch is still wanted."""
        for lease in self._checkpoint.precopies.leases():
            last = self._checkpoint.last_commit()
            if last is not None and last.epoch == lease.follows and self.plan.epoch.number < lease.epoch:
                self.prepared = ExecutionPlan.from_json(self._checkpoint.read_epoch(lease.epoch))
                return lease.epoch
        return None

    def copied(self) -> None:
        """The prepared plan is ready."""
        assert self.prepared is not None
        self.plan, self.prepared = self.prepared, None

    def must_flush(self) -> bool:
        return self.flush

    def paces(self, plan: ExecutionPlan) -> Mapping[str, Pace]:
        return self.pace


class Kept:
    """A sink that outlives its driver. A batch published again must be the same batch."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        table = staged_table(files)
        if table is not None:
            known = self.batches.setdefault(batch, table)
            assert _comparable(known).equals(_comparable(table))

    def close(self) -> None:
        pass


def _comparable(table: pa.Table) -> pa.Table:
    """The table with floats as texts: NaN differs from itself."""
    columns = [column.cast(pa.string()) if pa.types.is_floating(column.type) else column for column in table.columns]
    return pa.table(columns, names=table.column_names)


class Flow:
    """A topology that runs batch by batch.

    `slots` are the slots whose executors are there, in the order of places, on `host`. `losses` come over the next attempts,
    one each. `meanwhile` is done once, in the middle of the next attempt. `resubmitted`: stages of the next attempt whose
    tasks run twice, the second time by new workers. `skews`: slots whose hosts have clocks of their own, and the seconds by
    which these are ahead. `checkpoint`: its URI, if not in the folder. `clock`: monotonic seconds at which the sources are
    asked for a batch's rows. `wall_clock`: epoch seconds. `worker` makes the memory of a worker process. `end`: where the next
    batches end in their sources, None as former versions recorded it. `trace` gets the spans of each batch. `runner`: of
    attempts, in place of one process.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Mapping[str, Any],
        base_dir: Path | None = None,
        router: Callable[[ExecutionPlan, Checkpoint], Router] = Routes,
        clock: Callable[[], float] = lambda: 0.0,
        sink: Callable[[str, Checkpoint], BatchSink] = lambda name, checkpoint: Kept(),
        checkpoint: str | None = None,
        compaction: Callable[[Checkpoint], Compaction] = Compaction,
        wall_clock: Callable[[], float] = time.time,
        worker: Callable[[], WorkerCache] = WorkerCache,
        trace: Emit | None = None,
        runner: Callable[[Flow], AttemptRunner] | None = None,
    ) -> None:
        self._trace = trace
        self._runner_of = runner or FaultyProcess
        self._compaction_of = compaction
        self._worker_of = worker
        self._folder = folder
        self._base_dir = base_dir or folder
        self._router_of = router
        self._clock = clock
        self._wall_clock = wall_clock
        self._sink_of = sink
        self._files = itertools.count()
        self._runs = itertools.count()
        self.reported: list[str] = []
        self.end = SourceEnd()
        self.sinks: dict[str, BatchSink] = {}
        self._compaction: Compaction | None = None
        self.checkpoint = Checkpoint.open(checkpoint or str(folder / "checkpoint"), "flow")
        self.start(manifest)

    def start(self, manifest: Mapping[str, Any]) -> CommitRecord | None:
        """Start, or start again: nothing is known but the manifest and the checkpoint."""
        if self._compaction is not None:
            self._compaction.close()  # of a driver that is gone: a process that ends takes its threads with it
        self._compaction = self._compaction_of(self.checkpoint)
        self.topology: Topology = parse(dict(manifest))
        self.slots: tuple[int, ...] = tuple(range(self.topology.replicas))
        self.host = "here"
        self.workers = defaultdict[int, WorkerCache](self._worker_of)
        self.losses: list[Loss] = []
        self.paused: list[float] = []
        self.meanwhile: list[Callable[[], object]] = []
        self.resubmitted: list[int] = []
        self.skews: dict[int, float] = {}
        self._next: list[list[str]] = []
        schemas = source_schemas(self.topology, {})
        planned_on = max(self.checkpoint.commits(), default=None)
        plan = first_plan(self.topology, schemas, self._base_dir, self.checkpoint, self.reported.append)
        self.router = self._router_of(plan, self.checkpoint)
        self.driver = BatchLoop(
            runner=self._runner_of(self),
            checkpoint=self.checkpoint,
            router=self.router,
            publisher=self._publisher(),
            compaction=self._compaction,
            switching=GradualSwitching(self.checkpoint, self.reported.append),
            watermarks=Watermarks(self.topology.sources),
            run=f"run {next(self._runs)}",
            notify=self.reported.append,
            settled=self._settle,
            pause=self.paused.append,
            clock=self._wall_clock,
            trace=self._trace,
        )
        return self.driver.resume(planned_on)

    # --- what happens ---

    def batch(self, **inputs: pa.Table) -> CommitRecord:
        """One batch of the rows given by source, or of those that came next, or of none, until it is committed."""
        last = self.checkpoint.last_commit()
        descriptors = self._descriptors_of(inputs) if inputs or not self._next else self._next.pop(0)
        now = self._clock()
        number = 0 if last is None else last.spark_batch + 1
        self.driver.batch(BatchInput(number, descriptors, end=self.end, poll=Poll(now, now)))
        return self.last

    def silence(self) -> None:
        """No rows come until nothing is due any more."""
        for _ in range(2):
            if self.driver.is_due:
                self.driver.batch_without_rows()
        assert not self.driver.is_due, "a batch without rows leaves nothing due"

    def comes_next(self, **inputs: pa.Table) -> None:
        """These rows are there, and read ahead, in the middle of the next batch; the batch after it gets them."""
        following = self._descriptors_of(inputs)
        self._next.append(following)
        self.meanwhile.append(lambda: self.driver.prefetch(following))

    def drain(self, for_good: bool = True) -> CommitRecord:
        self.driver.drain(for_good)
        return self.last

    def warm_up(self) -> None:
        self.driver.warm_up(rounds=2)

    def forget(self, slot: int) -> None:
        """The worker of this slot has died; another has taken its place."""
        self.workers[slot] = self._worker_of()

    # --- current state ---

    @property
    def last(self) -> CommitRecord:
        last = self.checkpoint.last_commit()
        assert last is not None
        return last

    def published(self, sink: str) -> pa.Table:
        """Everything that reached a sink, batch by batch; no columns before the first batch."""
        kept = self.sinks[sink]
        assert isinstance(kept, Kept)
        batches = kept.batches
        return pa.concat_tables(batches[number] for number in sorted(batches)) if batches else pa.table({})

    def states(self, node: str) -> dict[int, State]:
        """The state of every instance as the newest commit names it, read from its files."""
        schema = self._plan().compile().node(node).state
        assert schema is not None
        return {i: self.checkpoint.load_state(ref, schema) for i, ref in self.last.state[node].items()}

    def state(self, node: str) -> list[dict[str, Any]]:
        """All keys and fields of a node, or all rows; AssertionError when some are where they do not belong."""
        table = self._plan().epoch.routes[node].table
        rows: list[dict[str, Any]] = []
        for instance, state in self.states(node).items():
            if table is not None:
                strangers = extracted(state, lambda hashes, here=instance: table.lookup(hashes) != here)
                assert strangers.num_rows == 0, f"instance {instance} of {node} keeps {strangers.to_pylist()} of others"
            if isinstance(state, RowState):
                rows += [{"input": alias, **row} for alias in state.schema.inputs for row in state.rows(alias).to_pylist()]
            else:
                rows += state.snapshot().to_pylist()
        return rows

    def _sink(self, name: str) -> BatchSink:
        if name not in self.sinks:
            self.sinks[name] = self._sink_of(name, self.checkpoint)
        return self.sinks[name]

    def _settle(self, placement: Placement) -> None:
        """End the executors that no batch needs any more, as a cluster does."""
        ended = [slot for slot in self.slots if f"slot-{slot}" not in placement.names and slot >= self.topology.replicas]
        self.slots = tuple(slot for slot in self.slots if slot not in ended)
        for slot in ended:
            self.workers.pop(slot, None)

    def _publisher(self) -> Publisher:
        sinks = {name: self._sink(name) for name in self._sink_names()}
        return Publisher(self.checkpoint, sinks, lambda sink: self._sink(sink.name))

    def _sink_names(self) -> list[str]:
        dead_letters = [DEAD_LETTERS] if self.topology.on_bad_tuple == "deadLetter" else []
        return [*(sink.name for sink in self.topology.sinks), *dead_letters]

    def _plan(self) -> ExecutionPlan:
        return plan_as_of(self.checkpoint, self.last)

    def _descriptors_of(self, inputs: Mapping[str, pa.Table]) -> list[str]:
        return [text for source, table in inputs.items() for text in self._descriptors(source, table)]

    def _descriptors(self, source: str, table: pa.Table) -> list[str]:
        """The rows in a new file, some row groups to share between places."""
        path = self._folder / f"{source}-{next(self._files)}.parquet"
        pq.write_table(table, path, row_group_size=max(1, table.num_rows // 6))
        groups = pq.ParquetFile(path).metadata
        sizes = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
        return [Descriptor(source, "parquet", str(path), i, 0, rows, rows).to_json() for i, rows in enumerate(sizes) if rows]

    def do_meanwhile(self) -> None:
        for act in self.meanwhile:
            act()
        self.meanwhile.clear()


class FaultyProcess(OneProcess):
    """One process whose executors come, die and return as `flow` says."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(())
        self._flow = flow

    def executors(self) -> list[Executor]:
        """Every executor of `Flow.slots` is there."""
        return [Executor(str(slot), self._flow.host, f"slot-{slot}") for slot in self._flow.slots]

    def worker(self, slot: int) -> WorkerCache:
        return self._flow.workers[slot]

    def run(
        self,
        attempt: Attempt,
        depth: int,
        executors: Sequence[Executor],
        rows: None = None,
        prefetched: Sent | None = None,
    ) -> Results:
        loss = self._flow.losses.pop(0) if self._flow.losses else None
        sent: Sent = [[] for _ in range(attempt.partitions)]
        for level in range(depth + 1):
            if loss is not None and loss.stages <= level:
                break
            if level in self._flow.resubmitted:
                self._flow.resubmitted.remove(level)
                self._stage(attempt, level, sent, None)
                self._flow.workers.clear()
            sent = self._stage(attempt, level, sent, prefetched)
            if level == 0:
                self._flow.do_meanwhile()
        if loss is not None:
            self._lose(loss)
        return self._by_own_clocks(collect(itertools.chain.from_iterable(sent)))

    def _stage(self, attempt: Attempt, level: int, sent: Sent, prefetched: Sent | None) -> Sent:
        return self.stage(attempt, level, sent) if level else self.first_stage(attempt, prefetched)

    def _lose(self, loss: Loss) -> NoReturn:
        if loss.slot is None:
            raise ShuffleLost
        self._flow.forget(loss.slot)
        if not loss.returns:
            self._flow.slots = tuple(slot for slot in self._flow.slots if slot != loss.slot)
        raise ExecutorLost([f"slot-{loss.slot}"])

    def _by_own_clocks(self, results: Results) -> Results:
        def own(slot: int, span: Span) -> Span:
            ahead = self._flow.skews.get(slot)
            return span if ahead is None else Span(f"host of {slot}", span.began_at + ahead, span.ended_at + ahead)

        return replace(
            results,
            instances=[replace(result, span=own(result.report.slot, result.span)) for result in results.instances],
            source_tasks=[replace(task, span=own(task.report.slot, task.span)) for task in results.source_tasks],
        )


def random_table(random: np.random.Generator, instances: int, hashes: np.ndarray | None = None) -> RoutingTable:
    """Any table: buckets at random, and entries at random for some of `hashes` (uint64[])."""
    buckets = random.integers(0, instances, 64, np.int32)
    table = RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), buckets)
    if hashes is None or not len(hashes):
        return table
    chosen = np.unique(random.choice(hashes, len(hashes) // 2 + 1))
    return table.with_entries(chosen, random.integers(0, instances, len(chosen), np.int32))
