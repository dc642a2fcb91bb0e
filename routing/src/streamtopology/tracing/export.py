"""Spans to a collector, by OpenTelemetry's SDK, in a thread of its own: the one module that loads it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import requests
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Status, StatusCode

from streamtopology.tracing.span import TraceSpan

# Between two warnings that spans do not arrive.
WARNING_SECONDS = 600.0

# The time in which the last spans have to be delivered.
FLUSH_SECONDS = 5.0


class Delivery:
    """Emits spans, and delivers them in the background, until it is closed.

    `endpoint`: the collector's URL for people; the exporter reads the variables itself. `report` gets a sentence from another
    thread where spans do not arrive, now and then. A full queue (`OTEL_BSP_MAX_QUEUE_SIZE`) drops the oldest spans.
    """

    def __init__(
        self,
        resource: Mapping[str, str],
        endpoint: str,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        flush_seconds: float = FLUSH_SECONDS,
    ) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)  # it would log headers, and each retry
        self._exporter = _Reporting(endpoint, report, clock)
        self._endpoint = endpoint
        self._report = report
        self._flush_seconds = flush_seconds
        self._emitted = 0
        named_by_user = OTELResourceDetector().detect()
        self._provider = TracerProvider(resource=Resource.create(dict(resource)).merge(named_by_user), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("streamtopology")

    def emit(self, make: Callable[[], TraceSpan]) -> None:
        """Queue the trace that `make` returns. Whatever goes wrong is reported, as no work may fail with its trace."""
        try:
            self._emit(make(), Context())
        except Exception as error:  # noqa: BLE001 - the work that the trace is of is done
            self._report(f"traces: a trace could not be made ({type(error).__name__}: {error}); please report this")

    def close(self) -> None:
        """Deliver what is queued, as far as that takes no more than some seconds."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(self._flush_seconds)
        if closing.is_alive():
            self._exporter.shutdown()
        lost = self._emitted - self._exporter.delivered
        if lost:
            self._report(f"traces: {lost:,} of {self._emitted:,} spans did not reach {self._endpoint}{self._exporter.why}")

    def _emit(self, span: TraceSpan, parent: Context) -> None:
        made = self._tracer.start_span(
            span.name, parent, attributes=dict(span.attributes), start_time=_nanoseconds(span.began_at)
        )
        self._emitted += made.is_recording()
        for event in span.events:
            made.add_event(event.name, dict(event.attributes), _nanoseconds(event.at))
        if span.failure is not None:
            made.set_status(Status(StatusCode.ERROR, span.failure))
        for child in span.children:
            self._emit(child, trace.set_span_in_context(made, Context()))
        made.end(_nanoseconds(span.ended_at))


class _Reporting(SpanExporter):
    """The exporter by OTLP over HTTP, which says now and then that it fails."""

    def __init__(self, endpoint: str, report: Callable[[str], None], clock: Callable[[], float]) -> None:
        self.delivered = 0
        self.why = ""
        """A clause on the newest failure; empty before the first."""
        self._endpoint = endpoint
        self._report = report
        self._clock = clock
        self._reported_at: float | None = None
        self._session = _Session()
        self._exporter = OTLPSpanExporter(session=self._session)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.delivered += len(spans)
        else:
            self.why = f" ({self._session.outcome})" if self._session.outcome else ""
            self._warn()
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def _warn(self) -> None:
        now = self._clock()
        if self._reported_at is None or now - self._reported_at >= WARNING_SECONDS:
            self._reported_at = now
            self._report(f"traces: {self._endpoint} takes no spans{self.why}: they are lost, and nothing else waits for them")


class _Session(requests.Session):
    """Notes the outcome of its newest request, in words that can hold no header: a status, or the kind of an error."""

    outcome = ""

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        try:
            response = super().request(*args, **kwargs)
        except Exception as error:
            self.outcome = type(error).__name__
            raise
        self.outcome = f"HTTP status {response.status_code}"
        return response


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
