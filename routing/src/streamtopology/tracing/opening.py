"""Traces from the environment: on if it names a collector, else nothing of OpenTelemetry is loaded."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager

from streamtopology.tracing.settings import ENDPOINT, TRACES_ENDPOINT, TracesUnusable, endpoint_of
from streamtopology.tracing.span import Emit


def check_traces(environ: Mapping[str, str], package: str) -> None:
    """Refuse traces that cannot be made, before anything is started. Raises TracesUnusable.

    `package`: the distribution whose extra `traces` brings what they need.
    """
    if endpoint_of(environ) is None:
        return
    try:
        importlib.import_module("streamtopology.tracing.export")
    except ImportError as missing:
        variable = next(name for name in (TRACES_ENDPOINT, ENDPOINT) if environ.get(name))
        raise TracesUnusable(
            f"{variable} asks for traces, which need packages that are not installed ({missing.name}): install "
            f"{package}[traces], or unset the variable"
        ) from missing


@contextmanager
def traces(environ: Mapping[str, str], resource: Mapping[str, str], report: Callable[[str], None]) -> Generator[Emit | None]:
    """Yield the way of spans to the collector that `environ` names, None if it names none; deliver the last ones at the end.

    `resource`: who makes them, by OpenTelemetry's names; the user's OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
    `report` gets a sentence, from any thread, where spans do not arrive.
    """
    endpoint = endpoint_of(environ)
    if endpoint is None:
        yield None
        return
    from streamtopology.tracing.export import Delivery  # OpenTelemetry: only where traces are asked for

    with closing(Delivery(resource, endpoint, report)) as delivery:
        yield delivery.emit
