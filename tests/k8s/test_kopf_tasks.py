"""A watch of kopf's that ends, for whatever reason, takes none of the operator's own tasks along."""

from __future__ import annotations

import asyncio

import kopf
import pytest
from kopf._core.reactor.running import stop_flag_checker  # a coroutine of kopf's that waits

from streamtopology.k8s.io.kopf_tasks import OthersTasks


def test_task_that_began_during_a_watch_outlives_it() -> None:
    async def scenario() -> tuple[bool, bool]:
        async def ends() -> None:
            raise RuntimeError("404 page not found")

        ours = asyncio.create_task(asyncio.Event().wait())
        kopfs = asyncio.create_task(stop_flag_checker(signal_flag=asyncio.Future(), stop_flag=None))
        assert (ours in OthersTasks(), kopfs in OthersTasks()) == (True, False)
        with pytest.raises(RuntimeError, match="404"):
            await kopf.run_tasks([asyncio.create_task(ends()), kopfs], ignored=OthersTasks())
        return ours.done(), kopfs.done()

    assert asyncio.run(scenario()) == (False, True)


def test_task_of_kopfs_that_hangs_ends_with_the_watch() -> None:
    async def scenario() -> bool:
        async def ends() -> None:
            return

        hung = asyncio.create_task(stop_flag_checker(signal_flag=asyncio.Future(), stop_flag=None))
        root = asyncio.create_task(ends())
        await kopf.run_tasks([root], ignored=OthersTasks())
        return hung.done()

    assert asyncio.run(scenario())
