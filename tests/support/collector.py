"""A collector of traces for tests: receives OTLP over HTTP, keeps what it gets, and fails as a test asks it to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

# Longer than any exporter waits in a test.
ANSWER_SECONDS = 30


@dataclass(frozen=True)
class Received:
    """One span as it arrived. `resource`: who made it; `events`: name and attributes."""

    name: str
    id: bytes
    parent: bytes
    trace: bytes
    began_at: float
    ended_at: float
    attributes: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...]
    failure: str | None
    resource: Mapping[str, Any]


@dataclass
class Collector:
    """`status` answers every request, after the release of `held`; `headers`: of the newest request, by lower-case name."""

    url: str = ""
    status: int = 200
    spans: list[Received] = field(default_factory=list)
    requests: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    held: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.held.set()

    def children(self, parent: Received) -> list[Received]:
        """The parts of a span, in the order in which they began."""
        return sorted((span for span in self.spans if span.parent == parent.id), key=lambda span: span.began_at)

    def roots(self, name: str) -> list[Received]:
        """The spans of this name that are of no other, in the order in which they began."""
        return sorted((span for span in self.spans if span.name == name and not span.parent), key=lambda span: span.began_at)

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += [_received(span, _values(resource.resource.attributes)) for span in scope.spans]


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector at a free port of this machine, until the block ends."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.requests += 1
            collector.headers = {name.lower(): value for name, value in self.headers.items()}
            collector.held.wait(ANSWER_SECONDS)
            if collector.status == 200 and self.path == "/v1/traces":
                collector.take(body)
            self.send_response(collector.status)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """The standard error is not for requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.held.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _received(span: Any, resource: Mapping[str, Any]) -> Received:
    return Received(
        span.name,
        span.span_id,
        span.parent_span_id,
        span.trace_id,
        span.start_time_unix_nano / 1e9,
        span.end_time_unix_nano / 1e9,
        _values(span.attributes),
        tuple((event.name, _values(event.attributes)) for event in span.events),
        span.status.message if span.status.code == Status.STATUS_CODE_ERROR else None,
        resource,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
