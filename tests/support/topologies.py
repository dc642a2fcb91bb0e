"""Topologies running on a real embedded cluster: one small cluster for a module of tests, unequal on purpose."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark import SparkContext

from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster
from streamtopology.jobs.local.run import open_run, process
from streamtopology.jobs.local.start_steps import StartSteps
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.jobs.runtime.topology_run import RunOptions, TopologyRun, new_history
from streamtopology.jobs.spark.cluster import ExecutorSlot, executor_slots
from streamtopology.topology import Topology, parse
from support.levels import Level
from support.manifests import EXECUTORS, counting, files, manifest, memory_sink

INSTANCES = sum(int(executor["replicas"]) for executor in EXECUTORS)


@dataclass
class Running:
    """A run in a thread of its own."""

    run: TopologyRun
    history: History
    ended: Future[None]

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Returns as soon as `condition()` holds; raises what the run raised when it ended before."""
        while not condition():
            if self.ended.done():
                self.ended.result()
                assert condition(), f"the run ended first: {[event.text for event in self.history.events]}"
            time.sleep(0.05)

    @property
    def rows(self) -> int:
        """The number of source rows in committed batches of this run."""
        return sum(batch.rows for batch in self.history.batches)

    def wait_for_rows(self, rows: int) -> None:
        """Wait until this number is reached."""
        self.wait_until(lambda: self.rows >= rows)


class Runner:
    """Runs manifests on the shared cluster; `folder` has the checkpoints and operators of one's own."""

    def __init__(self, embedded: EmbeddedCluster, folder: Path) -> None:
        self.embedded = embedded
        self.folder = folder

    def run(self, given: Mapping[str, Any], until: Until | None = None, base: Path | None = None) -> History:
        """Run to the end of the input, or `until`."""
        topology = parse(dict(given))
        check_before_start(topology, base or self.folder)
        history = new_history(topology)
        process(self._run(topology, history, until, base), history)
        return history

    def opened(self, given: Mapping[str, Any], until: Until) -> TopologyRun:
        """A run that has not begun."""
        topology = parse(dict(given))
        return self._run(topology, new_history(topology), until, None)

    @contextmanager
    def running(self, given: Mapping[str, Any], until: Until | None = None, decides: bool = True) -> Iterator[Running]:
        """Runs while entered; it is stopped on leaving, and what it raised is raised."""
        topology = parse(dict(given))
        history = new_history(topology)
        run = self._run(topology, history, until, None, decides)
        with ThreadPoolExecutor(1) as thread:
            ended = thread.submit(process, run, history)
            try:
                yield Running(run, history, ended)
            finally:
                run.stop()
        ended.result()

    def save(self, given: Mapping[str, Any]) -> Path:
        """The manifest as a file (JSON is YAML)."""
        path = self.folder / f"{given['metadata']['name']}.yaml"
        path.write_text(json.dumps(given))
        return path

    def _run(
        self, topology: Topology, history: History, until: Until | None, base: Path | None, decides: bool = True
    ) -> TopologyRun:
        options = RunOptions(until or Until(), self.folder, decides=decides)
        return open_run(self.embedded, topology, base or self.folder, history, options)


def first_slots() -> tuple[ExecutorSlot, ...]:
    """The executors that every test finds."""
    given = manifest("shared", [files(Path("unused"))], [counting()], [memory_sink("unused", "counts")])
    return executor_slots(parse(given))


def _as_long_as_nobody_needs_another(fixture_name: str, config: pytest.Config) -> Literal["session", "module"]:
    return "session" if config.getoption("--level") == Level.GATE.mark else "module"


@pytest.fixture(scope=_as_long_as_nobody_needs_another)
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Two large executors and a small one; gone with the module where other rooms make sessions of their own."""
    if SparkContext._active_spark_context is not None:  # another room's session: it makes itself a new one when needed
        SparkContext._active_spark_context.stop()
    steps = StartSteps(len(first_slots()), print)
    with EmbeddedCluster("tests", first_slots(), tmp_path_factory.mktemp("running"), steps) as embedded:
        yield embedded


@pytest.fixture
def runner(shared_cluster: EmbeddedCluster, tmp_path: Path) -> Runner:
    """All executors there, and no others, at the CPU of their classes."""
    return _on_all_executors(shared_cluster, tmp_path)


@pytest.fixture(scope="module")
def new_runner(shared_cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Runner]:
    """The same for runs that several tests look at: a runner with a folder of this name."""
    return lambda name: _on_all_executors(shared_cluster, tmp_path_factory.mktemp(name))


def _on_all_executors(shared_cluster: EmbeddedCluster, folder: Path) -> Runner:
    wanted = {slot.name: slot for slot in first_slots()}
    there = {slot.name for slot in shared_cluster.slots}
    shared_cluster.release(there - wanted.keys())
    shared_cluster.start([slot for name, slot in wanted.items() if name not in there])
    for slot in wanted.values():
        shared_cluster.resize(slot.class_name, slot.cpu)
    shared_cluster.watch.await_admitted(INSTANCES, wanted=lambda executor: shared_cluster.slot_of(executor) in wanted)
    return Runner(shared_cluster, folder)
