"""The page over real sockets: its files and headers, and who gets it."""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry
from support.histories import run
from support.page_histories import FLIGHTS, HOSTILE, flights, many, recorded, standing_of
from support.waiting import eventually

from streamtopology.contract.environment import PAGE_HOSTS
from streamtopology.contract.page import read_page
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.stats import build_stats
from streamtopology.jobs.pods.environment import DriverEnvironment
from streamtopology.jobs.view import http_server
from streamtopology.jobs.view.http_server import StatusServer, driver_page
from streamtopology.jobs.view.page.record import PageRecord
from streamtopology.topology import parse, problems_in_pods
from streamtopology.web import page_http
from streamtopology.web.page_http import HEADERS

MOST_BYTES = 150_000
SOURCE = Path(http_server.__file__).parent / "page"
LOOK = Path(page_http.__file__).parent / "look"
SCRIPTS = [file for folder in (SOURCE, LOOK) for file in folder.glob("*.js")]


def serving(record: PageRecord, history: History) -> StatusServer:
    return StatusServer(
        CollectorRegistry(),
        lambda asked: build_stats(history, asked=asked),
        lambda since: record.page(standing_of(), since),
        history.is_ready,
        names=("flights.example.com",),
    )


@pytest.fixture(scope="module")
def server() -> Iterator[StatusServer]:
    history = run(6)
    with serving(recorded(history, flights()), history) as running:
        yield running


def ask(server: StatusServer, path: str, method: str = "GET", **headers: str | None) -> tuple[HTTPResponse, bytes]:
    """The answer to a request with these headers; a Host of None is left out."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {"Host": f"127.0.0.1:{server.port}", **headers}.items():
        if value is not None:
            connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


@pytest.mark.parametrize("path", ["/", "/page.css", "/look.css", "/page.js", "/dom.js", "/page.json"])
def test_page_is_served_with_a_strict_policy(server: StatusServer, path: str):
    answer, body = ask(server, path)
    assert answer.status == 200
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    kinds = {"/": "text/html", "/page.css": "text/css", "/look.css": "text/css", "/page.json": "application/json"}
    assert answer.headers["Content-Type"].split(";")[0] == kinds.get(path, "text/javascript")
    assert int(answer.headers["Content-Length"]) == len(body)


def test_page_asks_for_served_files_by_relative_addresses_alone(server: StatusServer):
    _, markup = ask(server, "/")
    links = re.findall(r'(?:src|href)="([^"]*)"', markup.decode())
    scripts = [name for file in SCRIPTS for name in re.findall(r"from '([^']*)'", file.read_text())]
    assert {"look.css", "page.css", "page.js"} <= set(links)
    for link in [*links, *scripts]:
        if not link.startswith(("#", "data:,")):
            assert not urlsplit(link).scheme, link
            assert not link.startswith("/"), link
            assert ask(server, f"/{link.removeprefix('./')}")[0].status == 200, link
    assert "question(`page.json" in (SOURCE / "page.js").read_text()


def test_page_is_small():
    assert sum(len(file.body) for file in driver_page().values()) <= MOST_BYTES
    assert len(driver_page()) == sum(
        file.suffix in (".html", ".css", ".js") for folder in (SOURCE, LOOK) for file in folder.iterdir()
    )


def test_source_of_the_page_parses_no_text_as_markup():
    forbidden = (
        *("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "createContextualFragment", "srcdoc"),
        *("eval(", "new Function", "setTimeout('", "javascript:", "http://", "https://", "localStorage", "cookie"),
    )
    for file in SCRIPTS:
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert [word for word in forbidden if word in text] == [], file.name
        assert "setAttribute('style'" not in text
    markup = (SOURCE / "index.html").read_text()
    assert re.findall(r"\s(?:on\w+|style)=|<style|<script>", markup) == []
    for style in (SOURCE / "page.css", LOOK / "look.css"):
        assert "@import" not in style.read_text()
        assert "url(" not in style.read_text()


def test_value_has_the_batches_that_the_page_lacks(server: StatusServer):
    _, body = ask(server, "/page.json?since=3")
    assert [batch.number for batch in read_page(json.loads(body)).batches] == [4, 5]
    answer, packed = ask(server, "/page.json", Accept_Encoding="gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(read_page(json.loads(gzip.decompress(packed))).batches) == 6
    refused, text = ask(server, "/page.json?since=yesterday")
    assert (refused.status, refused.headers["Content-Security-Policy"]) == (400, HEADERS["Content-Security-Policy"])
    assert b"since=yesterday: give the number" in text


def test_address_that_is_none_is_answered_with_a_sentence(server: StatusServer, capfd: pytest.CaptureFixture[str]):
    answer, body = ask(server, "http://[/")
    assert (answer.status, body) == (400, b"'http://[/' is no address: Invalid IPv6 URL\n")
    assert capfd.readouterr().err == ""


def test_figures_that_cannot_be_given_are_answered_with_a_sentence(capfd: pytest.CaptureFixture[str]):
    history = run(3)
    history.batch_done(replace(run(4).batches[-1], bound=float("inf")))
    with serving(recorded(history), history) as running:
        answer, body = ask(running, "/page.json")
    assert (answer.status, answer.headers["Content-Security-Policy"]) == (500, HEADERS["Content-Security-Policy"])
    assert body == b"the figures cannot be given: ValueError, see the log of this program\n"
    logged: list[str] = []

    def is_logged() -> bool:
        """The answer is there before its log is."""
        logged.append(capfd.readouterr().err)
        return "Out of range float values" in "".join(logged)

    eventually(is_logged, 60)


def test_connection_that_says_nothing_is_closed(server: StatusServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server._PageHandler, "timeout", 0.1)
    for begun in (b"", b"GET /page.json HTTP/1.0\r\nHost: loc"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as asker:
            asker.sendall(begun)
            assert asker.recv(1) == b""


def test_hostile_keys_leave_the_server_as_json_text():
    history = many(3, 4, keys=HOSTILE)
    with serving(recorded(history), history) as running:
        answer, body = ask(running, "/page.json")
    assert (answer.headers["Content-Type"], answer.headers["X-Content-Type-Options"]) == ("application/json", "nosniff")
    assert read_page(json.loads(body)).keys


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8080", "localhost.:8080", "127.0.0.1:31000", "10.1.2.3", "[::1]:4040", "[fd00::17]"),
        *("flights.example.com", "Flights.Example.com:443"),
    ],
)
def test_page_answers_to_addresses_localhost_and_given_names(server: StatusServer, host: str):
    assert ask(server, "/", Host=host)[0].status == 200
    assert ask(server, "/page.json", Host=host)[0].status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "[::1", "a@b@c", None]
)
def test_page_is_refused_under_another_name(server: StatusServer, host: str | None):
    for path in ("/", "/page.js", "/page.json"):
        answer, body = ask(server, path, Host=host)
        assert answer.status == 421
        assert PAGE_HOSTS in body.decode()
        assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
        assert b"N725MQ" not in body


@pytest.mark.parametrize("path", ["/stats", "/metrics", "/healthz", "/readyz"])
def test_programs_are_answered_under_any_name(server: StatusServer, path: str):
    assert ask(server, path, Host="flights-driver.streams.svc.cluster.local:4040")[0].status == 200


@pytest.mark.parametrize("path", ["/stats?since=-1", "/metrics", "/healthz", "/nothing"])
@pytest.mark.parametrize("language", ["en-US,en;q=0.9", ""])
def test_browser_that_a_foreign_name_has_led_here_reads_nothing(server: StatusServer, path: str, language: str):
    answer, body = ask(server, path, Host="evil.example:4040", Accept_Language=language)
    assert (answer.status, b"not to 'evil.example:4040'" in body) == (421, True)
    assert b"N725MQ" not in body
    refused, _ = ask(server, path, Origin="http://evil.example", Accept_Language=language)
    assert refused.status == 403
    for own in ("localhost:8001", "10.1.2.3", "flights.example.com"):
        assert ask(server, path, Host=own, Accept_Language=language)[0].status in (200, 404)


def test_page_is_refused_to_other_sites(server: StatusServer):
    own = f"http://127.0.0.1:{server.port}"
    assert ask(server, "/page.json", Origin=own)[0].status == 200
    assert ask(server, "/page.json", Host="flights.example.com", Origin="https://flights.example.com")[0].status == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"{own}.evil.example", "http://["):
        answer, body = ask(server, "/page.json", Origin=origin)
        assert (answer.status, body) == (403, b"the page answers to no other site\n"), origin
    assert "Access-Control-Allow-Origin" not in ask(server, "/page.json", Origin=own)[0].headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
@pytest.mark.parametrize("path", ["/", "/page.json", "/stats"])
def test_methods_that_change_things_are_refused(server: StatusServer, method: str, path: str):
    answer, _ = ask(server, path, method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/page.json", "/stats", "/healthz", "/nothing"])
def test_head_has_the_headers_of_get_and_no_body(server: StatusServer, path: str):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as asker:
        asker.sendall(f"HEAD {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        received = b"".join(iter(lambda: asker.recv(65536), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"Content-Length: " in head
    assert body == b""


def test_manifest_may_name_the_hosts_of_the_page():
    env = [{"name": PAGE_HOSTS, "value": "flights.example.com"}]
    given = {**FLIGHTS, "spec": {**FLIGHTS["spec"], "driver": {"pod": {"env": env}}}}
    assert [problem for problem in problems_in_pods(parse(given)) if "env" in problem.path] == []


def test_pods_take_the_names_of_the_page_from_their_environment():
    environ = {"STREAMTOPOLOGY_NAME": "flights", "STREAMTOPOLOGY_NAMESPACE": "a", "POD_NAME": "b", "POD_IP": "10.0.0.1"}
    assert DriverEnvironment.read(environ).page_hosts == ()
    given = {**environ, PAGE_HOSTS: " Flights.Example.com, ,api.example.com"}
    assert DriverEnvironment.read(given).page_hosts == ("flights.example.com", "api.example.com")
