"""The operator's list of topologies, served as the operator does; of made-up topologies."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from aiohttp import web

from streamtopology.k8s.io.page_app import Listed, page_app

PROXY = "/api/v1/namespaces/operators/services/streamtopology:page/proxy"


def topology(name: str, phase: str, namespace: str = "streams", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "status": {"phase": phase, **status}}


FAILED = {"type": "Ready", "status": "False", "reason": "DriverFailed", "message": "the driver ended with code 3"}
REROUTED = {"epoch": 4, "operator": "delays", "keysMoved": 12, "at": "2027-01-15T07:59:00Z"}
FLIGHTS = topology("flights", "Running", throughput=51000, imbalance=0.12, lastRerouting=REROUTED)
TOPOLOGIES = [FLIGHTS, topology("broken", "Failed", conditions=[FAILED]), topology("asleep", "Asleep", namespace="night")]


class ServedList:
    """The page, also where the API server's proxy would have it, from a thread of its own."""

    def __init__(self) -> None:
        self.topologies = TOPOLOGIES
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)

    async def _start(self) -> int:
        listed = Listed(lambda: 1_800_000_000.0)
        listed.follow(lambda: self.topologies)
        app = page_app(listed, ())
        app.add_subapp(PROXY, page_app(listed, ()))
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return self._runner.addresses[0][1]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def address(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self.port}{path}/"
