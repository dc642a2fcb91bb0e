"""Spans reach a collector as they were made, and one that fails costs a warning and nothing else."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from support.collector import Collector, collecting
from support.waiting import eventually

from streamtopology.tracing.export import WARNING_SECONDS, Delivery
from streamtopology.tracing.opening import check_traces, traces
from streamtopology.tracing.settings import (
    DISABLED,
    ENDPOINT,
    EXPORTER,
    HEADERS,
    PROTOCOL,
    TRACES_ENDPOINT,
    TracesUnusable,
    endpoint_of,
)
from streamtopology.tracing.span import SpanEvent, TraceSpan

BATCH = TraceSpan(
    "batch",
    100.0,
    101.5,
    {"streamtopology.batch": 7, "streamtopology.share": 0.5, "streamtopology.final": True},
    [SpanEvent("rerouted", 100.25, {"streamtopology.cause": "rebalanced"})],
    [TraceSpan("read", 100.0, 100.5), TraceSpan("attempt", 100.5, 101.0, failure="executor large-1 was lost")],
)
SECRET = "Bearer-of-nobody"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans are exported at once, and an export is given up after a moment."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")


def nowhere() -> str:
    """The URL of a port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_trace_arrives_as_it_was_made(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, collector.url)
    monkeypatch.setenv(HEADERS, f"authorization={SECRET}")
    reported: list[str] = []
    with traces({ENDPOINT: collector.url}, {"service.name": "flights"}, reported.append) as emit:
        assert emit is not None
        emit(lambda: BATCH)
    (root,) = collector.roots("batch")
    assert (root.began_at, root.ended_at) == (100.0, 101.5)
    assert root.attributes == BATCH.attributes
    assert root.events == (("rerouted", {"streamtopology.cause": "rebalanced"}),)
    assert [(child.name, child.failure, child.trace) for child in collector.children(root)] == [
        ("read", None, root.trace),
        ("attempt", "executor large-1 was lost", root.trace),
    ]
    assert root.resource["service.name"] == "flights"
    assert collector.headers["authorization"] == SECRET
    assert reported == []


def test_users_name_of_the_service_wins(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {ENDPOINT: collector.url, "OTEL_SERVICE_NAME": "mine"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=trial")
    with traces({ENDPOINT: collector.url}, {"service.name": "flights", "k8s.pod.name": "p"}, print) as emit:
        assert emit is not None
        emit(lambda: BATCH)
    (root,) = collector.roots("batch")
    chosen = {name: root.resource[name] for name in ("service.name", "deployment.environment.name", "k8s.pod.name")}
    assert chosen == {"service.name": "mine", "deployment.environment.name": "trial", "k8s.pod.name": "p"}


def test_traces_that_are_not_sampled_are_not_missed(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, collector.url)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    reported: list[str] = []
    with traces({ENDPOINT: collector.url}, {}, reported.append) as emit:
        assert emit is not None
        emit(lambda: BATCH)
    assert (collector.spans, reported) == ([], [])


@pytest.mark.usefixtures("prompt")
def test_collector_that_is_down_is_reported_at_once_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    url = nowhere()
    monkeypatch.setenv(ENDPOINT, url)
    reported: list[str] = []
    delivery = Delivery({}, url, reported.append)
    delivery.emit(lambda: BATCH)
    eventually(lambda: bool(reported))
    delivery.close()
    assert reported == [
        f"traces: {url} takes no spans (ConnectionError): they are lost, and nothing else waits for them",
        f"traces: 3 of 3 spans did not reach {url} (ConnectionError)",
    ]


@pytest.mark.usefixtures("prompt")
def test_refusing_collector_is_reported_now_and_then(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, collector.url)
    collector.status = 500
    now = [0.0]
    reported: list[str] = []
    delivery = Delivery({}, collector.url, reported.append, lambda: now[0], flush_seconds=60)
    for attempt in (1, 2, 3):
        delivery.emit(lambda: BATCH)
        eventually(lambda seen=attempt: collector.requests == seen)
    now[0] = WARNING_SECONDS
    delivery.emit(lambda: BATCH)
    eventually(lambda: len(reported) == 2)
    collector.status = 200
    delivery.emit(lambda: BATCH)
    delivery.close()
    assert len(collector.roots("batch")) == 1
    takes_none = f"traces: {collector.url} takes no spans (HTTP status 500): they are lost, and nothing else waits for them"
    lost = f"traces: 12 of 15 spans did not reach {collector.url} (HTTP status 500)"
    assert reported == [takes_none, takes_none, lost]


def test_hanging_collector_delays_neither_spans_nor_the_end(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {ENDPOINT: collector.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "60"}
    for name, value in {**settings, "OTEL_BSP_SCHEDULE_DELAY": "1", "OTEL_BSP_MAX_QUEUE_SIZE": "600"}.items():
        monkeypatch.setenv(name, value)
    collector.held.clear()
    reported: list[str] = []
    delivery = Delivery({}, collector.url, reported.append, flush_seconds=0.2)
    emitted = threading.Thread(target=lambda: [delivery.emit(lambda: BATCH) for _ in range(1000)])
    emitted.start()
    emitted.join(60)
    assert not emitted.is_alive(), "spans wait for a collector that does not answer"
    eventually(lambda: collector.requests == 1)
    closed = threading.Thread(target=delivery.close)
    closed.start()
    closed.join(60)
    assert not closed.is_alive(), "the end waits for a collector that does not answer"
    assert collector.requests == 1
    assert reported == [f"traces: 3,000 of 3,000 spans did not reach {collector.url}"]


@pytest.mark.usefixtures("prompt")
def test_no_header_is_printed_whatever_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ENDPOINT, nowhere())
    monkeypatch.setenv(HEADERS, f"authorization={SECRET},odd={SECRET}%0D%0A,{SECRET}")
    caplog.set_level(logging.DEBUG)
    reported: list[str] = []
    delivery = Delivery({}, "http://collector", reported.append)
    delivery.emit(lambda: BATCH)
    eventually(lambda: bool(reported))
    delivery.close()
    out = capfd.readouterr()
    assert SECRET not in "".join([*reported, caplog.text, out.out, out.err])


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {ENDPOINT: ""},
        {ENDPOINT: "http://collector:4318", EXPORTER: "none"},
        {TRACES_ENDPOINT: "http://collector:4318", DISABLED: "TRUE"},
    ],
)
def test_traces_are_off_unless_a_collector_is_named(environ: dict[str, str]) -> None:
    assert endpoint_of(environ) is None
    with traces(environ, {}, print) as emit:
        assert emit is None


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({ENDPOINT: f"collector-{SECRET}:4318"}, f"{ENDPOINT}: expected the URL"),
        ({TRACES_ENDPOINT: f"http://{SECRET}@:4318"}, f"{TRACES_ENDPOINT}: expected the URL"),
        ({ENDPOINT: "http://c:port"}, f"{ENDPOINT}: expected the URL"),
        ({ENDPOINT: "http://c:4317", PROTOCOL: "grpc"}, f"{PROTOCOL}: only http/protobuf"),
        ({ENDPOINT: "http://c:4318", HEADERS: f"a=b,{SECRET}"}, f"{HEADERS}: header 2 is not NAME=VALUE"),
        ({ENDPOINT: "http://c:4318", HEADERS: f"a={SECRET}\nb"}, f"{HEADERS}: header 1 is not NAME=VALUE"),
    ],
)
def test_unusable_settings_are_refused_by_name_without_their_value(environ: dict[str, str], named: str) -> None:
    with pytest.raises(TracesUnusable, match=named) as refused:
        check_traces(environ, "streamtopology")
    assert SECRET not in str(refused.value)
    assert refused.value.exit_code == 2


def test_user_and_password_of_the_endpoint_are_not_shown() -> None:
    assert endpoint_of({ENDPOINT: f"https://me:{SECRET}@[::1]:4318/base?t={SECRET}"}) == "https://[::1]:4318/base"


def test_missing_packages_are_named_in_one_sentence() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from streamtopology.tracing.opening import check_traces\n"
        f"try: check_traces({{'{ENDPOINT}': 'http://c:4318'}}, 'streamtopology-operator')\n"
        "except Exception as error: print(error)"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.startswith(f"{ENDPOINT} asks for traces, which need packages that are not installed (opentelemetry")
    assert "install streamtopology-operator[traces], or unset the variable" in printed


@pytest.mark.parametrize("module", ["jobs.local.run", "jobs.pods.driver", "k8s.__main__"])
def test_nothing_of_opentelemetry_is_loaded_while_traces_are_off(module: str) -> None:
    code = (
        f"import sys, streamtopology.{module}\n"
        "from streamtopology.tracing.opening import check_traces, traces\n"
        "check_traces({}, 'streamtopology')\n"
        "with traces({}, {}, print) as emit: pass\n"
        "print(emit, *(name for name in sys.modules if name.startswith(('opentelemetry', 'google.protobuf'))))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "None\n"
