"""The user's settings for traces, which are OpenTelemetry's own environment variables, checked before anything starts.

https://opentelemetry.io/docs/specs/otel/protocol/exporter/ has them. Headers may hold tokens: no message repeats a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from streamtopology.contract.errors import InvalidInput

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
TRACES_HEADERS = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
EXPORTER = "OTEL_TRACES_EXPORTER"
DISABLED = "OTEL_SDK_DISABLED"

SPOKEN = "http/protobuf"


class TracesUnusable(InvalidInput):
    """Traces are asked for by environment variables, and cannot be made; the message names the variable, never its value."""

    exit_code = 2


def endpoint_of(environ: Mapping[str, str]) -> str | None:
    """Return the URL of the collector for people, without user and password; None if no traces are asked for.

    Raises TracesUnusable for settings under which none would arrive.
    """
    variable = next((name for name in (TRACES_ENDPOINT, ENDPOINT) if environ.get(name)), None)
    if variable is None or environ.get(EXPORTER) == "none" or environ.get(DISABLED, "").lower() == "true":
        return None
    shown = _without_credentials(environ[variable])
    if shown is None:
        raise TracesUnusable(f"{variable}: expected the URL of a collector, such as http://collector:4318")
    for name in (TRACES_PROTOCOL, PROTOCOL):
        if environ.get(name, SPOKEN) not in ("", SPOKEN):
            raise TracesUnusable(f"{name}: only {SPOKEN} is spoken; name the collector's port for it, usually 4318")
    for name in (TRACES_HEADERS, HEADERS):
        _refuse_odd_headers(name, environ.get(name, ""))
    return shown


def _without_credentials(url: str) -> str | None:
    """The URL without user, password and query; None if it is none of HTTP."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host:
        return None
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{parts.path}"


def _refuse_odd_headers(variable: str, text: str) -> None:
    """Refuse what the exporter would ignore or could not send."""
    for number, pair in enumerate([pair.strip() for pair in text.split(",") if pair.strip()], 1):
        name, is_pair, _ = pair.partition("=")
        if not is_pair or not name.strip() or not pair.isascii() or not pair.isprintable():
            raise TracesUnusable(
                f"{variable}: header {number} is not NAME=VALUE of printable characters; others are written as %XX, a comma "
                "as %2C"
            )
