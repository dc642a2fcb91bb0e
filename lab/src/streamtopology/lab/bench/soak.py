"""One driver for many small batches, with re-routings, rescalings and lost executors now and then: does anything grow?

    streamtopology bench soak --batches 100000

Driver, router and controller, workers, checkpoint with its compaction, the file source with its log, a parquet sink, metrics,
`/stats` and log lines are the real ones, in one process. Left out is what belongs to Spark: its JVM and its logs, Python
workers as processes of their own, the shuffle. Input and output are deleted after a while, as a retention of the user's does.
"""

from __future__ import annotations

import math
import resource
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.contract.phases import Phase
from streamtopology.contract.reasons import EpochReason
from streamtopology.contract.stats_question import Question
from streamtopology.jobs.checkpoint import Checkpoint, SourceEnd
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.files.file_log import FileLog
from streamtopology.jobs.connectors.sources.files.stream import FileStream
from streamtopology.jobs.driver.batch_loop import BatchLoop
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.driver.progress import BatchInput
from streamtopology.jobs.driver.publisher import Publisher
from streamtopology.jobs.driver.watermarks import Poll, Watermarks
from streamtopology.jobs.malloc import collect_garbage_seldom, keep_freed_memory
from streamtopology.jobs.observe.stats import build_stats
from streamtopology.jobs.plan.as_of import node_state
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.pods.log_lines import LogLines
from streamtopology.jobs.rerouting.gradual import GradualSwitching
from streamtopology.jobs.rerouting.router import InProcessRouter
from streamtopology.jobs.runtime.first_plan import first_plan
from streamtopology.jobs.runtime.preflight.checks import source_schemas
from streamtopology.jobs.runtime.topology_run import new_history
from streamtopology.jobs.view.event_log import EventLog
from streamtopology.jobs.view.prometheus import Metrics
from streamtopology.lab.bench.cluster import announce, fresh_folder
from streamtopology.lab.bench.figures import figure, machine
from streamtopology.lab.bench.one_process import OneProcess
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.epochs.rescaling import slot_names, with_replicas
from streamtopology.topology import parse

ROWS = 200
KEYS = 2_000
REPLICAS = 3

# Batches between two re-routings, rescalings, lost executors, and questions for `/stats`.
REROUTED_EVERY, RESCALED_EVERY, KILLED_EVERY, ASKED_EVERY = 50, 500, 200, 10

KEPT_FILES, COUNTED_EVERY = 100, 20
# Batches after which all that a run keeps is full; its memory then is what the end is compared with.
SETTLED = 2_000

# The bars, relative to the memory after `SETTLED` batches, and to the second tenth of the run.
#
# The p99 is that of a batch's CPU time, in which neither other programs of the machine nor the disk are.
LARGEST_GROWTH = {"resident memory": 1.05, "checkpoint files": 1.05, "p99 of a batch": 1.1}


def run(batches: int = 100_000, minutes: int = 600) -> dict[str, Any]:
    """`batches` batches of `ROWS` rows, or as many as `minutes` allow; the bars are about 20,000 and more."""
    keep_freed_memory()  # as `streamtopology run` does
    collect_garbage_seldom()
    folder = fresh_folder("soak")
    figures = _Soak(folder, batches).run(60.0 * minutes)
    missed = [name for name, most in LARGEST_GROWTH.items() if not figures.growth[name] <= most]
    results = [
        figure("resident memory", f"after {min(SETTLED, figures.batches):,}", "MB", [figures.memory_settled / 1e6]),
        figure("resident memory", "at the end", "MB", [figures.memory_at_end / 1e6]),
        figure("checkpoint files", "second tenth", "files", [figures.files_before]),
        figure("checkpoint files", "last tenth", "files", [figures.files_after]),
        *figures.of_cpu.lines("CPU time of a batch"),
        *figures.of_clock.lines("time of a batch"),
        *(figure(name, "growth", "", [growth]) for name, growth in figures.growth.items()),
    ]
    described = machine(batches=figures.batches, rows_per_batch=ROWS, keys=KEYS, missed=missed)
    wrong = {"lost": max(figures.expected - figures.counted, 0), "duplicated": max(figures.counted - figures.expected, 0)}
    return {"name": "soak", "machine": described, "results": results, "check": {**wrong, "bars missed": len(missed)}}


@dataclass(frozen=True)
class _Seconds:
    """Seconds of batches in the second and in the last tenth of the run."""

    median_before: float
    median_after: float
    p99_before: float
    p99_after: float

    @staticmethod
    def of(seconds: np.ndarray) -> _Seconds:
        batches = len(seconds)
        second, last = seconds[batches // 10 : 2 * batches // 10], seconds[batches - batches // 10 :]
        medians = float(np.median(second)), float(np.median(last))
        return _Seconds(*medians, float(np.quantile(second, 0.99)), float(np.quantile(last, 0.99)))

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [
            figure(name, "median, second tenth", "s", [self.median_before]),
            figure(name, "median, last tenth", "s", [self.median_after]),
            figure(name, "p99, second tenth", "s", [self.p99_before]),
            figure(name, "p99, last tenth", "s", [self.p99_after]),
        ]


@dataclass(frozen=True)
class _Figures:
    """Resident memory in bytes, the most checkpoint files, times of a batch; rows that were counted, and that were read."""

    batches: int
    memory_settled: float
    memory_at_end: float
    files_before: int
    files_after: int
    of_cpu: _Seconds
    of_clock: _Seconds
    counted: int
    expected: int

    @property
    def growth(self) -> dict[str, float]:
        return {
            "resident memory": self.memory_at_end / self.memory_settled,
            "checkpoint files": self.files_after / self.files_before,
            "p99 of a batch": self.of_cpu.p99_after / self.of_cpu.p99_before,
        }


class _Soak:
    """The run, and what is measured of it: arrays as long as the run, which are all in memory from the start."""

    def __init__(self, folder: Path, batches: int) -> None:
        self._folder = folder
        self._input = folder / "in"
        self._input.mkdir()
        self._seconds = np.full(batches, math.nan)
        self._cpu_seconds = np.full(batches, math.nan)
        self._memory = np.full(batches, math.nan)
        self._files = np.full(batches, -1, np.int64)
        self._random = np.random.default_rng(1)
        self._position = 0
        self._topology = parse(manifest(folder))
        self._checkpoint = Checkpoint.open(str(folder / "checkpoint"), self._topology.name)
        self._stream = FileStream(
            SourceSpec.of(self._topology.sources[0], self._topology.name), FileLog(folder / "checkpoint" / "files" / "rows")
        )
        self._runner = OneProcess()
        self._runner.start(slot_names(self._topology))

    def run(self, seconds: float) -> _Figures:
        """Run all batches, or those that begin within `seconds`."""
        checkpoint, topology = self._checkpoint, self._topology
        history = self._history = new_history(topology)
        planned_on = max(checkpoint.commits(), default=None)
        plan = first_plan(topology, source_schemas(topology, {}), self._folder, checkpoint, self._notify)
        history.listen(EventLog(self._folder / "events.log"))
        with ExitStack() as undo:
            LogLines(history, undo.enter_context((self._folder / "driver.log").open("w")))
            Metrics(history)
            controller = Controller(topology.rebalance, time.monotonic)
            self._router = InProcessRouter(plan, checkpoint, controller, history, dict, time.monotonic)
            publisher = Publisher.of(checkpoint, topology, self._folder)
            undo.callback(publisher.close)
            compaction = Compaction(checkpoint, notify=self._notify)
            undo.callback(compaction.close)
            self._driver = BatchLoop(
                runner=self._runner,
                checkpoint=checkpoint,
                router=self._router,
                publisher=publisher,
                compaction=compaction,
                switching=GradualSwitching(checkpoint, self._notify),
                watermarks=Watermarks(topology.sources),
                run="soak",
                notify=self._notify,
                begins=history.batch_begins,
                settled=self._release,
                pause=lambda seconds: None,
            )
            self._driver.resume(planned_on)
            history.enter(Phase.RUNNING)
            last_begin = time.monotonic() + seconds
            done = 0
            while done < len(self._seconds) and time.monotonic() < last_begin:
                self._batch(done)
                done += 1
        return self._figures(done)

    def _batch(self, number: int) -> None:
        self._disturb(number)
        file = self._input / f"rows-{number:09d}.parquet"
        pq.write_table(rows_of(self._random, number), file)
        began, cpu_began = time.perf_counter(), time.thread_time()
        now = time.monotonic()
        end = self._stream.advance(self._position)
        descriptors = [descriptor.to_json() for descriptor in self._stream.between(self._position, end)]
        self._driver.batch(BatchInput(number, descriptors, end=SourceEnd({"rows": end}, None), poll=Poll(now, now)))
        self._cpu_seconds[number] = time.thread_time() - cpu_began
        self._seconds[number] = time.perf_counter() - began
        self._position = end
        self._tidy(number)
        self._memory[number] = resident_bytes()
        if number % COUNTED_EVERY == 0:
            self._files[number] = len(self._checkpoint.stored())
        if number % 1000 == 999:
            recent = slice(number - 999, number + 1)
            seconds, cpu = (1e3 * np.quantile(of[recent], (0.5, 0.99)) for of in (self._seconds, self._cpu_seconds))
            announce(
                f"batch {number + 1:,}: {self._memory[number] / 1e6:.0f} MB, {self._files[recent].max():,} files, "
                f"median {seconds[0]:.1f} ms, p99 {seconds[1]:.1f} ms, of CPU {cpu[0]:.1f} and {cpu[1]:.1f} ms"
            )

    def _disturb(self, number: int) -> None:
        if number % REROUTED_EVERY == REROUTED_EVERY - 1:
            self._reroute()
        if number % RESCALED_EVERY == RESCALED_EVERY - 1:
            more = REPLICAS + (number // RESCALED_EVERY + 1) % 2
            topology = with_replicas(self._router.topology, "slot", more)
            self._router.apply(topology, [f"{more} executors"])
            self._runner.start(slot_names(topology))
        if number % KILLED_EVERY == KILLED_EVERY - 1:
            self._runner.dying = self._runner.executors()[number // KILLED_EVERY % REPLICAS].slot
        if number % ASKED_EVERY == 0:
            build_stats(self._history, asked=Question(since=number - ASKED_EVERY))

    def _reroute(self) -> None:
        """Route a tenth of the buckets anywhere else."""
        newest = self._router.newest()
        if newest is not self._router.ready():
            return
        route = newest.epoch.routes["counts"]
        assert route.table is not None, "mixed routes by a table"
        buckets = route.table.buckets.copy()
        chosen = self._random.choice(len(buckets), len(buckets) // 10, replace=False)
        buckets[chosen] = self._random.choice(np.array(route.instances, np.int32), len(chosen))
        routes = {**newest.epoch.routes, "counts": replace(route, table=replace(route.table, buckets=buckets))}
        number, reason = newest.epoch.number + 1, EpochReason.of_text("a tenth of the keys moves")
        self._router.publish(Epoch(number, routes, newest.epoch.source_shares, reason))

    def _release(self, placement: Placement) -> None:
        self._runner.keep([*placement.names, *slot_names(self._router.topology)])

    def _notify(self, text: str) -> None:
        self._history.event(time.time(), self._history.newest, text)

    def _tidy(self, number: int) -> None:
        """Delete what an owner of input and output would not keep for ever."""
        if number < KEPT_FILES:
            return
        old = number - KEPT_FILES
        (self._input / f"rows-{old:09d}.parquet").unlink()
        for name in ("counts", "windows"):
            (self._folder / name / f"batch-{old:09d}.parquet").unlink(missing_ok=True)

    def _figures(self, batches: int) -> _Figures:
        second, last = slice(batches // 10, 2 * batches // 10), slice(batches - batches // 10, batches)
        settled = min(SETTLED, batches)
        around, at_end = (self._memory[max(end - KEPT_FILES, 0) : end] for end in (settled, batches))
        return _Figures(
            batches=batches,
            memory_settled=float(np.median(around)),
            memory_at_end=float(np.median(at_end)),
            files_before=int(self._files[second].max()),
            files_after=int(self._files[last].max()),
            of_cpu=_Seconds.of(self._cpu_seconds[:batches]),
            of_clock=_Seconds.of(self._seconds[:batches]),
            counted=self._counted(),
            expected=batches * ROWS,
        )

    def _counted(self) -> int:
        """The rows that the newest commit's state has counted."""
        commit = self._checkpoint.last_commit()
        assert commit is not None
        plan = ExecutionPlan.from_json(self._checkpoint.read_epoch(commit.epoch))
        held = node_state(self._checkpoint, commit, plan.compile().node("counts"))
        assert held is not None
        return sum(held["count"].to_pylist())


def manifest(folder: Path) -> dict[str, Any]:
    """Counts by key and sums in windows, into parquet folders; re-routed by the controller, too."""
    by_key = {"policy": "mixed", "key": "k"}
    windows = {"time": "at", "size": "30s", "aggregates": {"n": "count()", "total": "sum(v)"}}
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": "soak"},
        "spec": {
            "sources": [
                {
                    "name": "rows",
                    "format": "parquet",
                    "schema": "k BIGINT, v BIGINT, at BIGINT",
                    "options": {"path": str(folder / "in")},
                    "watermark": {"column": "at", "delay": "10s"},
                }
            ],
            "operators": [
                {"name": "counts", "inputs": ["rows"], "grouping": by_key, "run": "count"},
                {"name": "windows", "inputs": ["rows"], "grouping": by_key, "run": "window-aggregate", "with": windows},
            ],
            "sinks": [
                {"name": name, "input": name, "format": "parquet", "options": {"path": str(folder / name)}}
                for name in ("counts", "windows")
            ],
            "executors": [{"name": "slot", "replicas": REPLICAS, "cpu": "1"}],
            "rebalance": {"interval": "2s"},
            "checkpoint": str(folder / "checkpoint"),
        },
    }


def rows_of(random: np.random.Generator, number: int) -> pa.Table:
    """The rows of one file: skewed keys, and event times of the one second that the file stands for."""
    keys = np.minimum(random.zipf(1.3, ROWS), KEYS)
    return pa.table({"k": keys, "v": random.integers(0, 100, ROWS), "at": np.full(ROWS, number)})


def resident_bytes() -> int:
    """Bytes of this process that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
