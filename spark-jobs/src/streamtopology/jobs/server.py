"""The driver's window to the outside: `/metrics` for Prometheus, `/stats` for a controller, `/healthz` and `/readyz`.

It only reads, and listens on this machine alone unless told otherwise.
"""

from __future__ import annotations

import errno
import json
import re
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

LOCAL = "127.0.0.1"
EVERYWHERE = "0.0.0.0"

Stats = Callable[[int | None], Mapping[str, Any]]


class AddressError(Exception):
    """The server cannot listen where it was told to; the message says what to change."""


def refuse_taken_port(port: int) -> None:
    """Raises `AddressError` where a server on this machine alone could not listen on `port` now."""
    _listening(LOCAL, port, BaseHTTPRequestHandler).server_close()


class StatusServer:
    """Serves one run from a thread of its own between `with` and its end.

    `stats` is called with the number of a batch to have the batches after it, too, or None; `is_ready` tells whether
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
        return f"http://{self.host}:{self.port}"

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
                self._answer_stats(parse_qs(asked.query).get("since", []))
            case "/healthz":
                self._tell(HTTPStatus.OK, "ok")
            case "/readyz":
                if self._is_ready():
                    self._tell(HTTPStatus.OK, "ok")
                else:
                    self._tell(HTTPStatus.SERVICE_UNAVAILABLE, "no batches run yet; /stats tells the phase")
            case other:
                self._tell(HTTPStatus.NOT_FOUND, f"nothing at {other}; there are /metrics, /stats, /healthz and /readyz")

    def _answer_stats(self, since: list[str]) -> None:
        if not all(re.fullmatch(r"-?\d+", text) for text in since):
            self._tell(HTTPStatus.BAD_REQUEST, f"since={since[-1]}: give the number of the last batch that you know")
            return
        stats = self._stats(int(since[-1]) if since else None)
        self._answer(HTTPStatus.OK, "application/json", json.dumps(stats, allow_nan=False).encode())

    def _tell(self, status: HTTPStatus, text: str) -> None:
        self._answer(status, "text/plain; charset=utf-8", f"{text}\n".encode())

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        with suppress(ConnectionError):  # the asker may hang up at any time: nobody is left to be told
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape every few seconds is not news: the live view owns the terminal."""


def _listening(host: str, port: int, handler: Callable[..., BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    try:
        return ThreadingHTTPServer((host, port), handler)
    except OSError as error:
        raise AddressError(_advice(error, host, port)) from error


def _advice(error: OSError, host: str, port: int) -> str:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return f"cannot serve metrics on {where}: the port is taken; choose another one, or 0 for any free port"
    if error.errno == errno.EACCES:
        return f"cannot serve metrics on {where}: ports below 1024 need root; choose a higher one"
    return f"cannot serve metrics on {where}: {error.strerror or error}"
