"""Asking drivers: what is read, and that a driver that is slow, gone or talks nonsense is silent and harms nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from support.operator_world import World, manifest
from support.wire_stats import whole

from streamtopology.contract.stats import StatsFormatError, read_stats
from streamtopology.contract.stats_question import Question
from streamtopology.k8s.decide.answers import FIRST_QUESTION, Judged, PlanningRequest, Target
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.io.scrape import Scraper
from streamtopology.k8s.planning.judge import Judge
from streamtopology.topology import Rebalance

KEY = TopologyKey("space", "flow")
REQUEST = PlanningRequest("flow", Rebalance(), by_share=True, may_judge=False)


def stats(**changed: Any) -> dict[str, Any]:
    batch = {
        "number": 4, "epoch": 2, "rows": 10, "seconds": 0.5, "committed_at": 100.0, "imbalance": {"counts": 0.2},
        "reports": [], "source_reports": [],
    }  # fmt: skip
    return whole({
        "topology": "flow", "phase": "running", "generation": 3, "epoch": 2, "newest_epoch": 2, "batch": 4,
        "rows_per_second": 20.0, "bound_rows_per_second": 30.0, "policies": {"counts": "mixed"}, "routing": None,
        "slots": [{"index": 0, "executor": "large-0", "class": "large", "cpu": 0.4}],
        "last_batch": batch, "batches": [batch], "reconfigurations": [], "refused": None, "checkpoint": "/c",
        "executors": [], **changed,
    })  # fmt: skip


class Beside:
    """The planner in this process."""

    def __init__(self) -> None:
        self._judge = Judge(lambda: 0.0)

    async def judge(self, uid: str, answer: bytes, request: PlanningRequest) -> Judged:
        return self._judge.judge(uid, answer, request)

    def known(self, uid: str) -> Question:
        return FIRST_QUESTION

    async def forget(self, uid: str) -> None:
        self._judge.forget(uid)


@asynccontextmanager
async def driver(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/stats", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    finally:
        await runner.cleanup()


async def ask(scraper: Scraper, url: str, answered: asyncio.Event, pod: str = "pod-1") -> Any:
    answered.clear()
    scraper.want(KEY, Target("uid", pod, url, 0.01, REQUEST))
    await asyncio.wait_for(answered.wait(), 10)
    return scraper.answer(KEY)


def scrape(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
    async def story() -> Any:
        answered = asyncio.Event()
        async with driver(answer) as url, aiohttp.ClientSession() as session:
            scraper = Scraper(session, Beside(), lambda _: answered.set(), lambda: 50.0)
            try:
                return await ask(scraper, url, answered)
            finally:
                scraper.close()

    return asyncio.run(story())


def test_an_answer_is_read():
    async def well(request: web.Request) -> web.Response:
        assert request.query["since"] == "-1"
        return web.json_response(stats())

    answer = scrape(well)
    assert answer.silence is None
    assert (answer.stats.generation, answer.stats.epoch, answer.stats.slots_by_class) == (3, 2, {"large": 1})
    assert answer.stats.imbalance == pytest.approx(0.2)


async def broken(_: web.Request) -> web.Response:
    return web.Response(status=500)


async def cut(_: web.Request) -> web.Response:
    return web.Response(text='{"format": 1, "topology"')


async def hang_up(request: web.Request) -> web.Response:
    request.transport.close()  # type: ignore[union-attr]
    return web.Response()


@pytest.mark.parametrize(("fault", "why"), [(broken, "500"), (cut, "not JSON"), (hang_up, "")])
def test_unreadable_answer_is_silence_with_the_reason(fault: Any, why: str):
    answer = scrape(fault)
    assert answer.stats is None
    assert why in answer.silence.why
    assert (answer.silence.since, answer.silence.count) == (50.0, 1)


class Mistaken(Beside):
    async def judge(self, uid: str, answer: bytes, request: PlanningRequest) -> Judged:
        raise ZeroDivisionError("no capacity")


def test_a_mistake_in_judging_is_reported_and_the_driver_is_asked_again():
    async def well(_: web.Request) -> web.Response:
        return web.json_response(stats())

    async def story() -> None:
        answered = asyncio.Event()
        async with driver(well) as url, aiohttp.ClientSession() as session:
            scraper = Scraper(session, Mistaken(), lambda _: answered.set(), lambda: 50.0)
            while (reported := await ask(scraper, url, answered)).silence.count < 2:
                continue
            assert "ZeroDivisionError: no capacity" in reported.silence.why
            scraper.close()

    asyncio.run(story())


def test_silence_keeps_the_last_answer_and_counts_and_an_answer_ends_it():
    async def story() -> None:
        answered, well = asyncio.Event(), True

        async def answer(_: web.Request) -> web.Response:
            return web.json_response(stats()) if well else web.Response(status=503)

        async with driver(answer) as url, aiohttp.ClientSession() as session:
            scraper = Scraper(session, Beside(), lambda _: answered.set(), lambda: 50.0)
            assert (await ask(scraper, url, answered)).silence is None
            well = False
            for _ in range(3):
                answered.clear()
                await asyncio.wait_for(answered.wait(), 10)
            silent = scraper.answer(KEY)
            assert silent is not None
            assert silent.silence is not None
            assert silent.silence.count >= 2
            assert silent.stats is not None
            well = True
            while scraper.answer(KEY).silence is not None:  # type: ignore[union-attr]
                answered.clear()
                await asyncio.wait_for(answered.wait(), 10)
            fresh = await ask(scraper, url, answered, pod="pod-2")
            assert fresh.pod == "pod-2", "another pod is another driver"
            scraper.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"format": 0}, "format 0"),
        ({"topology": "other"}, "topology 'other'"),
        ({"slots": [{}]}, r"slots\[0\].index is missing"),
        ({"batch": "x"}, "batch is 'x', not a whole number"),
    ],
)
def test_stats_that_do_not_hold_are_refused_with_a_sentence(changed: dict[str, Any], why: str):
    with pytest.raises(StatsFormatError, match=why):
        read_stats(stats(**changed), "flow")
    with pytest.raises(StatsFormatError, match="JSON object"):
        read_stats([], "flow")


def test_a_batch_is_given_to_the_controller_once():
    judge = Judge(lambda: 0.0)
    answer = json.dumps(stats()).encode()
    assert judge.judge("uid", answer, REQUEST).stats.batch == 4
    assert judge.judge("uid", answer, REQUEST).judgement is None
    damaged = stats()
    damaged["batches"][0] = {**damaged["batches"][0], "number": 5, "reports": [{"format": 99}]}
    with pytest.raises(StatsFormatError, match="batch 5"):
        judge.judge("uid", json.dumps(damaged).encode(), REQUEST)


def test_the_scrape_goes_where_the_driver_is_and_quickly_while_something_changes():
    world = World(manifest())
    world.settle()
    settled = world.decide().target
    assert settled is not None
    assert settled.url == "http://10.0.0.1:9090"
    world.change(rebalance={"tolerance": 0.2})
    changing = world.decide().target
    assert changing is not None
    assert changing.interval_seconds < settled.interval_seconds
    world.carry_out(world.decide())
    world.now += 100
    lasting = world.decide().target
    assert lasting is not None
    assert lasting.interval_seconds == settled.interval_seconds, "what lasts is not asked for twice a second"


def test_absent_slot_does_not_count() -> None:
    slots = [
        {"index": 0, "executor": "large-0", "class": "large", "cpu": 0.4, "present": True},
        {"index": 1, "executor": "large-1", "class": "large", "cpu": 0.4, "present": False},
        {"index": 2, "executor": "small-0", "class": "small", "cpu": 0.1, "present": False},
    ]
    read = read_stats(stats(slots=slots), "flow")
    assert read.slots_by_class == {"large": 1}
    assert read.slot_classes == ("large", "large", "small"), "by number: what is gone keeps its own"


def test_an_executor_counts_when_it_is_warm_and_fills_a_slot() -> None:
    executors = [
        {"executor": "4", "class": "large", "pod": "flow-large-0", "slot": 0, "admitted": True},
        {"executor": "5", "class": "large", "pod": "flow-large-1", "slot": 1, "admitted": False},
        {"executor": "6", "class": "small", "pod": "flow-small-7", "slot": None, "admitted": True},
    ]
    assert dict(read_stats(stats(executors=executors), "flow").admitted_by_class) == {"large": 1}
