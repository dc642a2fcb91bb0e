"""A release of the operator in virtual time: all of it but kopf, the planner and HTTP."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from streamtopology.k8s import names
from streamtopology.k8s.app import WATCHED
from streamtopology.k8s.decide.answers import Answer, Target
from streamtopology.k8s.io.api import ApiError
from streamtopology.k8s.io.apply import Applier
from streamtopology.k8s.io.cache import Cache
from streamtopology.k8s.io.health import Health
from streamtopology.k8s.io.metrics import OperatorMetrics
from streamtopology.k8s.io.not_created import NotCreated
from streamtopology.k8s.io.ownership import TopologyClaims
from streamtopology.k8s.io.queue import Queue, TopologyKey
from streamtopology.k8s.io.reconcile_spans import ReconcileSpans, TracedApplier
from streamtopology.k8s.io.reconciler import Reconciler
from streamtopology.k8s.io.snapshot_reconciler import SnapshotReconciler
from streamtopology.k8s.io.snapshot_scheduler import SnapshotScheduler
from streamtopology.k8s.io.snapshot_watch import SnapshotWatch
from streamtopology.k8s.io.watchdog import Watchdog
from streamtopology.tracing.span import Emit
from support.fake_api import FakeApi, FakeCluster
from support.operator_world import SETTINGS
from support.virtual_time import now

RENEW_SECONDS = 5.0


class PlayedScraper:
    """Asks the driver of the cluster's world, at the intervals that the operator wants."""

    def __init__(self, cluster: FakeCluster, queue: Queue) -> None:
        self._cluster = cluster
        self._queue = queue
        self._targets: dict[TopologyKey, Target] = {}
        self._answers: dict[TopologyKey, Answer] = {}

    def answer(self, key: TopologyKey) -> Answer | None:
        return self._answers.get(key)

    def want(self, key: TopologyKey, target: Target | None) -> None:
        known = self._targets.get(key)
        if target is None:
            self._targets.pop(key, None)
            self._answers.pop(key, None)
            return
        if known is None or known.pod != target.pod:
            self._answers[key] = Answer(target.pod)
        self._targets[key] = target

    async def forget(self, key: TopologyKey) -> None:
        self.want(key, None)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(min((each.interval_seconds for each in self._targets.values()), default=1.0))
            for key, target in self._targets.items():
                world = self._cluster.world
                if world.driver is not None and world.driver.pod == target.pod:
                    self._answers[key] = Answer(
                        target.pod, world.stats(), world.judgement, world.scaling, world.silence, world.gains
                    )
                    self._queue.add(key)


class VirtualRelease:
    """A release, by the namespace of its Lease, with an image of its own. `emit` gets the spans of its looks.

    `namespaces`: those that it watches; None: all.
    """

    def __init__(
        self, cluster: FakeCluster, release: str, emit: Emit | None = None, namespaces: Sequence[str | None] = (None,)
    ) -> None:
        self._emit = emit
        self._namespaces = namespaces
        self._cluster = cluster
        self._release = release
        self.image: str | None = f"registry.example/spark:{release}"
        self.metrics = OperatorMetrics()
        self.health = Health()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"release {self._release}")

    async def stop(self) -> None:
        """End it as SIGKILL would. Raises what has ended it before."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return

    @property
    def has_ended(self) -> bool:
        """True if it has ended by itself, of an error."""
        return self._task is not None and self._task.done()

    @property
    def mistakes(self) -> float:
        """ReconcileSpans that have ended with an error of ours, or at the limit of writes."""
        return sum(
            self.metrics.registry.get_sample_value("streamtopology_operator_reconcile_seconds_count", {"outcome": outcome})
            or 0.0
            for outcome in ("error", "limited")
        )

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        settings = replace(SETTINGS, namespace=self._release, image=self.image)
        api = FakeApi(self._cluster, self._release)
        queue, snapshots = Queue(loop.time), SnapshotWatch(Queue(loop.time))

        def changed(topology: TopologyKey) -> None:
            queue.add(topology)
            snapshots.wake(topology)

        cache = Cache(changed)
        scraper: Any = PlayedScraper(self._cluster, queue)
        ownership = TopologyClaims(api, settings, now)
        spans = ReconcileSpans(self.metrics, now, self._emit)
        applier = Applier(api, cache) if self._emit is None else TracedApplier(api, cache, spans)
        reconciler = Reconciler(
            applier, cache, NotCreated(api, now), ownership, scraper, queue, settings, self.metrics, now, spans
        )
        copying = SnapshotReconciler(api, applier, cache, snapshots, reconciler.manifest, ownership, settings, now)
        self.health = health = Health(clock=loop.time)
        health.started(queue, self._namespaces)
        watchdog = Watchdog(api, reconciler, self._namespaces, health, lambda: self._watch(reconciler), loop.time)
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                for kind in WATCHED:
                    group.create_task(cache.follow(api, kind, namespace))
                group.create_task(copying.follow(api, namespace))
            group.create_task(copying.run())
            group.create_task(SnapshotScheduler(api, snapshots, reconciler.manifests, ownership, now).run())
            group.create_task(self._renew())
            group.create_task(scraper.run())
            group.create_task(reconciler.run())
            group.create_task(watchdog.run())
            for namespace in self._namespaces:
                await cache.listed(WATCHED, namespace)
                reconciler.begin(namespace)
                health.listed(namespace)

    async def _renew(self) -> None:
        while True:
            self._cluster.leases[self._release] = now()
            await asyncio.sleep(RENEW_SECONDS)

    async def _watch(self, reconciler: Reconciler) -> None:
        """The watch of topologies as kopf has it: refused while they are not served, and deaf once they have ceased to be."""
        cluster = self._cluster
        if not cluster.is_served:
            raise ApiError(404, "NotFound", "the server could not find the requested resource", names.TOPOLOGY.path(None))
        number = len(cluster.log)
        if cluster.topology is not None:
            reconciler.saw(copy.deepcopy(cluster.topology))
        while True:
            for _, event, body in cluster.log[number:]:
                if body["kind"] == names.TOPOLOGY.kind:
                    (reconciler.lost if event == "DELETED" else reconciler.saw)(copy.deepcopy(body))
            number = len(cluster.log)
            async with cluster.changed:
                await cluster.changed.wait()
            while not cluster.is_served:
                await asyncio.Event().wait()
