"""The live view from outside shows what the driver's own would show, and outlives a driver that is away for a while."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, ConsoleDimensions
from support.histories import HASHED, outcome, run

from streamtopology.contract.phases import Phase
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import Binding, BindingKind
from streamtopology.contract.stats import DriverRefusal
from streamtopology.contract.stats_question import Question
from streamtopology.jobs.admin.ask_cluster import Unreachable, asking_the_cluster
from streamtopology.jobs.admin.top import follow, take
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.stats import Standing, build_stats
from streamtopology.jobs.view.screen import screen


def served(history: History, since: int, standing: Standing = Standing()) -> dict[str, Any]:  # noqa: B008 - immutable
    return json.loads(json.dumps(build_stats(history, standing, Question(since)), allow_nan=False))


def shown(history: History) -> str:
    console = Console(width=120, height=40, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(screen(history, 12.0, ConsoleDimensions(120, 40)))
    return captured.get()


def test_it_shows_what_the_drivers_own_view_shows() -> None:
    there, here = run(6, reroute_at=4), History("flights", (), {})
    take(served(there, -1), here)
    assert "large-0" in shown(here)
    assert shown(here) == shown(there)
    there.batch_done(outcome(6, {"tail": HASHED}, epoch=3))
    take(served(there, 5), here)
    take(served(there, 6), here)
    assert shown(here) == shown(there)
    assert [batch.number for batch in here.batches] == list(range(7)), "each batch once"
    assert len(here.reconfigurations) == len(there.reconfigurations)


def test_constraint_of_the_batches_is_shown_in_the_drivers_words() -> None:
    there, here = run(6), History("flights", (), {})
    there.binding = Binding(BindingKind.KEY, "tail", 1.27, 0.61, instance=1, key="Berlin", combinable=False)
    take(served(there, -1), here)
    assert here.binding == there.binding
    assert describe(there.binding) in " ".join(shown(here).split())
    there.binding = None
    take(served(there, 5), here)
    assert "Berlin" not in shown(here)


def test_a_refusal_is_reported_once() -> None:
    there, here = run(2), History("flights", (), {})
    refused = Standing(refused=DriverRefusal(7, 1, "epoch 7 was planned for generation 1, this run is of 2"))
    for _ in range(3):
        take(served(there, -1 if not here.batches else 1, refused), here)
    assert [event.text for event in here.events] == ["not taken: epoch 7 was planned for generation 1, this run is of 2"]


def test_stats_of_another_version_are_refused() -> None:
    with pytest.raises(WrongUse, match="that writes format 9, not 1"):
        take({**served(run(2), -1), "format": 9}, History("flights", (), {}))


class Driver:
    """Answers as a driver does; away for some questions, and then restarted without a memory of its batches."""

    def __init__(self, away: int) -> None:
        self.history = run(3)
        self.asked = 0
        self.away = away

    def __call__(self, since: int) -> Mapping[str, Any]:
        self.asked += 1
        if 1 < self.asked <= 1 + self.away:
            raise Unreachable("503 Service Unavailable")
        if self.asked == 2 + self.away:
            self.history = History("flights", self.history.slots, self.history.policies)
        if self.asked == 3 + self.away:
            self.history.batch_done(outcome(3, {"tail": HASHED}, epoch=1))
            self.history.enter(Phase.DONE)
        return served(self.history, since)


def follow_to_the_end(driver: Driver) -> str:
    reported = io.StringIO()
    follow(driver, Console(file=reported, width=120, force_terminal=False), lambda seconds: None)
    return reported.getvalue()


def test_a_driver_that_is_away_and_comes_back_is_followed_on() -> None:
    driver = Driver(away=5)
    assert "done, epoch 1, batch 3" in follow_to_the_end(driver)
    assert driver.asked == 8


def test_a_driver_that_stays_away_is_given_up() -> None:
    with pytest.raises(Unreachable, match="503"):
        follow_to_the_end(Driver(away=100_000))


@pytest.mark.parametrize("content", [b"\x80\x81\xff", b"\x00\x01", b"a: [", b"[]", b"7"])
def test_damaged_kubeconfig_is_no_cluster(content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(content)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(WrongUse, match=r"no cluster to ask"):
        asking_the_cluster("flights", None, None)


def test_without_a_cluster_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(WrongUse, match="no cluster to ask: "):
        asking_the_cluster("flights", None, None)
