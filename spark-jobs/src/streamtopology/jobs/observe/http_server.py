"""The driver's window to the outside: `/metrics` for Prometheus, `/stats` for a controller, `/healthz` and `/readyz`.

It only reads, and listens on this machine alone by default.
"""

from __future__ import annotations

import errno
import gzip
import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from streamtopology.contract.errors import Unavailable
from streamtopology.contract.stats_question import Question

LOCAL = "127.0.0.1"
EVERYWHERE = "0.0.0.0"
EVERYWHERE_IPV6 = "::"
"""By IPv4, too, where the machine has both."""

Stats = Callable[[Question], Mapping[str, Any]]


class AddressError(Unavailable):
    """The server cannot listen at the given address; the message says what to change."""


def refuse_taken_port(port: int) -> None:
    """Raises `AddressError` where a server on this machine alone could not listen on `port` now."""
    _listening(LOCAL, port, BaseHTTPRequestHandler).server_close()


class StatusServer:
    """Serves one run from a thread of its own between `with` and its end.

    `stats` is called with the parameters of each request; `is_ready` returns whether
    batches run. `port` 0 takes any free port; the one taken is in `port` and `url`. A given port that is taken or not permitted
    raises `AddressError`.
    """

    def __init__(
        self, registry: CollectorRegistry, stats: Stats, is_ready: Callable[[], bool], host: str = LOCAL, port: int = 0
    ) -> None:
        self._http = _listening(host, port, partial(_Handler, registry, stats, is_ready))
        self.host = host
        self.port: int = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, name="status-server", daemon=True)

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_version = "streamtopology"

    def __init__(self, registry: CollectorRegistry, stats: Stats, is_ready: Callable[[], bool], *connection: Any) -> None:
        self._registry = registry
        self._stats = stats
        self._is_ready = is_ready
        super().__init__(*connection)  # answers the request before it returns

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        match asked.path:
            case "/metrics":
                encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                self._answer(HTTPStatus.OK, content_type, encode(self._registry))
            case "/stats":
                self._answer_stats(asked.query)
            case "/healthz":
                self._answer_text(HTTPStatus.OK, "ok")
            case "/readyz":
                if self._is_ready():
                    self._answer_text(HTTPStatus.OK, "ok")
                else:
                    self._answer_text(HTTPStatus.SERVICE_UNAVAILABLE, "not ready: no batch has run; see /stats")
            case other:
                self._answer_text(HTTPStatus.NOT_FOUND, f"nothing at {other}; there are /metrics, /stats, /healthz and /readyz")

    def _answer_stats(self, query: str) -> None:
        try:
            asked = Question.read(parse_qs(query, keep_blank_values=True))
        except ValueError as wrong:
            self._answer_text(HTTPStatus.BAD_REQUEST, str(wrong))
            return
        body = json.dumps(self._stats(asked), allow_nan=False).encode()
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            self._answer(HTTPStatus.OK, "application/json", gzip.compress(body, compresslevel=1), encoding="gzip")
        else:
            self._answer(HTTPStatus.OK, "application/json", body)

    def _answer_text(self, status: HTTPStatus, text: str) -> None:
        self._answer(status, "text/plain; charset=utf-8", f"{text}\n".encode())

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes, encoding: str | None = None) -> None:
        with suppress(ConnectionError):  # the client may hang up at any time
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            if encoding is not None:
                self.send_header("Content-Encoding", encoding)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the live view owns the terminal."""


class _ServerIpv6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


def _listening(host: str, port: int, handler: Callable[..., BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    try:
        return (_ServerIpv6 if ":" in host else ThreadingHTTPServer)((host, port), handler)
    except OSError as error:
        raise AddressError(_advice(error, host, port)) from error


def _advice(error: OSError, host: str, port: int) -> str:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return f"cannot serve metrics on {where}: the port is taken; choose another one, or 0 for any free port"
    if error.errno == errno.EACCES:
        return f"cannot serve metrics on {where}: ports below 1024 need root; choose a higher one"
    return f"cannot serve metrics on {where}: {error.strerror or error}"
