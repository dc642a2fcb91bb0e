"""The Kubernetes operator as a driver meets it: contents of the routing ConfigMap, late, twice or stale, and its Jobs.

The driver's side is the real follower. What the operator plans here is random; it knows the newest epoch from `/stats`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.contract.routing_configmap import PackedEpoch, RoutingData, pack
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.pods.configmap_watch import ConfigMapContent
from streamtopology.jobs.rerouting.precopy_job import migrate
from streamtopology.lab.faults.epochs import random_epoch
from streamtopology.lab.faults.scheduler import Process, Scheduler

NAME = "flow-routing"
_JOB_STARTS = 3
_LEASE_SECONDS = 60.0


def content_of(data: RoutingData) -> ConfigMapContent:
    return ConfigMapContent(*data.to_data())


@dataclass(eq=False)
class Operator:
    """`deliver` puts a content into the mailbox of the driver that runs."""

    scheduler: Scheduler
    process: Process
    data: RoutingData
    open_checkpoint: Callable[[Process], Checkpoint]
    deliver: Callable[[ConfigMapContent], None]
    _before: list[RoutingData] = field(default_factory=list[RoutingData])

    def reroute(self, newest: ExecutionPlan, random: Random, prepared: bool) -> None:
        """Publish an epoch after `newest`; a Job copies what a prepared one moves."""
        epoch = random_epoch(newest, random)
        packed = PackedEpoch(
            epoch.number, self.data.generation, pack(epoch.to_json()), "prepared" if prepared else "ready", "random"
        )
        self._publish(replace(self.data, epoch=packed), random)
        if prepared:
            self.scheduler.spawn(self.process, lambda: self._copy(epoch.number, random), "job")

    def make_ready(self, random: Random) -> None:
        """Let the newest epoch run, copied or not."""
        if self.data.epoch is not None:
            self._publish(replace(self.data, epoch=replace(self.data.epoch, state="ready")), random)

    def withdraw(self, random: Random) -> None:
        """Take the newest epoch out again, as one whose Job has failed."""
        if self.data.epoch is not None:
            self._publish(replace(self.data, epoch=None), random)

    def change(self, manifest: dict[str, Any], random: Random, edited: bool = False) -> None:
        """Publish a changed topology, of a new generation or, as the autoscaler does, of the same."""
        generation = self.data.generation + (1 if edited else random.choice((0, 1)))
        self._publish(replace(self.data, topology=json.dumps(manifest), generation=generation), random)

    def _publish(self, data: RoutingData, random: Random) -> None:
        self._before.append(self.data)
        self.data = data
        arriving = [data]
        if random.random() < 0.2:
            arriving.append(data)
        if random.random() < 0.2:
            arriving.insert(0, random.choice(self._before))
        seconds = random.choice((0.0, 0.0, 0.05, 0.5, 5.0))

        def arrive() -> None:
            for content in arriving:
                self.scheduler.wait(None, seconds)
                self.deliver(content_of(content))
            if seconds:  # a watch that came late has the newest in the end
                self.deliver(content_of(self.data))

        self.scheduler.spawn(self.process, arrive, "watch")

    def _copy(self, epoch: int, random: Random) -> None:
        """Start the Job until it is done, some times; then the epoch is ready whatever came of it."""
        for _ in range(_JOB_STARTS):
            job = Process(f"job of epoch {epoch}", "copier")
            failed: list[str] = []

            def run(job: Process = job, failed: list[str] = failed) -> None:
                try:
                    checkpoint = self.open_checkpoint(job)
                    deadline = self.scheduler.now + _LEASE_SECONDS
                    while checkpoint.precopies.lease(epoch) is None and self.scheduler.now < deadline:
                        self.scheduler.wait(None, 0.5)
                    migrate(checkpoint, epoch, _nothing)
                except StreamTopologyError as error:
                    failed.append(str(error))

            task = self.scheduler.spawn(job, run, "copy")
            self.scheduler.wait(lambda task=task: task.is_done, 900.0)
            if job.alive and not failed:
                break
            job.alive = False
        if self.data.epoch is not None and self.data.epoch.number == epoch:
            self.make_ready(random)


def _nothing(text: str) -> None:
    pass
