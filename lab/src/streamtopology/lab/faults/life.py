"""One life of a driver: the run of a topology from its start to its end or death, assembled as `TopologyRun` does it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.connectors.sinks import BatchSink, Writer, open_sink
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS, DeadLetters
from streamtopology.jobs.connectors.sinks.kafka import KafkaSink
from streamtopology.jobs.driver.attempt_runner import AttemptRunner
from streamtopology.jobs.driver.batch_loop import BatchLoop
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.driver.progress import Progress
from streamtopology.jobs.driver.publisher import Publisher
from streamtopology.jobs.driver.read_sizes import ReadSizes
from streamtopology.jobs.driver.watermarks import Watermarks
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.pods.configmap_follower import Follower
from streamtopology.jobs.pods.configmap_watch import ConfigMapContent
from streamtopology.jobs.pods.routing_configmap import RoutingMap
from streamtopology.jobs.realtime.desk import Desk
from streamtopology.jobs.realtime.runner import RealTimeRunner
from streamtopology.jobs.rerouting.gradual import GradualSwitching
from streamtopology.jobs.rerouting.precopy import Precopy
from streamtopology.jobs.rerouting.precopy_job import migrate
from streamtopology.jobs.rerouting.router import InProcessRouter
from streamtopology.jobs.runtime.first_plan import first_plan
from streamtopology.jobs.runtime.preflight.checks import source_schemas
from streamtopology.jobs.runtime.streaming_query import Drain, TopologyQuery, Until
from streamtopology.jobs.runtime.topology_run import TopologyRun, new_history
from streamtopology.lab.faults.broker import Broker
from streamtopology.lab.faults.epochs import random_epoch, random_paces
from streamtopology.lab.faults.executors import Cluster, SimulatedRunner, Worker
from streamtopology.lab.faults.network import Network
from streamtopology.lab.faults.operator import NAME
from streamtopology.lab.faults.resident_workers import SimulatedWorkers
from streamtopology.lab.faults.scheduler import Process, Scheduler, Task
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.epochs.rescaling import slot_names, with_replicas
from streamtopology.routing.table.pouring import Pace
from streamtopology.topology import Level, Sink, Topology, difference, parse

# The share of workers of real time that a driver finds when it takes over.
_OUTLIVES = 0.8


@dataclass(frozen=True)
class Ports:
    """All that a life finds outside of itself."""

    scheduler: Scheduler
    step: Callable[[str, str], None]
    open_checkpoint: Callable[[Process], Checkpoint]
    loses_shuffle: Callable[[], bool]
    repeats_task: Callable[[Process], bool]
    is_too_busy: Callable[[Process], bool]
    real_time: bool
    broker: Broker
    folder: Path
    task_bytes: int
    most_deltas: int
    commits_per_sweep: int


class Life:
    """A driver in `process`, with its executors and pre-copy processes. `manifest` is what it is started with.

    `routing`: the content of the ConfigMap that it finds, where it runs in pods; then it follows that map. `left`: by slot the
    memory of workers that have outlived the driver before.
    """

    def __init__(
        self,
        ports: Ports,
        process: Process,
        manifest: Mapping[str, Any],
        seed: int,
        routing: ConfigMapContent | None,
        left: Mapping[str, Worker],
    ) -> None:
        self._ports = ports
        self.process = process
        self.manifest = manifest
        self._routing = routing
        self.mailbox: list[ConfigMapContent] = []
        self.thread_ended_by: Exception | None = None
        self._seed = seed
        self._random = Random(seed)
        self.cluster = Cluster(ports.scheduler, self._new_executor, ports.open_checkpoint, self._arrival_seconds)
        self.cluster.left.update(left)
        self.processes: list[Process] = []
        """Those that its end leaves behind."""
        self.query: TopologyQuery | None = None
        self.router: InProcessRouter | None = None
        self.task: Task | None = None
        self._real_time: RealTimeRunner | None = None

    def run(self) -> None:
        """Run until the query ends. Raises what a driver's process would end with."""
        ports = self._ports
        checkpoint = ports.open_checkpoint(self.process)
        first = None if self._routing is None else RoutingMap.read(NAME, self._routing.data, self._routing.binary_data)
        topology = parse(dict(self.manifest)) if first is None else first.topology
        self.checkpoint = checkpoint
        planned_on = max(checkpoint.commits(), default=None)
        plan = first_plan(topology, source_schemas(topology, {}), ports.folder, checkpoint, _nothing)
        history = new_history(topology)
        precopy = Precopy(checkpoint, self._copy if first is None else None, _nothing, time.monotonic, _lock=threading.RLock())
        router = PouringRouter(
            Random(f"paces {self._seed}"),
            plan,
            checkpoint,
            Controller(topology.rebalance, time.monotonic),
            history,
            dict,
            time.monotonic,
            False,
            precopy,
        )
        run = f"{checkpoint.run}/{uuid.uuid4().hex[:8]}"
        self.cluster.run = run
        for slot in slot_names(topology):
            self.cluster.start(slot)
        writer = Writer(topology.name, checkpoint.run)
        opened = partial(self._sink, writer=writer)
        sinks = {sink.name: opened(sink) for sink in topology.sinks}
        publisher = Publisher(checkpoint, {**sinks, DEAD_LETTERS: DeadLetters(checkpoint.keep)}, opened)
        compaction = Compaction(checkpoint, ports.most_deltas, ports.commits_per_sweep, notify=_nothing)
        driver = BatchLoop(
            runner=self._runner(),
            checkpoint=checkpoint,
            router=router,
            publisher=publisher,
            compaction=compaction,
            switching=GradualSwitching(checkpoint, _nothing),
            watermarks=Watermarks(topology.sources),
            run=run,
            notify=_nothing,
            settled=self._release,
            pause=time.sleep,
            clock=time.time,
            progress=Progress(sizes=ReadSizes(ports.task_bytes / 2**30)),
        )
        self.query = TopologyQuery(topology, {}, checkpoint.spark_folder(), driver)
        self.router = router
        if first is not None:
            follower = Follower(cast(TopologyRun, self), NAME, first)
            ports.scheduler.spawn(self.process, lambda: self._guarded(lambda: self._follow(follower)), "routing-follower")
        with ExitStack() as undo:
            undo.callback(publisher.close)
            undo.callback(compaction.close)
            undo.callback(precopy.close)
            undo.callback(self._end_workers)
            self.query.run(Until(), lambda: _resume(driver, planned_on), time.monotonic)

    def left_behind(self, random: Random) -> dict[str, Worker]:
        """The memory of workers that outlive it for another driver, by slot; what their processes were at breaks off."""
        left: dict[str, Worker] = {}
        for slot, executor in self.cluster.executors.items():
            if executor.process.alive and random.random() < _OUTLIVES:
                executor.process.alive = False
                left[slot] = executor.worker
        return left

    # --- what others do to it, from threads of its process ---

    def stop(self, drain: bool) -> None:
        assert self.query is not None
        self.query.stop(Drain.AFTER_READING if drain else None)

    def reroute(self, random: Random, prepared: bool) -> None:
        """Publish an epoch with tables at random."""
        assert self.router is not None
        self.router.publish(random_epoch(self.router.newest(), random), prepared)

    def run_prepared(self) -> None:
        assert self.router is not None
        self.router.run_prepared(self.router.newest().epoch.number)

    def rescale(self, replicas: int) -> None:
        """Run on `replicas` executors from some batch on."""
        assert self.router is not None
        self.apply(with_replicas(self.router.topology, "slot", replicas))

    def apply(self, topology: Topology) -> str:
        """Change the topology as `TopologyRun.apply` does. Raises ValueError if that needs a restart."""
        assert self.router is not None
        change = difference(self.router.topology, topology)
        if change.level > Level.SCALE:
            raise ValueError(f"this needs a restart: {'; '.join(change.sentences)}")
        if change.level != Level.IGNORE:
            self.router.apply(topology, change.sentences)
            for slot in slot_names(topology):
                if slot not in self.cluster.executors:
                    self.cluster.start(slot, self._arrival_seconds())
        return ""

    def notify(self, text: str) -> None:
        """Drop the report: it is for people."""

    # --- its surroundings ---

    def _runner(self) -> AttemptRunner:
        ports = self._ports
        if not ports.real_time:
            return SimulatedRunner(self.cluster, ports.loses_shuffle, ports.repeats_task, ports.is_too_busy)
        network = Network(
            scheduler=ports.scheduler,
            driver=self.process,
            random=Random(f"network {self._seed}"),
            loses=ports.loses_shuffle,
            doubles=ports.repeats_task,
            delays=ports.is_too_busy,
        )
        desk = Desk(network.put)
        ports.scheduler.spawn(self.process, lambda: self._guarded(lambda: network.listen(desk)), "desk")
        self._real_time = RealTimeRunner(desk, SimulatedWorkers(self.cluster, network))
        return self._real_time

    def _end_workers(self) -> None:
        if self._real_time is not None:
            self._real_time.close()

    def _guarded(self, run: Callable[[], None]) -> None:
        """Run a thread of this driver that must not end by an error: the world judges it."""
        try:
            run()
        except Exception as error:  # noqa: BLE001
            self.thread_ended_by = error

    def _sink(self, spec: Sink, writer: Writer) -> BatchSink:
        if spec.format != "kafka":
            return open_sink(spec, writer)
        broker: Any = self._ports.broker
        return KafkaSink(spec.name, spec.options["topic"], {}, writer, broker.producer, broker.consumer)

    def _follow(self, follower: Follower) -> None:
        """The thread that `following` starts, without its clock."""
        scheduler = self._ports.scheduler
        while True:
            scheduler.wait(lambda: bool(self.mailbox) or (self.task is not None and self.task.is_done))
            if not self.mailbox:
                return
            newest, self.mailbox = self.mailbox[-1], []
            follower.take(newest)

    def _release(self, placement: Placement) -> None:
        assert self.router is not None
        needed = {*placement.names, *slot_names(self.router.topology)}
        for slot in [slot for slot in self.cluster.executors if slot not in needed]:
            self.cluster.release(slot)

    def _new_executor(self, slot: str) -> Process:
        process = Process(f"executor {slot}", "executor", host=slot)
        self.processes.append(process)
        return process

    def _arrival_seconds(self) -> float:
        return self._random.choice((0.0, 0.0, 0.1, 1.0, 30.0))

    def _copy(self, uri: str, epoch: int) -> Copier:
        process = Process(f"copier of epoch {epoch}", "copier")
        self.processes.append(process)
        return Copier(self._ports, process, epoch)


class PouringRouter(InProcessRouter):
    """A router that takes the speed of instances for another one at each look."""

    def __init__(self, random: Random, *of_router: Any) -> None:
        super().__init__(*of_router)
        self._random = random

    def paces(self, plan: ExecutionPlan) -> Mapping[str, Pace]:
        return random_paces(plan, self._random)


class Copier:
    """A process that pre-copies an epoch's state; implements `PrecopyJob`."""

    def __init__(self, ports: Ports, process: Process, epoch: int) -> None:
        self._ports, self._process, self._epoch = ports, process, epoch
        self._why: str | None = None
        self._task = ports.scheduler.spawn(process, self._run, "copy")

    def failure(self) -> str | None:
        if not self._process.alive:
            return "the process was killed"
        return self._why if self._task.is_done else None

    def stop(self) -> None:
        self._process.alive = False

    def _run(self) -> None:
        try:
            migrate(self._ports.open_checkpoint(self._process), self._epoch, _nothing)
        except StreamTopologyError as error:
            self._why = str(error)


def _resume(driver: BatchLoop, planned_on: int | None) -> None:
    driver.resume(planned_on)


def _nothing(text: str) -> None:
    pass
