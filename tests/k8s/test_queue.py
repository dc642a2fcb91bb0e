"""The work queue: each topology once, never twice at the same time, later when asked to, again when it failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from streamtopology.k8s.io.queue import FIRST_DELAY, LONGEST_DELAY, Queue, TopologyKey

A, B = TopologyKey("space", "a"), TopologyKey("space", "b")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(story: Callable[[Queue, Clock], Awaitable[None]]) -> None:
    clock = Clock()
    asyncio.run(asyncio.wait_for(story(Queue(clock), clock), 10))  # type: ignore[arg-type]


async def is_empty(queue: Queue) -> bool:
    """True if a worker that asks now would have to wait."""
    taking = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waits = not taking.done()
    taking.cancel()
    return waits


def test_added_twice_is_handed_out_once_and_in_order():
    async def story(queue: Queue, clock: Clock) -> None:
        queue.add(A)
        queue.add(B)
        queue.add(A)
        assert [await queue.take(), await queue.take()] == [A, B]
        assert await is_empty(queue)

    run(story)


def test_key_added_during_its_work_returns_after_it():
    async def story(queue: Queue, clock: Clock) -> None:
        queue.add(A)
        await queue.take()
        queue.add(A)
        assert await is_empty(queue)
        queue.done(A)
        assert await queue.take() == A

    run(story)


def test_a_failure_is_tried_again_after_longer_and_longer():
    async def story(queue: Queue, clock: Clock) -> None:
        delays = []
        queue.add(A)
        for _ in range(10):
            await queue.take()
            delays.append(queue.failed(A))
            clock.now += delays[-1]
        assert delays[0] == FIRST_DELAY
        assert delays[-1] == LONGEST_DELAY
        assert delays == sorted(delays)
        await queue.take()
        queue.done(A)
        queue.add(A)
        await queue.take()
        assert queue.failed(A) == FIRST_DELAY, "a success forgets failures"

    run(story)


def test_later_means_not_before_and_the_earliest_wish_counts():
    async def story(queue: Queue, clock: Clock) -> None:
        queue.add_after(A, 10)
        queue.add_after(A, 5)
        queue.add_after(A, 20)
        clock.now = 4.9
        assert await is_empty(queue)
        clock.now = 5
        assert await queue.take() == A
        queue.done(A)
        clock.now = 60
        assert await is_empty(queue), "one wish, one look"

    run(story)


def test_a_forgotten_topology_does_not_come_back():
    async def story(queue: Queue, clock: Clock) -> None:
        queue.add(A)
        queue.add_after(A, 1)
        queue.forget(A)
        clock.now = 2
        assert await is_empty(queue)

    run(story)


@pytest.mark.parametrize("later", range(6))
def test_a_worker_that_is_cancelled_as_a_key_arrives_ends(later: int):
    """However far the news of the key has come in the event loop by then; the operator would never stop otherwise."""

    async def story(queue: Queue, clock: Clock) -> None:
        async def work() -> None:
            while True:
                queue.done(await queue.take())

        queue.add_after(B, 1000)  # so that the worker waits with a time-out
        worker = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        queue.add(A)
        for _ in range(later):
            await asyncio.sleep(0)
        worker.cancel()
        done, _ = await asyncio.wait({worker}, timeout=1)
        assert worker in done

    run(story)
