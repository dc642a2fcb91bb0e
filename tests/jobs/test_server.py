"""The driver's HTTP server over real sockets: what a scraper, a controller and a prober get, and a taken port."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.histories import BUCKETS, CAPACITIES, HASHED, SLOTS, no_page, outcome, run

from streamtopology.contract.phases import Phase
from streamtopology.contract.stats import DriverRefusal, LiveExecutor
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.stats import MOST_BATCHES, Standing, build_stats
from streamtopology.jobs.view.http_server import EVERYWHERE_IPV6, AddressError, StatusServer
from streamtopology.jobs.view.prometheus import Metrics
from streamtopology.routing.load.load_report import LoadReport, SourceReport


def serving(history: History, port: int = 0) -> StatusServer:
    registry = Metrics(history).registry
    return StatusServer(registry, lambda asked: build_stats(history, asked=asked), no_page, history.is_ready, port=port)


@pytest.fixture
def history() -> History:
    return run(6, reroute_at=4)


@pytest.fixture
def server(history: History) -> Iterator[StatusServer]:
    with serving(history) as running:
        yield running


def get(url: str, accept: str = "*/*") -> tuple[str, str]:
    with urlopen(Request(url, headers={"Accept": accept}), timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_metrics_are_in_the_format_of_prometheus_and_up_to_date(server: StatusServer, history: History):
    for batches in (6, 7):
        content_type, text = get(f"{server.url}/metrics")
        assert content_type.startswith("text/plain")
        samples = {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}
        assert samples["streamtopology_batches_total"] == batches
        history.batch_done(outcome(batches, {"tail": HASHED}))


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_pods_of_an_ipv6_cluster_are_served_and_so_are_those_of_both(history: History):
    with StatusServer(Metrics(history).registry, lambda _: {}, no_page, history.is_ready, EVERYWHERE_IPV6) as server:
        for host in ("[::1]", "127.0.0.1"):
            assert get(f"http://{host}:{server.port}/healthz")[1] == "ok\n"
        assert server.url == f"http://[::]:{server.port}"


def test_metrics_in_openmetrics_for_who_asks_for_it(server: StatusServer):
    content_type, text = get(f"{server.url}/metrics", "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_stats_are_what_a_controller_needs(server: StatusServer, history: History):
    content_type, text = get(f"{server.url}/stats")
    stats = json.loads(text)
    assert content_type == "application/json"
    assert (stats["format"], stats["topology"], stats["phase"]) == (1, "flights", "running")
    assert (stats["epoch"], stats["batch"]) == (2, 5)
    assert stats["policies"] == {"tail": "mixed"}
    assert stats["slots"][3] == {"index": 3, "executor": "small-0", "class": "small", "cpu": 0.3, "present": True}
    last = stats["last_batch"]
    assert last["capacities"] == [
        {"operator": "tail", "instance": i, "rows_per_second": rate} for i, rate in enumerate(CAPACITIES)
    ]
    assert last["imbalance"].keys() == {"tail"}
    truth = history.batches[-1]
    for wire, report in zip(last["reports"], truth.reports, strict=True):
        read = LoadReport.from_wire(wire)
        assert (read.operator, read.instance, read.rows) == (report.operator, report.instance, report.rows)
        assert np.array_equal(read.bucket_rows.dense(), report.bucket_rows.dense())
    assert [SourceReport.from_wire(wire) for wire in last["source_reports"]] == list(truth.source_reports)


def test_stats_before_the_first_batch_report_the_phase():
    history = History("flights", SLOTS, {"tail": "mixed"})
    history.enter(Phase.STARTING, "starting executors 2/4")
    stats = json.loads(json.dumps(build_stats(history), allow_nan=False))
    assert stats["phase"] == "starting executors 2/4"
    assert stats["last_batch"] is stats["epoch"] is stats["batch"] is stats["rows_per_second"] is None


def test_stats_have_the_batches_that_a_controller_has_missed(server: StatusServer, history: History):
    def numbers(query: str) -> list[int]:
        return [batch["number"] for batch in json.loads(get(f"{server.url}/stats{query}")[1])["batches"]]

    assert numbers("") == []
    assert numbers("?since=5") == []
    assert numbers("?since=3") == [4, 5]
    assert numbers("?since=-1") == [0, 1, 2, 3, 4, 5]
    for number in range(6, 6 + MOST_BATCHES):
        history.batch_done(outcome(number, {"tail": HASHED}, epoch=number // 10))
    stats = json.loads(get(f"{server.url}/stats?since=-1")[1])
    assert [batch["number"] for batch in stats["batches"]] == list(range(6, 6 + MOST_BATCHES)), "the newest, no more"
    newest = stats["batches"][-1]
    assert newest == {"number": 69, "epoch": 6, **stats["last_batch"]}
    oldest = LoadReport.from_wire(stats["batches"][0]["reports"][0])
    assert oldest.bucket_rows.count == BUCKETS, "a controller plans by the buckets of all of them"
    with pytest.raises(HTTPError) as refused:
        numbers("?since=yesterday")
    assert refused.value.code == 400
    assert "since=yesterday: give the number" in refused.value.read().decode()


def test_stats_report_the_standing_of_the_run(history: History):
    refused = DriverRefusal(7, 3, "epoch 7 was planned for generation 3, this run is of 4")
    executors = [LiveExecutor("12", "small", "flights-small-0", 3, True), LiveExecutor("13", "old", None, None, False)]
    stats = build_stats(history, Standing(None, 6, 4, refused, 132_000.0, "/data/checkpoint", executors))
    assert (stats["generation"], stats["newest_epoch"], stats["bound_rows_per_second"]) == (4, 6, 132_000.0)
    assert stats["checkpoint"] == "/data/checkpoint"
    assert stats["refused"] == {"epoch": 7, "generation": 3, "why": refused.why}
    assert stats["executors"] == [
        {"executor": "12", "class": "small", "pod": "flights-small-0", "slot": 3, "admitted": True},
        {"executor": "13", "class": "old", "pod": None, "slot": None, "admitted": False},
    ]
    assert [change["epoch"] for change in stats["reconfigurations"]] == [change.epoch for change in history.reconfigurations]
    assert stats["reconfigurations"][0]["operator"] == "tail"


def test_readyz_answers_once_batches_run(server: StatusServer, history: History):
    assert get(f"{server.url}/readyz")[1] == "ok\n"
    history.enter(Phase.WARMING_UP)
    with pytest.raises(HTTPError) as not_yet:
        get(f"{server.url}/readyz")
    assert not_yet.value.code == 503


def test_healthz_answers_and_another_path_names_what_there_is(server: StatusServer):
    assert get(f"{server.url}/healthz")[1] == "ok\n"
    with pytest.raises(HTTPError) as refused:
        get(f"{server.url}/metric")
    assert refused.value.code == 404
    assert "/metrics, /stats, /healthz and /readyz" in refused.value.read().decode()


def test_a_taken_port_is_reported_clearly(server: StatusServer, history: History):
    with pytest.raises(AddressError, match=rf"127\.0\.0\.1:{server.port}: the port is taken; choose another"):
        serving(history, port=server.port)


def test_port_zero_takes_free_ports_only_on_this_machine(server: StatusServer, history: History):
    with serving(history) as other:
        assert other.port not in {0, server.port}
        assert other.url.startswith("http://127.0.0.1:")


def test_the_port_is_free_again_after_the_end_and_no_thread_stays(history: History):
    with serving(history) as server:
        assert get(f"{server.url}/healthz")
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind((server.host, server.port))
    assert "status-server" not in {thread.name for thread in threading.enumerate()}


def test_an_asker_that_hangs_up_disturbs_nobody(server: StatusServer, capfd: pytest.CaptureFixture[str]):
    for _ in range(5):
        with socket.create_connection((server.host, server.port), timeout=60) as asker:
            asker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # reset on close
            asker.sendall(b"GET /stats HTTP/1.0\r\n\r\n")
    assert get(f"{server.url}/healthz")[1] == "ok\n"
    assert capfd.readouterr().err == ""
