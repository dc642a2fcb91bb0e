"""What the operator serves: `/healthz` for the kubelet, `/metrics` for Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from streamtopology.operator.metrics import Metrics
from streamtopology.operator.settings import Settings


@asynccontextmanager
async def serving(metrics: Metrics, settings: Settings) -> AsyncIterator[None]:
    """Serves while the block runs. That an answer comes at all says that the event loop turns: nothing else may hang."""

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def measured(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    probes, figures = web.Application(), web.Application()
    probes.router.add_get("/healthz", healthy)
    figures.router.add_get("/metrics", measured)
    runners = [web.AppRunner(app, access_log=None, handle_signals=False) for app in (probes, figures)]
    try:
        for runner, port in zip(runners, (settings.probe_port, settings.metrics_port), strict=True):
            await runner.setup()
            await web.TCPSite(runner, None, port).start()
        yield
    finally:
        for runner in runners:
            await runner.cleanup()
