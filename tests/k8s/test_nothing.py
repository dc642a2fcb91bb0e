"""An operator with nothing to do, for ten minutes: it stays ready, writes nothing, and serves what comes then.

tests/kubernetes/test_nothing.py has the same on a real API server.
"""

from __future__ import annotations

import asyncio

import pytest
from support.fake_api import NAME, NAMESPACE, FakeCluster
from support.operator_world import manifest
from support.virtual_operator import VirtualRelease
from support.virtual_time import run_virtual

NOTHING_SECONDS = 600.0
EMPTY = ["empty", NAMESPACE]


async def idle(cluster: FakeCluster, release: VirtualRelease) -> None:
    """Ten minutes in which nothing is there."""
    before = len(cluster.writes)
    await asyncio.sleep(NOTHING_SECONDS)
    assert not release.has_ended
    assert release.health.waits_for is None
    assert release.health.problem is None
    assert cluster.writes[before:] == []


async def until_phase(cluster: FakeCluster, phase: str | None) -> None:
    async with asyncio.timeout(NOTHING_SECONDS):
        while ((cluster.topology or {}).get("status") or {}).get("phase") != phase:
            await asyncio.sleep(0.25)


@pytest.mark.parametrize("namespaces", [[None], EMPTY], ids=["all namespaces", "two, one of which is empty"])
def test_operator_without_a_topology_stays_ready_before_and_after_one(namespaces: list[str | None]) -> None:
    async def story() -> None:
        cluster = FakeCluster()
        running = asyncio.create_task(cluster.run())
        release = VirtualRelease(cluster, "operators", namespaces=namespaces)
        release.start()
        try:
            await idle(cluster, release)
            for _ in range(2):
                cluster.create(manifest(NAME))
                await until_phase(cluster, "Running")
                cluster.delete()
                await until_phase(cluster, None)
                await idle(cluster, release)
            assert release.mistakes == 0
        finally:
            await release.stop()
            running.cancel()

    run_virtual(story())
