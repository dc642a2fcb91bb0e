"""A status that is refused, or a token that is not valid: what ends each look is tried less and less often."""

from __future__ import annotations

import asyncio

import pytest
from support.fake_api import NAME, FakeCluster
from support.operator_world import manifest
from support.virtual_operator import VirtualRelease
from support.virtual_time import run_virtual

from streamtopology.k8s.io.api import ApiError

REFUSED_SECONDS = 600.0
# Once a minute at last; the first pauses are shorter.
MOST_WRITES = REFUSED_SECONDS / 60 + 8


@pytest.mark.parametrize("status", [401, 403, 422])
def test_refused_status_is_written_once_a_minute_however_often_the_driver_answers(status: int) -> None:
    async def story() -> None:
        cluster = FakeCluster()
        running = asyncio.create_task(cluster.run())
        release = VirtualRelease(cluster, "operators")
        release.start()

        def refusal(call: str) -> ApiError | None:
            return ApiError(status, "Refused", "frozen", "/streamtopologies/flow/status") if "/status " in call else None

        def runs(generation: int) -> bool:
            reported = (cluster.topology or {}).get("status") or {}
            return (reported.get("phase"), reported.get("observedGeneration")) == ("Running", generation)

        async def until(generation: int, seconds: float) -> None:
            async with asyncio.timeout(seconds):
                while not runs(generation):
                    await asyncio.sleep(0.25)

        try:
            cluster.create(manifest(NAME))
            await until(1, 600.0)
            cluster.refuses = refusal
            cluster.edit({"spec": {"executors": [{"name": "large", "replicas": 1, "cpu": "300m", "memory": "1Gi"}]}})
            before = len(cluster.writes)
            await asyncio.sleep(REFUSED_SECONDS)
            assert 3 < len(cluster.writes) - before <= MOST_WRITES
            cluster.refuses = lambda call: None
            await until(2, 300.0)
        finally:
            await release.stop()
            running.cancel()

    run_virtual(story())
