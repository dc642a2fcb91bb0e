"""The data plane without Spark: a driver, a worker per slot, and envelopes handed from stage to stage in one process.

Everything is the real thing (driver, checkpoint, stages, sinks) but for what Spark does between: it starts one task per
place and stage, and gives each task the blob that every task of the stage before sent to its place.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamtopology.jobs import driver as driver_module
from streamtopology.jobs import reading_ahead, tasks
from streamtopology.jobs.batch import Attempt, Plan
from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord, Lease
from streamtopology.jobs.driver import Committed, Driver, Router
from streamtopology.jobs.executors import ExecutorLost, ExecutorWatch, ShuffleLost
from streamtopology.jobs.inspect_state import plan_as_of
from streamtopology.jobs.pinning import ExecutorInfo
from streamtopology.jobs.portions import Switching, portions_for
from streamtopology.jobs.publishing import DEAD_LETTERS, Publisher
from streamtopology.jobs.runner import _first_plan, source_schemas
from streamtopology.jobs.sinks.base import Sink, staged_table
from streamtopology.jobs.sources.descriptors import Descriptor
from streamtopology.jobs.stages import Results, collect
from streamtopology.jobs.state import RowState, State
from streamtopology.jobs.upkeep import Upkeep
from streamtopology.jobs.watermarks import Watermarks
from streamtopology.jobs.worker import Worker
from streamtopology.routing.epoch import Epoch, Route
from streamtopology.routing.placement import Placement
from streamtopology.routing.table import RoutingTable
from streamtopology.routing.topology import Topology, parse

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


@dataclass(frozen=True)
class Loss:
    """An attempt that comes to nothing: after `stages` stages the executor of slot `home` dies.

    What its worker remembered is gone. It `returns` for the next attempt, or stays away until `Flow.homes` names it.
    Of None nobody dies: what the last of those stages sent arrives nowhere.
    """

    stages: int
    home: int | None
    returns: bool = True


class Routes:
    """A router whose plans the test makes; each is an epoch in the checkpoint before it is ready."""

    def __init__(self, plan: Plan, checkpoint: Checkpoint) -> None:
        self.plan = plan
        self._checkpoint = checkpoint
        self.prepared: Plan | None = None
        self.flush = False
        self.done: list[Committed] = []
        checkpoint.write_epoch(plan.epoch.number, plan.to_json())

    def reroute(self, tables: Mapping[str, RoutingTable], source_shares: tuple[float, ...] = ()) -> None:
        routes: dict[str, Route] = dict(self.plan.epoch.routes)
        for node, table in tables.items():
            routes[node] = replace(routes[node], table=table)
        placement = self.plan.placement
        epoch = Epoch(1 + max(self._checkpoint.epochs()), routes, source_shares, "the test says so", placement)
        self.plan = replace(self.plan, epoch=epoch)
        self._checkpoint.write_epoch(epoch.number, self.plan.to_json())

    def prepare(self, tables: Mapping[str, RoutingTable]) -> int:
        """A plan whose state is to be copied ahead: it holds the newest commit, and is not ready. Its epoch."""
        running = self.plan
        last = self._checkpoint.last_commit()
        assert last is not None
        assert last.switch is None, "what still moves may not be copied"
        self.reroute(tables)
        self.prepared, self.plan = self.plan, running
        portions = portions_for(running, self.prepared, last)
        lease = Lease(self.prepared.epoch.number, last.batch, running.epoch.number, portions)
        return self._checkpoint.migrations.take(lease).epoch

    def take_up_prepared(self) -> int | None:
        """What a driver that comes back does when the epoch is still wanted: go on with the copy that was begun."""
        for lease in self._checkpoint.migrations.leases():
            last = self._checkpoint.last_commit()
            if last is not None and last.epoch == lease.follows and self.plan.epoch.number < lease.epoch:
                self.prepared = Plan.from_json(self._checkpoint.read_epoch(lease.epoch))
                return lease.epoch
        return None

    def copied(self) -> None:
        """The prepared plan is ready."""
        assert self.prepared is not None
        self.plan, self.prepared = self.prepared, None

    def ready(self) -> Plan:
        return self.plan

    def must_flush(self) -> bool:
        return self.flush

    def arrived(self, slots: Collection[str]) -> None:
        pass

    def active(self, epoch: int, batch: int) -> None:
        pass

    def committed(self, done: Committed) -> None:
        self.done.append(done)


class Kept:
    """A sink that outlives its driver. A batch published again must be the same batch."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def publish(self, batch: int, files: Sequence[Path]) -> None:
        table = staged_table(files)
        if table is not None:
            assert self.batches.setdefault(batch, table).equals(table)

    def close(self) -> None:
        pass


class Flow:
    """A topology that runs batch by batch.

    `homes` are the slots whose executors are there, in the order of places, on `host`. `losses` come over the next attempts,
    one each. `meanwhile` is done once, in the middle of the next attempt. `checkpoint`: its URI, if not in the folder.
    """

    def __init__(
        self, folder: Path, manifest: Mapping[str, Any], base_dir: Path | None = None,
        router: Callable[[Plan, Checkpoint], Router] = Routes, clock: Callable[[], float] = lambda: 0.0,
        sink: Callable[[str, Checkpoint], Sink] = lambda name, checkpoint: Kept(), checkpoint: str | None = None,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._base_dir = base_dir or folder
        self._router_of = router
        self._clock = clock
        self._sink_of = sink
        self._files = itertools.count()
        self._runs = itertools.count()
        self.told: list[str] = []
        self.sinks: dict[str, Sink] = {}
        self._upkeep: Upkeep | None = None
        self.checkpoint = Checkpoint.open(checkpoint or str(folder / "checkpoint"), "flow")
        self.start(manifest)

    def start(self, manifest: Mapping[str, Any]) -> CommitRecord | None:
        """Start, or start again: nothing is known but the manifest and the checkpoint."""
        if self._upkeep is not None:
            self._upkeep.close()  # of a driver that is gone: a process that ends takes its threads with it
        self._upkeep = Upkeep(self.checkpoint)
        self.topology: Topology = parse(dict(manifest))
        self.homes: tuple[int, ...] = tuple(range(self.topology.replicas))
        self.host = "here"
        self.workers = defaultdict[int, Worker](Worker)
        self.losses: list[Loss] = []
        self.paused: list[float] = []
        self.meanwhile: list[Callable[[], object]] = []
        self._next: list[list[str]] = []
        plan = _first_plan(self.topology, source_schemas(self.topology, {}), self._base_dir, self.checkpoint)
        self.router = self._router_of(plan, self.checkpoint)
        self.driver = Driver(
            spark=cast(Any, SimpleNamespace(sparkContext=None)), checkpoint=self.checkpoint,
            watch=cast(ExecutorWatch, _Watch(self)), router=self.router,
            publisher=Publisher(self.checkpoint, {name: self._sink(name) for name in self._sink_names()}),
            upkeep=self._upkeep, switching=Switching(self.checkpoint, self.told.append),
            watermarks=Watermarks(self.topology.sources, self._clock),
            slot_of=lambda executor: executor.id, settled=self._settle, run=f"run {next(self._runs)}", tell=self.told.append,
            pause=self.paused.append,
        )  # fmt: skip
        return self.driver.resume()

    # --- what happens ---

    def batch(self, **inputs: pa.Table) -> CommitRecord:
        """One batch of the rows given by source, or of those that came next, or of none, until it is committed."""
        last = self.checkpoint.last_commit()
        descriptors = self._descriptors_of(inputs) if inputs or not self._next else self._next.pop(0)
        with _spark_is(self._run_attempt, self._read_ahead):
            self.driver.batch(descriptors, None, 0 if last is None else last.spark_batch + 1)
        return self.last

    def comes_next(self, **inputs: pa.Table) -> None:
        """These rows are there, and read ahead, in the middle of the next batch; the batch after it gets them."""
        following = self._descriptors_of(inputs)
        self._next.append(following)
        self.meanwhile.append(lambda: self.driver.read_ahead(following))

    def drain(self, for_good: bool = True) -> CommitRecord:
        with _spark_is(self._run_attempt, self._read_ahead):
            self.driver.drain(for_good)
        return self.last

    def warm_up(self) -> None:
        with _spark_is(self._run_attempt, self._read_ahead):
            self.driver.warm_up(rounds=2)

    def forget(self, home: int) -> None:
        """The worker of this slot has died; another has taken its place."""
        self.workers[home] = Worker()

    # --- what is there ---

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
                strangers = state.extract(lambda hashes, here=instance: table.lookup(hashes) != here)
                assert strangers.num_rows == 0, f"instance {instance} of {node} keeps {strangers.to_pylist()} of others"
            if isinstance(state, RowState):
                rows += [{"input": alias, **row} for alias in state.schema.inputs for row in state.rows(alias).to_pylist()]
            else:
                rows += state.snapshot().to_pylist()
        return rows

    def _sink(self, name: str) -> Sink:
        if name not in self.sinks:
            self.sinks[name] = self._sink_of(name, self.checkpoint)
        return self.sinks[name]

    def _settle(self, placement: Placement) -> None:
        """End the executors that no batch needs any more, as a cluster does."""
        ended = [home for home in self.homes if f"slot-{home}" not in placement.names and home >= self.topology.replicas]
        self.homes = tuple(home for home in self.homes if home not in ended)
        for home in ended:
            self.workers.pop(home, None)

    def _sink_names(self) -> list[str]:
        dead_letters = [DEAD_LETTERS] if self.topology.on_bad_tuple == "deadLetter" else []
        return [*(sink.name for sink in self.topology.sinks), *dead_letters]

    def _plan(self) -> Plan:
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

    # --- in place of Spark ---

    def _run_attempt(self, spark: Any, attempt: Attempt, depth: int, executors: Any, frame: Any, ahead: Any = None) -> Results:
        loss = self.losses.pop(0) if self.losses else None
        sent: list[list[bytes]] = ahead or [[] for _ in range(attempt.places)]
        for level in range(depth + 1):
            if loss is not None and loss.stages <= level:
                break
            if level > 0 or ahead is None:
                sent = self._run_stage(attempt, level, sent)
            elif attempt.hands_over:
                sent = [[*before, *state] for before, state in zip(sent, self._send_state(attempt), strict=True)]
            if level == 0:
                self._do_meanwhile()
        if loss is not None:
            self._lose(loss)
        return collect(itertools.chain.from_iterable(sent))

    def _lose(self, loss: Loss) -> NoReturn:
        if loss.home is None:
            raise ShuffleLost
        self.forget(loss.home)
        if not loss.returns:
            self.homes = tuple(home for home in self.homes if home != loss.home)
        raise ExecutorLost([str(loss.home)])

    def _read_ahead(self, spark: Any, attempt: Attempt, executors: Any) -> list[list[bytes]]:
        return self._run_stage(attempt, 0, [[] for _ in range(attempt.places)])

    def _run_stage(self, attempt: Attempt, level: int, sent: Sequence[Sequence[bytes]]) -> list[list[bytes]]:
        """What every place gets next."""

        def work(place: int, worker: Worker) -> list[pa.Buffer]:
            if level == 0:
                return tasks.read_at(place, attempt, worker)
            return tasks.turns_at(place, attempt, level, worker, sent[place])

        return self._exchange(attempt, attempt.readers if level == 0 else range(attempt.places), work)

    def _send_state(self, attempt: Attempt) -> list[list[bytes]]:
        return self._exchange(attempt, range(attempt.places), lambda place, worker: tasks.state_at(place, attempt, worker))

    def _exchange(
        self, attempt: Attempt, places: Iterable[int], work: Callable[[int, Worker], list[pa.Buffer]]
    ) -> list[list[bytes]]:  # fmt: skip
        """By place, the envelope that each task sends to it, in no order that may be relied upon."""
        received: list[list[bytes]] = [[] for _ in range(attempt.places)]
        for place in places:
            envelopes = work(place, self.workers[attempt.homes[place]])
            assert len(envelopes) == attempt.places, "an exchange wants one blob per place"
            for target, envelope in enumerate(envelopes):
                received[target].insert(0, envelope.to_pybytes())
        return received

    def _do_meanwhile(self) -> None:
        for act in self.meanwhile:
            act()
        self.meanwhile.clear()


class _Watch:
    """Every executor of `Flow.homes` is there."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def admitted(self) -> list[ExecutorInfo]:
        return [ExecutorInfo(f"slot-{home}", self._flow.host, {}) for home in self._flow.homes]

    def await_admitted(self, wanted: Callable[[ExecutorInfo], bool]) -> list[ExecutorInfo]:
        return [executor for executor in self.admitted() if wanted(executor)]

    @contextmanager
    def guard(self, slots: object) -> Iterator[None]:
        yield


def random_table(random: np.random.Generator, instances: int, hashes: np.ndarray | None = None) -> RoutingTable:
    """Any table: buckets at random, and entries at random for some of `hashes` (uint64[])."""
    buckets = random.integers(0, instances, 64, np.int32)
    table = RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), buckets)
    if hashes is None or not len(hashes):
        return table
    chosen = np.unique(random.choice(hashes, len(hashes) // 2 + 1))
    return table.with_entries(chosen, random.integers(0, instances, len(chosen), np.int32))


@contextmanager
def _spark_is(run_attempt: Callable[..., Results], read_ahead: Callable[..., Any]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver_module, "run_attempt", run_attempt)
        patch.setattr(driver_module, "begin_batch", lambda context, batch: None)
        patch.setattr(reading_ahead, "read_ahead", read_ahead)
        yield
