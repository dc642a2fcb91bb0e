"""Commands to a running topology: an answer, or a refusal with the reason; never a traceback for who asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamtopology.jobs.checkpoint import CheckpointError
from streamtopology.jobs.control import ControlServer, NotRunning, Refused, ask
from streamtopology.jobs.failures import TopologyFailed


def scale(replicas: int) -> str:
    if replicas < 0:
        raise ValueError("fewer than none")
    return f"{replicas} now"


def full() -> str:
    raise CheckpointError("no space on the disk")


def failed() -> str:
    raise TopologyFailed("it has ended")


def wrong() -> str:
    raise KeyError("a mistake of ours")


@pytest.fixture
def running() -> Iterator[str]:
    with ControlServer("asked", {"scale": scale, "full": full, "failed": failed, "wrong": wrong}):
        yield "asked"


def test_an_answer(running: str) -> None:
    assert ask(running, "scale", replicas=3) == "3 now"


@pytest.mark.parametrize(
    ("command", "arguments", "why"),
    [
        ("scale", {"replicas": -1}, "fewer than none"),
        ("scale", {"executors": 1}, "unexpected keyword argument 'executors'"),
        ("full", {}, "no space on the disk"),
        ("failed", {}, "it has ended"),
        ("shrink", {}, "unknown command 'shrink'; this run knows failed, full, scale, wrong"),
    ],
)
def test_a_refusal(running: str, command: str, arguments: dict[str, int], why: str) -> None:
    with pytest.raises(Refused, match=why):
        ask(running, command, **arguments)


def test_a_mistake_of_ours_is_told_where_it_was_made(running: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Refused, match="topology 'asked' did not answer: it ended, or failed at this; its log says which"):
        ask(running, "wrong")
    assert "a mistake of ours" in capsys.readouterr().err


def test_nobody_is_there() -> None:
    with pytest.raises(NotRunning, match="streamtopology run FILE"):
        ask("nosuch", "stop")
