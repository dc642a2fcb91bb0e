"""The threads by which a driver hears of its routing survive whatever they get, and say so."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kubernetes import client
from support.config_maps import config_map
from support.manifests import counting, files, manifest, memory_sink
from support.waiting import eventually

from streamtopology.jobs.pods.configmap_follower import Follower, Mailbox, following
from streamtopology.jobs.pods.configmap_watch import LEAST_SECONDS, ConfigMapContent, ConfigMapWatch
from streamtopology.jobs.pods.routing_configmap import RoutingMap
from streamtopology.jobs.runtime.topology_run import TopologyRun
from streamtopology.topology import Topology, parse

PROXY = "<html>\n\nback in a minute</html>\n"


class Answers(BaseHTTPRequestHandler):
    """Answers each list and each watch with the next of the prepared texts, the last one for ever."""

    lists: list[str]
    watches: list[str]
    # The times at which watches were asked for, in seconds.
    began: list[float]

    def do_GET(self) -> None:
        prepared = self.watches if "watch=" in self.path else self.lists
        body = (prepared.pop(0) if len(prepared) > 1 else prepared[0]).encode()
        if prepared is self.watches:
            self.began.append(time.monotonic())
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if body[:1] == b"{" else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


def listed(generation: str) -> str:
    item = {"metadata": {"name": "flights-routing", "resourceVersion": generation}, "data": {"generation": generation}}
    return json.dumps({"kind": "ConfigMapList", "metadata": {"resourceVersion": generation}, "items": [item]})


@pytest.fixture
def api() -> Iterator[tuple[client.CoreV1Api, type[Answers]]]:
    answers = type("Prepared", (Answers,), {"began": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        at = client.Configuration(host=f"http://127.0.0.1:{server.server_port}")
        yield client.CoreV1Api(client.ApiClient(at)), answers
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("odd", [PROXY, "\n", '{"type": "MODIFIED"}\n', '{"type": "ERROR", "object": {"code": 500}}\n'])
def test_watch_survives_answers_of_others(api: tuple[client.CoreV1Api, type[Answers]], odd: str) -> None:
    core, answers = api
    answers.lists, answers.watches = [listed("1"), PROXY, listed("2")], [odd, ""]
    taken: list[ConfigMapContent | None] = []
    reported: list[str] = []
    with ConfigMapWatch(core, "air", "flights-routing", taken.append, reported.append):
        eventually(lambda: len(taken) == 2)
    assert [content and content.data["generation"] for content in taken] == ["1", "2"]
    assert "ConfigMap flights-routing cannot be watched" in reported[0]
    assert reported[-1] == "ConfigMap flights-routing is watched again"


@pytest.mark.parametrize("nothing", ['{"items": null}', "{}", '{"items": [], "metadata": null}'])
def test_list_without_the_map_is_none_however_it_is_written(api: tuple[client.CoreV1Api, type[Answers]], nothing: str) -> None:
    core, answers = api
    bare = '{"type": "ADDED", "object": {"metadata": {"name": "flights-routing"}, "data": null}}\n'
    answers.lists, answers.watches = [nothing], ["", bare, ""]
    taken: list[ConfigMapContent | None] = []
    reported: list[str] = []
    with ConfigMapWatch(core, "air", "flights-routing", taken.append, reported.append):
        eventually(lambda: len(taken) == 2)
    assert (taken, reported) == ([None, ConfigMapContent({}, {})], [])


def test_watches_that_are_ended_at_once_are_begun_again_after_a_pause(api: tuple[client.CoreV1Api, type[Answers]]) -> None:
    core, answers = api
    answers.lists, answers.watches = [listed("1")], [""]
    with ConfigMapWatch(core, "air", "flights-routing", lambda content: None, lambda text: None):
        eventually(lambda: len(answers.began) == 3)
    assert answers.began[2] - answers.began[0] > LEAST_SECONDS, "twice that, or the first was late"


def test_follower_survives_an_error_of_this_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults: list[Exception] = [KeyError("a mistake of ours")]
    reported: list[str] = []

    def apply(topology: Topology) -> str:
        if faults:
            raise faults.pop()
        return f"epoch 2: {topology.name}"

    def of(policy: str) -> Topology:
        return parse(manifest("flights", [files(tmp_path)], [counting(policy=policy)], [memory_sink("out", "counts")]))

    router = SimpleNamespace(withdraw=lambda: None)
    run = cast("TopologyRun", SimpleNamespace(apply=apply, notify=reported.append, router=router))
    follower = Follower(run, "flights-routing", RoutingMap(of("fields"), 1, None))
    mailbox: Mailbox = SimpleQueue()
    with following(mailbox, follower):
        mailbox.put(config_map(RoutingMap(of("mixed"), 2, None)))
        eventually(lambda: follower.refused is not None)
        assert follower.refused is not None
        assert follower.refused.why == "KeyError: 'a mistake of ours'; please report this"
        mailbox.put(config_map(RoutingMap(of("mixed"), 3, None)))
        eventually(lambda: follower.generation == 3)
    assert follower.refused is None
    assert reported[-1] == "epoch 2: flights"
    assert "Traceback" in capsys.readouterr().err
