"""People, and the operator that acts for them: re-routings, rescalings, restarts, edits of the manifest, steps of clocks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.contract.routing_configmap import RoutingData
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.pods.configmap_watch import ConfigMapContent
from streamtopology.lab.faults.life import Life
from streamtopology.lab.faults.operator import Operator, content_of
from streamtopology.lab.faults.scheduler import Process, Scheduler
from streamtopology.lab.faults.stdlib import Clocks
from streamtopology.lab.faults.story import Event, Story

_MOST_REPLICAS = 4
# Seconds after which a change is taken back, whether it has come into force or not.
_PATIENCE = 60.0


@dataclass(eq=False)
class People:
    """`where`: the folder of all sources, that of the sinks, and the checkpoint.

    `deliver` puts a content of the ConfigMap into the mailbox of the driver that runs, `note` a line into the journal.
    """

    story: Story
    scheduler: Scheduler
    clocks: Clocks
    process: Process
    where: tuple[str, str, str]
    open_checkpoint: Callable[[], Checkpoint]
    deliver: Callable[[ConfigMapContent], None]
    note: Callable[[str], None]

    def __post_init__(self) -> None:
        self._replicas = self.story.shape.replicas
        self._operators = self.story.shape.operators
        self._operator = self._new_operator() if self.story.shape.pods else None

    def manifest(self) -> dict[str, Any]:
        """The manifest as it was edited last."""
        return self.story.shape.of(self._operators).manifest(*self.where, replicas=self._replicas)

    def routing(self) -> ConfigMapContent | None:
        """The content of the ConfigMap, where the topology runs in pods."""
        return None if self._operator is None else content_of(self._operator.data)

    def act(self, event: Event, life: Life) -> None:
        """Let `event` happen to `life`, or to one of its hosts."""
        random = Random(event.seed)
        self.note(f"{event.kind}")
        if event.kind == "clock step":
            hosts = ("driver", *life.cluster.executors)
            self.clocks.skew[random.choice(hosts)] = random.choice((-90.0, -5.0, -0.2, 0.2, 5.0, 90.0))
            return
        self.scheduler.spawn(life.process, lambda: self._ask(life, event.kind, random), "control")

    def _ask(self, life: Life, kind: str, random: Random) -> None:
        """Somebody asks for something while the driver runs; it may refuse."""
        if life.router is None:
            return
        operator, prepared = self._operator, kind == "re-route prepared"
        try:
            match kind:
                case "re-route" | "re-route prepared" if operator is not None:
                    operator.reroute(life.router.newest(), random, prepared)
                case "re-route" | "re-route prepared":
                    life.reroute(random, prepared)
                case "epoch ready" if operator is not None:
                    operator.make_ready(random) if random.random() < 0.5 else operator.withdraw(random)
                case "epoch ready":
                    life.run_prepared()
                case "rescale":
                    self._rescale(life, random.randint(1, _MOST_REPLICAS), random)
                case "rescale and back":
                    before, newest = self._replicas, life.router.newest().epoch.number
                    self._rescale(life, random.randint(1, _MOST_REPLICAS), random)
                    self.scheduler.wait(lambda: life.router is not None and life.router.epoch.number > newest, _PATIENCE)
                    self._rescale(life, before, random)
                case "edit":
                    self.edit(random)
                    life.stop(drain=False)
                case _:
                    life.stop(drain=False)
        except (ValueError, StreamTopologyError) as refusal:
            self.note(f"  refused: {str(refusal)[:120]}")

    def _rescale(self, life: Life, replicas: int, random: Random) -> None:
        self._replicas = replicas
        life.rescale(replicas) if self._operator is None else self._operator.change(self.manifest(), random)

    def edit(self, random: Random) -> None:
        """Remove an operator, with the sources and sinks that only it needs, or bring all back; that takes a restart."""
        every = self.story.shape.operators
        if len(every) == 1:
            return
        removed = random.choice(every)
        self._operators = tuple(name for name in every if name != removed) if self._operators == every else every
        self.note(f"  the manifest has {' and '.join(self._operators)} now")
        if self._operator is not None:
            self._operator.change(self.manifest(), random, edited=True)

    def _new_operator(self) -> Operator:
        data = RoutingData(json.dumps(self.manifest()), 1)
        return Operator(self.scheduler, self.process, data, lambda process: self.open_checkpoint(), self.deliver)
