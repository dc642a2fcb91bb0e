"""The operator's HTTP: `/healthz` and `/readyz` for the kubelet, `/metrics` for Prometheus, a page for people if asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from streamtopology.k8s.io.health import Health
from streamtopology.k8s.io.metrics import OperatorMetrics
from streamtopology.k8s.io.page_app import Listed, page_app
from streamtopology.k8s.settings import Settings


@asynccontextmanager
async def serving(metrics: OperatorMetrics, settings: Settings, health: Health, listed: Listed) -> AsyncIterator[None]:
    """Serve while the block runs. Any answer shows that the event loop runs; `health` knows the rest."""

    async def healthy(_: web.Request) -> web.Response:
        return _answer(health.problem)

    async def ready(_: web.Request) -> web.Response:
        waits_for = health.waits_for
        return _answer(waits_for and f"not ready: waits for {waits_for}")

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
