"""Ages of what the API server dates are by its clock, whatever time of day our host has."""

from __future__ import annotations

import asyncio
from email.utils import formatdate

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.aio.client import ApiClient, Configuration

from streamtopology.k8s import names
from streamtopology.k8s.io.api import Api
from streamtopology.k8s.io.server_clock import UNSURE_SECONDS, ServerClock

NOON = 1_700_000_000.0


@given(
    skew=st.floats(-1e6, 1e6),
    answers=st.lists(st.tuples(st.floats(0.0, 600.0), st.floats(0.0, 1.0)), min_size=1, max_size=20),
)
def test_an_age_is_right_by_any_clock_of_ours(skew: float, answers: list[tuple[float, float]]) -> None:
    """skew: of our host; answers: (pause before, seconds that it was on its way)."""
    served = NOON
    clock = ServerClock(lambda: served + skew)
    for pause, on_its_way in answers:
        served += pause
        date = formatdate(served, usegmt=True)
        served += on_its_way
        clock.hear(date)
        assert abs(clock.now() - served) <= UNSURE_SECONDS + 1.5


def test_answers_of_the_same_clock_do_not_move_it() -> None:
    ours = NOON
    clock = ServerClock(lambda: ours)
    for step in range(300):
        ours = NOON + 0.37 * step
        clock.hear(formatdate(ours, usegmt=True))
        assert clock.now() == ours


@pytest.mark.parametrize("date", [None, "", "yesterday", "Tue, 99 Nov 2023 22:13:20 GMT", "2023-11-14T22:13:20Z"])
def test_an_answer_without_a_date_is_passed_over(date: str | None) -> None:
    clock = ServerClock(lambda: NOON)
    clock.hear(date)
    assert clock.now() == NOON


def test_every_answer_is_heard() -> None:
    heard: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b"{}", content_type="application/json", headers={"Date": "Tue, 14 Nov 2023 22:13:20 GMT"})

    async def story() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            async with ApiClient(Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
                await Api(client, hear=heard.append).get(names.TOPOLOGY, "ns", "flow")
        finally:
            await runner.cleanup()

    asyncio.run(story())
    assert heard == ["Tue, 14 Nov 2023 22:13:20 GMT"]
