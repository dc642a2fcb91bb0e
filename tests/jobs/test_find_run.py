"""`plan` and `top` find a running topology by its name: on this machine, on the cluster, or at an address."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from kubernetes.client import ApiClient, Configuration

from streamtopology.jobs.admin.ask_cluster import ClusterDriver, Unreachable
from streamtopology.jobs.admin.find_run import PAGE, Where, asking_url, find_run
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.control_socket import ControlServer, NotRunning, ask, claim, the_running

NAME = f"found-{os.getpid()}"  # names are those of the machine: tests run in parallel processes


class Stats(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"no stats" if self.path.startswith("/page") else json.dumps({"asked": self.path}).encode())

    def log_message(self, format: str, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server of this handler."""
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def address() -> Iterator[str]:
    with serving(Stats) as address:
        yield address


@pytest.mark.parametrize("where", [Where(), Where(here=True)])
def test_topology_of_this_machine_is_found_by_its_name(address: str, where: Where) -> None:
    with ControlServer(NAME, {"address": lambda: address}):
        assert find_run(NAME, where)(7) == {"asked": "/stats?since=7"}


def test_topology_that_runs_nowhere_is_reported_with_both_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(NotRunning, match=r"is not running here .* \(and on the cluster: no cluster to ask"):
        find_run(NAME, Where())
    with pytest.raises(WrongUse, match="no cluster to ask"):
        find_run(NAME, Where(namespace="theirs"))


def test_user_without_a_cluster_reads_nothing_of_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NotRunning, match=r"start it with: streamtopology run FILE$"):
        find_run(NAME, Where())
    with pytest.raises(WrongUse, match=r"there is no ~/\.kube/config"):
        find_run(NAME, Where(namespace="theirs"))


def test_address_is_asked_and_what_is_no_stats_is_refused(address: str) -> None:
    assert asking_url(f"{address}/stats")(-1) == {"asked": "/stats?since=-1"}
    with pytest.raises(WrongUse, match=r"/page does not answer in JSON .*; name the driver's /stats"):
        asking_url(f"{address}/page")(-1)
    with pytest.raises(Unreachable, match=r"nothing answers at http://127.0.0.1:1/stats"):
        asking_url("http://127.0.0.1:1/stats")(-1)


@pytest.mark.parametrize("answer", [b'{"topology": "fli', b'{"a": "\xff"}', b""])
def test_answer_that_is_cut_off_is_one_of_a_driver_that_cannot_be_asked(answer: bytes) -> None:
    class Cut(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer) + 5 * self.path.startswith("/short")))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *_: object) -> None:
            pass

    with serving(Cut) as address:
        with pytest.raises(Unreachable, match="is cut off or damaged"):
            asking_url(f"{address}/stats")(-1)
        with pytest.raises(Unreachable, match="nothing answers at"):
            asking_url(f"{address}/short")(-1)
        api = ApiClient(Configuration(host=address))
        with pytest.raises(Unreachable, match="topology 'flights' in namespace a: the answer is cut off or damaged"):
            ClusterDriver(api, "flights", "a", PAGE)(-1)


def test_only_running_topology_needs_no_name_and_two_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(NotRunning, match=r"no topology runs here .*; start one with: streamtopology run FILE"):
        the_running()
    with ControlServer("first", {}):
        assert the_running() == "first"
        with ControlServer("second", {}), pytest.raises(NotRunning, match="topologies run here: first, second; name one"):
            the_running()


def test_topology_that_starts_is_named_as_starting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with claim("early"):
        with pytest.raises(NotRunning, match=r"topology 'early' is being started here by process \d+; wait until it runs"):
            the_running()
        with pytest.raises(NotRunning, match="wait until it runs"):
            ask("early", "resize", class_name="small", cpu="1")
    with pytest.raises(NotRunning, match="no topology runs here"):
        the_running()
