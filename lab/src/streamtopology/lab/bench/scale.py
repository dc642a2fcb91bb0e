"""What a batch costs the driver as executors grow: CPU of each of its parts, and bytes.

    streamtopology bench scale --executors 64 --executors 256

Batch loop, runner of real time, controller, checkpoint, history with metrics and log, `/stats` and the sink are the real ones.
Executors are scripted (`scripted_workers`), and their time is not counted. Left out is what Spark and the sockets need.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pyspark import cloudpickle

from streamtopology.contract import routing_configmap
from streamtopology.contract.phases import Phase
from streamtopology.contract.stats_question import Question
from streamtopology.jobs.checkpoint import Checkpoint, SourceEnd
from streamtopology.jobs.connectors.sources.descriptors import Descriptor
from streamtopology.jobs.driver import batch_loop
from streamtopology.jobs.driver.batch_loop import BatchLoop
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.driver.host_clocks import HostClocks
from streamtopology.jobs.driver.progress import BatchInput
from streamtopology.jobs.driver.publisher import Publisher
from streamtopology.jobs.driver.watermarks import Poll, Watermarks
from streamtopology.jobs.malloc import collect_garbage_seldom, keep_freed_memory
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.stats import Standing, build_stats
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.pods.log_lines import LogLines
from streamtopology.jobs.realtime import runner as realtime
from streamtopology.jobs.realtime.runner import RealTimeRunner
from streamtopology.jobs.rerouting import router as rerouting
from streamtopology.jobs.rerouting.gradual import GradualSwitching
from streamtopology.jobs.rerouting.router import InProcessRouter
from streamtopology.jobs.runtime.first_plan import first_plan
from streamtopology.jobs.runtime.preflight.checks import source_schemas
from streamtopology.jobs.runtime.topology_run import new_history
from streamtopology.jobs.view.prometheus import Metrics
from streamtopology.jobs.worker.stage_tasks import node_stage, read_stage
from streamtopology.lab.bench.cluster import announce
from streamtopology.lab.bench.figures import figure, machine, met
from streamtopology.lab.bench.part_times import GARBAGE, Call, PartTimes
from streamtopology.lab.bench.scripted_workers import KEYS, ROWS, ScriptedWorkers
from streamtopology.lab.bench.soak import resident_bytes
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.control.feed import CommittedBatch
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.epochs.rescaling import slot_names
from streamtopology.topology import parse

DEPTH = 2  # levels of operators
FILES = 4  # for each executor in a batch
ENTRIES = 3_000  # of a routing table, as many as `maxTableEntries` allows by default
# The last batches, at most half of all: the controller's window is full by then, and so are chains of deltas. Not every batch
# sums up loads or collects garbage, so a value is the mean of a group of them.
MEASURED, GROUPS = 32, 4
# CPU of each part of the driver, from the second largest number of executors to the largest one.
LARGEST_EXPONENT = 1.1

WHOLE, UNJUDGED = "whole batch", "whole batch, not judged"
EXECUTORS, JUDGE, REST = "executors", "judge and bound", "rest of the batch loop"
STATS, SPARK = "/stats as observed", "stages pickled for Spark"
# Not of the batch: executors are elsewhere, controllers ask another thread, and Spark's runner takes the place of ours.
BESIDE = (EXECUTORS, STATS, SPARK)
PARTS: Mapping[str, Sequence[Call]] = {
    EXECUTORS: [(ScriptedWorkers, "answer")],
    "executors that arrived": [(InProcessRouter, "arrived")],
    "descriptors dealt": [(batch_loop, "deal")],
    "instances placed": [(batch_loop, "place_instances")],
    "attempt pickled, sent": [(RealTimeRunner, "_order")],
    "reports decoded": [(realtime, "collect")],
    "clocks, barriers": [(HostClocks, "by_driver"), (batch_loop, "between_barriers")],
    "batch record": [(Checkpoint, "record"), (Checkpoint, "batch_records")],
    "commit": [(batch_loop, "state_after"), (Compaction, "adopt"), (Checkpoint, "commit")],
    "compaction": [(Compaction, "after")],
    "publish": [(Publisher, "publish")],
    "sums of loads": [(CommittedBatch, "observed"), (Controller, "observe")],
    "capacities": [(Controller, "model")],
    JUDGE: [(Controller, "step"), (Controller, "binding")],
    "history, metrics, log": [(rerouting, "batch_outcome"), (History, "batch_begins"), (History, "batch_done")],
}

SHOWN = (*(part for part in PARTS if part != EXECUTORS), REST, GARBAGE, SPARK, STATS)

Series = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Measured:
    """The last batches with so many `executors`: `parts` in ms of CPU, `sizes` in kB: means of groups of them.

    `rows`: in the history of the run; `expected`: what executors reported. `reroutings`: none, as loads are even.
    """

    executors: int
    parts: Series
    sizes: Series
    rows: int
    expected: int
    reroutings: int


def run(executors: tuple[int, ...] = (4, 16, 64, 256), batches: int = 72) -> dict[str, Any]:
    """`batches` batches with each number of executors; of the last ones the CPU of each part, and how it grows."""
    keep_freed_memory()  # as `streamtopology run` does
    collect_garbage_seldom()
    taken = [measure(count, batches) for count in sorted(set(executors))]
    results = [*_lines(taken, lambda one: one.parts, "ms", LARGEST_EXPONENT), *_lines(taken, lambda one: one.sizes, "kB", None)]
    missed = [line["case"] for line in results if line["unit"] == met(False)]
    wrong = sum(abs(one.expected - one.rows) for one in taken)
    described = machine(batches=batches, rows_per_executor=ROWS, keys_per_instance=KEYS, missed=missed)
    check = {"rows counted wrong": wrong, "re-routings": sum(one.reroutings for one in taken)}
    return {"name": "scale", "machine": described, "results": results, "check": check}


def _lines(
    taken: Sequence[Measured], of: Callable[[Measured], Series], unit: str, bar: float | None
) -> Iterator[dict[str, Any]]:
    for name in of(taken[0]):
        yield from (figure(name, f"{one.executors} executors", unit, of(one)[name]) for one in taken)
        costs = [(one.executors, statistics.median(of(one)[name])) for one in taken[-2:]]
        if len(costs) == 2 and costs[0][1] > 0 < costs[1][1]:  # few executors may leave no garbage
            exponent = growth(*costs)
            yield figure(name, "growth exponent", "" if bar is None else met(exponent <= bar), [exponent])


def growth(before: tuple[int, float], after: tuple[int, float]) -> float:
    """The exponent by which a cost grows from one (number, cost) to another: 1 is in step with the number."""
    return math.log(after[1] / before[1]) / math.log(after[0] / before[0])


def measure(executors: int, batches: int) -> Measured:
    """Run the batches with so many executors, in a folder in memory where there is one."""
    memory = Path("/dev/shm")
    times = PartTimes()
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder, ExitStack() as undo:
        undo.enter_context(times.measuring(PARTS))
        driver = _Driver(Path(folder), executors, times, undo)
        done = [driver.batch() for _ in range(batches)][-min(MEASURED, max(batches // 2, 1)) :]
        announce(f"{executors} executors: {statistics.median(parts[WHOLE] for parts, _ in done):.1f} ms of CPU a batch")
        sizes = {**_by_name(sizes for _, sizes in done), **driver.lasting_sizes()}
        counted, history = batches * executors * ROWS, driver.history
        parts = _by_name(parts for parts, _ in done)
        return Measured(executors, parts, sizes, history.totals.rows, counted, history.rerouting_count)


def _by_name(batches: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    every = list(batches)
    size = math.ceil(len(every) / GROUPS)
    groups = [every[start : start + size] for start in range(0, len(every), size)]
    return {name: [statistics.fmean(batch[name] for batch in group) for group in groups] for name in every[0]}


class _Driver:
    """A driver of two operators, one after the other, with scripted executors. Its clock goes on by a second a batch."""

    def __init__(self, folder: Path, executors: int, times: PartTimes, undo: ExitStack) -> None:
        self._times = times
        self._random = np.random.default_rng(1)
        self._number = 0
        self._commits = folder / "checkpoint" / "commits"
        topology = parse(manifest(folder, executors))
        (folder / "in").mkdir()
        checkpoint = Checkpoint.open(str(folder / "checkpoint"), topology.name)
        self.history = history = new_history(topology)
        LogLines(history, undo.enter_context((folder / "driver.log").open("w")))
        Metrics(history)
        self._workers = ScriptedWorkers(slot_names(topology), checkpoint)
        plan = first_plan(topology, source_schemas(topology, {}), folder, checkpoint, announce)
        self._workers.route(plan.epoch)
        controller = Controller(topology.rebalance, self._now)
        self._router = InProcessRouter(plan, checkpoint, controller, history, dict, self._now)
        publisher = Publisher.of(checkpoint, topology, folder)
        undo.callback(publisher.close)
        compaction = Compaction(checkpoint, notify=announce)
        undo.callback(compaction.close)
        self._loop = BatchLoop(
            runner=RealTimeRunner(self._workers.desk, self._workers),
            checkpoint=checkpoint,
            router=self._router,
            publisher=publisher,
            compaction=compaction,
            switching=GradualSwitching(checkpoint, announce),
            watermarks=Watermarks(topology.sources),
            run="scale",
            notify=announce,
            begins=history.batch_begins,
            pause=lambda seconds: None,
        )
        self._loop.resume(None)
        history.enter(Phase.RUNNING)

    def batch(self) -> tuple[dict[str, float], dict[str, float]]:
        """Run one; returns its ms of CPU by part, and its kB."""
        number, workers = self._number, self._workers
        sent, reported = workers.sent_bytes, workers.report_bytes
        self._times.timed(REST, self._loop.batch)(self._input())
        assert workers.attempt is not None, "the batch ran"
        for_spark = self._times.timed(SPARK, _spark_bytes)(workers.attempt)
        answer = self._times.timed(STATS, self._stats)()
        self._number += 1
        seconds = self._times.take()
        parts = {part: 1e3 * seconds.get(part, 0.0) for part in SHOWN}
        whole = sum(ms for part, ms in parts.items() if part not in BESIDE)
        parts = {WHOLE: whole, UNJUDGED: whole - parts[JUDGE], **parts}
        sizes = {
            "orders sent": workers.sent_bytes - sent,
            "tasks sent by Spark": for_spark,
            "reports": workers.report_bytes - reported,
            "commit record": (self._commits / f"{number}.json").stat().st_size,
            STATS: len(answer),
        }
        return parts, {name: size / 1e3 for name, size in sizes.items()}

    def lasting_sizes(self) -> Series:
        """What does not change from batch to batch, kB: a routing with full tables as a ConfigMap has it, and memory."""
        packed = routing_configmap.pack(json.dumps(_full(self._router.epoch, self._random).to_wire()))
        return {"routing, packed": [len(packed) / 1e3], "resident memory": [resident_bytes() / 1e3]}

    def _now(self) -> float:
        return float(self._number)

    def _input(self) -> BatchInput:
        rows = self._random.integers(1_500, 2_100, FILES * len(self._workers.executors())).tolist()
        path = f"/data/in/part-{self._number}"
        files = [
            Descriptor("rows", "parquet", f"{path}-{i:05d}.parquet", 0, 0, n, n, 24 * n).to_json() for i, n in enumerate(rows)
        ]
        now = self._now()
        return BatchInput(self._number, files, end=SourceEnd({"rows": self._number}, None), poll=Poll(now, now))

    def _stats(self) -> str:
        """What a controller gets that asks after each batch."""
        epoch = self._router.epoch
        asked = Question(since=self._number - 1, routing=epoch.number, as_observed=True)
        return json.dumps(build_stats(self.history, Standing(epoch, epoch.number), asked))


def _spark_bytes(attempt: Attempt) -> int:
    """Bytes of the stages of `attempt` as Spark sends them: each with every one of its tasks."""
    stages = [node_stage(attempt, level, is_last=level == DEPTH) for level in range(1, DEPTH + 1)]
    reading = len(cloudpickle.dumps(read_stage(attempt))) * len(attempt.reading_partitions)
    return reading + sum(len(cloudpickle.dumps(stage)) for stage in stages) * attempt.partitions


def _full(epoch: Epoch, random: np.random.Generator) -> Epoch:
    """`epoch` with as many entries in its tables as they may have."""
    routes = dict(epoch.routes)
    for operator, route in routes.items():
        assert route.table is not None, "mixed routes by a table"
        hashes = random.integers(0, 2**64, ENTRIES, dtype=np.uint64)
        table = route.table.with_entries(hashes, random.choice(np.array(route.instances, np.int32), ENTRIES))
        routes[operator] = replace(route, table=table)
    return replace(epoch, routes=routes)


def manifest(folder: Path, executors: int) -> dict[str, Any]:
    """Counts by key, and their sums by key into a parquet folder. It is judged after every batch."""
    by_key = {"policy": "mixed", "key": "k"}
    sums = {"aggregates": {"n": "count()", "total": "sum(count)"}}
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": "scale"},
        "spec": {
            "sources": [
                {"name": "rows", "format": "parquet", "schema": "k BIGINT, v BIGINT", "options": {"path": str(folder / "in")}}
            ],
            "operators": [
                {"name": "counts", "inputs": ["rows"], "grouping": by_key, "run": "count"},
                {"name": "sums", "inputs": ["counts"], "grouping": by_key, "run": "aggregate", "with": sums},
            ],
            "sinks": [{"name": "sums", "input": "sums", "format": "parquet", "options": {"path": str(folder / "sums")}}],
            "executors": [{"name": "slot", "replicas": executors, "cpu": "1"}],
            "rebalance": {"interval": "1s", "windowIntervals": 32},
            "checkpoint": str(folder / "checkpoint"),
        },
    }
