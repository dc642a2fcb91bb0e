"""`streamtopology ui` leads to the page of a run that is here, and serves that of a report; what it cannot show it names."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from support.page_histories import flights, played, served

from streamtopology.contract.environment import PAGE_HOSTS
from streamtopology.jobs.admin.ask_cluster import Unreachable
from streamtopology.jobs.admin.find_run import Where
from streamtopology.jobs.admin.page_of import FILE, page_of_report, page_of_run
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.control_socket import ControlServer
from streamtopology.jobs.local.user_browser import opened
from streamtopology.jobs.view.http_server import PageServer

NAME = f"shown-{os.getpid()}"


@pytest.fixture
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a browser for terminals at most."""
    monkeypatch.setenv("BROWSER", "cat %s")
    monkeypatch.delenv("DISPLAY", raising=False)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report's folder with the page of a re-routed run."""
    (tmp_path / FILE).write_text(json.dumps(served(played(12, reroute_at=6, topology=flights())[1])))
    return tmp_path


def asking(capsys: pytest.CaptureFixture[str], answers: dict[str, bytes]) -> Callable[[], None]:
    """A wait of `ui` in which its page and value are asked for, at the address that it has printed."""

    def ask() -> None:
        address = capsys.readouterr().out.split()[1]
        for path in ("", "page.js", "page.json?since=3"):
            with urlopen(f"{address}{path}", timeout=60) as answer:
                answers[path] = answer.read()

    return ask


def test_report_is_shown_as_the_run_ended(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers: dict[str, bytes] = {}
    page_of_report(report, 0, False, asking(capsys, answers))
    assert b"<title>StreamTopology</title>" in answers[""]
    page = json.loads(answers["page.json?since=3"])
    assert (page["batch"], len(page["reroutings"]), len(page["batches"])) == (11, 1, 12)


def test_ages_of_a_report_are_until_now(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, answers = time.time(), dict[str, bytes]()
    page_of_report(report, 0, False, asking(capsys, answers))
    assert json.loads(answers["page.json?since=3"])["now"] >= before
    ahead = {**json.loads((report / FILE).read_text()), "now": before + 1e6}  # of a machine whose clock is ahead
    (report / FILE).write_text(json.dumps(ahead))
    page_of_report(report, 0, False, asking(capsys, answers))
    assert json.loads(answers["page.json?since=3"])["now"] == before + 1e6


def test_page_of_a_report_is_opened_by_a_name_that_the_user_gave(
    report: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PAGE_HOSTS, "hub.example.com")

    def by_name() -> None:
        address = capsys.readouterr().out.split()[1]
        with urlopen(Request(address, headers={"Host": "hub.example.com"}), timeout=60) as answer:
            assert answer.status == 200

    page_of_report(report, 0, False, by_name)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (None, r"page.json is not there: name a folder that `streamtopology run MANIFEST --report DIR` wrote"),
        ("{", r"cannot be shown: .*; run with --report again"),
        ('{"format": 99}', r"that writes format 99, not 1: .*show it with that version; run with --report again"),
        ("[]", r"not a JSON object"),
    ],
)
def test_report_that_cannot_be_shown_is_named(report: Path, changed: str | None, why: str) -> None:
    (report / FILE).unlink() if changed is None else (report / FILE).write_text(changed)
    with pytest.raises(WrongUse, match=why):
        page_of_report(report, 0, False, lambda: None)


@pytest.mark.usefixtures("no_browser")
@pytest.mark.parametrize(("options", "added"), [([], ""), (["--open"], " (no browser here to open it with)")])
def test_page_of_a_run_on_this_machine_is_at_its_driver(
    options: list[str], added: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with ControlServer(NAME, {"address": lambda: "http://127.0.0.1:4041"}):
        assert main(["ui", NAME, *options]) == 0
    assert capsys.readouterr().out == f"page: http://127.0.0.1:4041/{added}\n"


@pytest.mark.usefixtures("no_browser")
def test_browser_that_would_take_the_terminal_is_not_opened() -> None:
    assert not opened("http://127.0.0.1:4041/")


def test_page_of_a_run_elsewhere_passes_on_what_its_driver_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = played(12, topology=flights())[1]
    monkeypatch.setattr(
        "streamtopology.jobs.admin.page_of.find_run", lambda name, where, answer: lambda since: served(record, since)
    )
    answers: dict[str, bytes] = {}
    page_of_run("flights", Where(namespace="theirs"), 0, False, asking(capsys, answers))
    assert [batch["number"] for batch in json.loads(answers["page.json?since=3"])["batches"]] == list(range(4, 12))


def test_driver_that_is_away_is_a_sentence() -> None:
    def away(since: int) -> dict[str, Any]:
        raise Unreachable("the API server does not answer: refused")

    with PageServer(away) as server, pytest.raises(HTTPError) as answer:
        urlopen(f"{server.url}/page.json", timeout=60)
    assert answer.value.code == HTTPStatus.BAD_GATEWAY
    assert answer.value.read() == b"the API server does not answer: refused\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["ui", "flights", "--report", "x"], "not both"),
        (["ui", "-n", "streams"], "name the topology: streamtopology ui NAME"),
        (["ui", "--report", "nowhere"], "nowhere/page.json is not there"),
    ],
)
def test_wrong_use_of_ui_is_named(arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert why in capsys.readouterr().err
