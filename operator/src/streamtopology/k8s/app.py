"""The operator, assembled: caches and kopf feed the queue, the reconciler empties it, the scraper asks the drivers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import aiohttp
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from streamtopology.k8s import kopf_handlers, names
from streamtopology.k8s.io import leader
from streamtopology.k8s.io.api import Api, always
from streamtopology.k8s.io.apply import Applier
from streamtopology.k8s.io.cache import Cache
from streamtopology.k8s.io.health import Health
from streamtopology.k8s.io.metrics import OperatorMetrics
from streamtopology.k8s.io.not_created import NotCreated
from streamtopology.k8s.io.ownership import TopologyClaims
from streamtopology.k8s.io.page_app import Listed, page_app
from streamtopology.k8s.io.queue import Queue, TopologyKey
from streamtopology.k8s.io.reconcile_spans import ReconcileSpans, TracedApplier
from streamtopology.k8s.io.reconciler import Reconciler
from streamtopology.k8s.io.scrape import Scraper
from streamtopology.k8s.io.server_clock import ServerClock
from streamtopology.k8s.io.snapshot_reconciler import SnapshotReconciler
from streamtopology.k8s.io.snapshot_scheduler import SnapshotScheduler
from streamtopology.k8s.io.snapshot_watch import SnapshotWatch
from streamtopology.k8s.io.unwatched import report_unwatched
from streamtopology.k8s.io.watchdog import Watchdog
from streamtopology.k8s.planning.process import Planner, PlanningProcess
from streamtopology.k8s.settings import Settings
from streamtopology.tracing.span import Emit

log = logging.getLogger(__name__)

# All but Secrets: an operator should not need the right to read those of a whole cluster.
WATCHED = (*(kind for kind in names.OWNED if kind != names.SECRET), names.POD)


async def run(access: Configuration, settings: Settings, emit: Emit | None = None) -> None:
    """Run until SIGTERM or SIGINT. `emit` gets the spans of each reconciliation. LeaseLostError: another replica leads now."""
    metrics, health, listed = OperatorMetrics(), Health(), Listed(time.time)
    async with serving(metrics, settings, health, listed):
        if not settings.leader_election:
            metrics.leading.set(1)
            await _operate_and_plan(access, settings, metrics, health, listed, always, emit)
            return

        async def work(leads: Callable[[], bool]) -> None:
            log.info("%s leads", settings.identity)
            metrics.leading.set(1)
            await _operate_and_plan(access, settings, metrics, health, listed, leads, emit)

        log.info("%s waits for the lease %s/%s", settings.identity, settings.namespace, leader.LEASE_NAME)
        async with ApiClient(access) as client:  # of its own: renewing waits for no other call's connection
            await leader.lead(
                client,
                settings.namespace,
                settings.identity,
                settings.lease_seconds,
                work,
                settings.release,
                health.in_vain,
            )


async def _operate_and_plan(
    access: Configuration,
    settings: Settings,
    metrics: OperatorMetrics,
    health: Health,
    listed: Listed,
    leads: Callable[[], bool],
    emit: Emit | None,
) -> None:
    with PlanningProcess() as planner:
        await operate(access, settings, metrics, planner, ServerClock(time.time), leads, health, listed, emit)


async def operate(
    access: Configuration,
    settings: Settings,
    metrics: OperatorMetrics,
    planner: Planner,
    clock: ServerClock,
    leads: Callable[[], bool] = always,
    health: Health | None = None,
    listed: Listed | None = None,
    emit: Emit | None = None,
) -> None:
    """Reconcile topologies until kopf ends, on SIGTERM or SIGINT. `health`: for the kubelet, `listed`: for the page,
    `emit`: for traces.

    `leads`: True while this replica may write; when it may not, its process is about to end.
    """
    queue, snapshots = Queue(time.monotonic), SnapshotWatch(Queue(time.monotonic))

    def changed(topology: TopologyKey) -> None:
        queue.add(topology)
        snapshots.wake(topology)

    health = health or Health()
    cache, namespaces = Cache(changed, health.refused), settings.namespaces or (None,)
    health.started(queue, namespaces)
    async with (
        ApiClient(access) as client,
        ApiClient(_for_watches(access, (len(WATCHED) + 1) * len(namespaces))) as watching,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=256)) as session,
    ):
        api = Api(client, may_write=leads, hear=clock.hear, answered=metrics.api_answered)
        watched = Api(watching, answered=metrics.api_answered)
        scraper = Scraper(session, planner, queue.add, clock.now)
        not_created, ownership = NotCreated(api, clock.now), TopologyClaims(api, settings, clock.now)
        spans = ReconcileSpans(metrics, clock.own, emit)
        applier = Applier(api, cache) if emit is None else TracedApplier(api, cache, spans)
        reconciler = Reconciler(applier, cache, not_created, ownership, scraper, queue, settings, metrics, clock.now, spans)
        if listed is not None:
            listed.follow(reconciler.manifests)
        copying = SnapshotReconciler(api, applier, cache, snapshots, reconciler.manifest, ownership, settings, clock.now)
        others = [
            asyncio.create_task(cache.follow(watched, kind, namespace), name=f"watch {kind.plural}")
            for kind in WATCHED
            for namespace in namespaces
        ]
        others += [asyncio.create_task(copying.follow(watched, each), name="watch snapshots") for each in namespaces]
        others.append(asyncio.create_task(copying.run(), name="snapshots"))
        scheduler = SnapshotScheduler(api, snapshots, reconciler.manifests, ownership, clock.now)
        metrics.snapshots.follow(snapshots.bodies, scheduler.missed)
        others.append(asyncio.create_task(scheduler.run(), name="schedules of snapshots"))
        unserved = partial(report_unwatched, api, applier, settings, clock.now)
        others.append(asyncio.create_task(_reconcile(reconciler, cache, namespaces, health, unserved), name="reconciler"))
        try:
            watch = partial(kopf_handlers.watch_topologies, reconciler, access, settings, snapshots.wake, asyncio.Event())
            watchdog = Watchdog(api, reconciler, namespaces, health, watch)
            await _until_first(watchdog.run(), others)
        finally:
            scraper.close()
            await _end(others)


def _for_watches(access: Configuration, watches: int) -> Configuration:
    """Connections for that many watches: each holds one for as long as it lasts, so no other call may need the same ones."""
    own = deepcopy(access)
    own.connection_pool_maxsize = watches
    return own


async def _reconcile(
    reconciler: Reconciler,
    cache: Cache,
    namespaces: Sequence[str | None],
    health: Health,
    unserved: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Begin with each namespace by itself: one that cannot be listed, because it or the right to is gone, delays no other.

    `unserved` reports topologies of others that nobody serves.
    """

    async def begin(namespace: str | None) -> None:
        await cache.listed(WATCHED, namespace)
        reconciler.begin(namespace)
        health.listed(namespace)

    async with asyncio.TaskGroup() as group:
        group.create_task(reconciler.run())
        group.create_task(unserved())
        for namespace in namespaces:
            group.create_task(begin(namespace))


async def _until_first(main: Coroutine[Any, Any, None], others: list[asyncio.Task[None]]) -> None:
    """Wait for kopf. The other tasks never end; the error of one that does ends the operator."""
    task = asyncio.create_task(main, name="kopf")
    try:
        done, _ = await asyncio.wait({task, *others}, return_when=asyncio.FIRST_COMPLETED)
        for finished in done:
            finished.result()
    finally:
        await _end([task])


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def serving(metrics: OperatorMetrics, settings: Settings, health: Health, listed: Listed) -> AsyncIterator[None]:
    """Serve while the block runs. Any answer shows that the event loop runs; `health` knows the rest."""

    async def healthy(_: web.Request) -> web.Response:
        return _answer(health.problem)

    async def ready(_: web.Request) -> web.Response:
        unready = health.unready
        return _answer(unready and f"not ready: {unready}")

    async def measured(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    probes, figures = web.Application(), web.Application()
    probes.router.add_get("/healthz", healthy)
    probes.router.add_get("/readyz", ready)
    figures.router.add_get("/metrics", measured)
    served = [(probes, settings.probe_port), (figures, settings.metrics_port)]
    if settings.page_port is not None:
        served.append((page_app(listed, settings.page_hosts), settings.page_port))
    runners = [web.AppRunner(app, access_log=None, handle_signals=False) for app, _ in served]
    try:
        for runner, (_, port) in zip(runners, served, strict=True):
            await runner.setup()
            await web.TCPSite(runner, None, port).start()
        yield
    finally:
        for runner in runners:
            await runner.cleanup()


def _answer(problem: str | None) -> web.Response:
    return web.Response(text="ok\n") if problem is None else web.Response(status=503, text=f"{problem}\n")
