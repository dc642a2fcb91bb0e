"""The operator, put together: caches and kopf feed the queue, the reconciler works it off, drivers are asked beside."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import aiohttp
import kopf
from kubernetes.aio.client import ApiClient, Configuration

from streamtopology.operator import handlers, leader, names
from streamtopology.operator.api import Api, always
from streamtopology.operator.apply import Applier
from streamtopology.operator.cache import Cache
from streamtopology.operator.metrics import Metrics
from streamtopology.operator.planning import Planner, PlanningProcess
from streamtopology.operator.queue import Queue
from streamtopology.operator.reconciler import Reconciler
from streamtopology.operator.scrape import Scraper
from streamtopology.operator.serving import serving
from streamtopology.operator.settings import Settings

log = logging.getLogger(__name__)

WATCHED = (*(kind for kind in names.OWNED if kind != names.SECRET), names.POD)
"""All but Secrets: to read those of a whole cluster is a right that nobody should have to give us."""


async def run(client: ApiClient, settings: Settings) -> None:
    """Runs until it is told to stop. LeaseLostError: another replica leads now."""
    metrics = Metrics()
    async with serving(metrics, settings):
        if not settings.leader_election:
            await _operate_and_plan(client, settings, metrics, always)
            return

        async def work(leads: Callable[[], bool]) -> None:
            log.info("%s leads", settings.identity)
            metrics.leading.set(1)
            await _operate_and_plan(client, settings, metrics, leads)

        log.info("%s waits for the lease %s/%s", settings.identity, settings.namespace, leader.LEASE_NAME)
        await leader.lead(client, settings.namespace, settings.identity, settings.lease_seconds, work)


async def _operate_and_plan(client: ApiClient, settings: Settings, metrics: Metrics, leads: Callable[[], bool]) -> None:
    with PlanningProcess() as planner:
        await operate(client, settings, metrics, planner, time.time, leads)


async def operate(
    client: ApiClient, settings: Settings, metrics: Metrics, planner: Planner, clock: Callable[[], float],
    leads: Callable[[], bool] = always,
) -> None:  # fmt: skip
    """Looks after the topologies; ends when kopf does, on SIGTERM or SIGINT. `clock`: seconds since 1970.

    `leads`: whether it may write; when it may not, its process is about to end.
    """
    api, queue = Api(client, may_write=leads), Queue(time.monotonic)
    cache = Cache(queue.add)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=256)) as session:
        scraper = Scraper(session, planner, queue.add, clock)
        reconciler = Reconciler(Applier(api, cache), cache, scraper, planner, queue, settings, metrics, clock)
        namespaces = settings.namespaces or (None,)
        beside = [
            asyncio.create_task(cache.follow(api, kind, namespace), name=f"watch {kind.plural}")
            for kind in WATCHED
            for namespace in namespaces
        ]
        beside.append(asyncio.create_task(_reconcile(reconciler, cache, namespaces), name="reconciler"))
        try:
            await _until_first(_kopf(reconciler, client.configuration, settings), beside)
        finally:
            scraper.close()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)


async def _reconcile(reconciler: Reconciler, cache: Cache, namespaces: Sequence[str | None]) -> None:
    """Each namespace by itself: one that cannot be listed, for it is gone or its rights are, holds up no other."""

    async def begin(namespace: str | None) -> None:
        await cache.listed(WATCHED, namespace)
        reconciler.begin(namespace)

    async with asyncio.TaskGroup() as group:
        group.create_task(reconciler.run())
        for namespace in namespaces:
            group.create_task(begin(namespace))


async def _kopf(reconciler: Reconciler, access: Configuration, settings: Settings) -> None:
    await kopf.operator(
        registry=handlers.registry(reconciler, access),
        settings=handlers.kopf_settings(settings),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
    )


async def _until_first(main: Coroutine[Any, Any, None], beside: list[asyncio.Task[None]]) -> None:
    """Waits for kopf; if a task beside it ends, which none should, its error ends the operator."""
    task = asyncio.create_task(main, name="kopf")
    try:
        done, _ = await asyncio.wait({task, *beside}, return_when=asyncio.FIRST_COMPLETED)
        for finished in done:
            finished.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
