"""The driver's window to the outside: a page for people, `/metrics`, `/stats` for a controller, `/healthz` and `/readyz`.

It only reads, and listens on this machine alone by default.
"""

from __future__ import annotations

import errno
import gzip
import json
import socket
import threading
from collections.abc import Callable, Collection, Mapping
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
from streamtopology.web.page_http import HEADERS, PageFile, RefusedRequest, asks_as_browser, page_files, refusal

# The path of the value behind the page.
PAGE = "/page.json"

LOCAL = "127.0.0.1"
EVERYWHERE = "0.0.0.0"
# By IPv4, too, where the machine has both.
EVERYWHERE_IPV6 = "::"

Stats = Callable[[Question], Mapping[str, Any]]
# From the number of the last batch that the page knows to its value.
PageOf = Callable[[int], Mapping[str, Any]]


# For how long a client may send or take nothing.
PATIENCE_SECONDS = 60

_NO_HEADERS: Mapping[str, str] = {}


def driver_page() -> Mapping[str, PageFile]:
    """Path -> file of the page of a running topology."""
    return page_files("streamtopology.jobs.view")


class AddressError(Unavailable):
    """The server cannot listen at the given address; the message says what to change."""


def refuse_taken_port(port: int) -> None:
    """Raises `AddressError` where a server on this machine alone could not listen on `port` now."""
    _listening(LOCAL, port, BaseHTTPRequestHandler).server_close()


class _Serving:
    """Answers by `handler` from a thread of its own between `with` and its end."""

    def __init__(self, host: str, port: int, handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self._http = _listening(host, port, handler)
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


class StatusServer(_Serving):
    """Serves one run from a thread of its own between `with` and its end.

    `stats` is called with the parameters of each request, `page` with the batch that the page knows; `is_ready` returns
    whether batches run. `names`: by which browsers may open the page, in addition to addresses and localhost. `port` 0 takes
    any free port; the one taken is in `port` and `url`. A given port that is taken or not permitted raises `AddressError`.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        stats: Stats,
        page: PageOf,
        is_ready: Callable[[], bool],
        host: str = LOCAL,
        port: int = 0,
        names: Collection[str] = (),
    ) -> None:
        super().__init__(host, port, partial(_StatusHandler, registry, stats, page, is_ready, names))


class PageServer(_Serving):
    """Serves the page alone, of a run that is elsewhere or over. `page` may raise Unavailable: the page says so.

    `names`: by which browsers may open it, in addition to addresses and localhost.
    """

    def __init__(self, page: PageOf, port: int = 0, names: Collection[str] = ()) -> None:
        super().__init__(LOCAL, port, partial(_PageHandler, page, names))


class _PageHandler(BaseHTTPRequestHandler):
    server_version = "streamtopology"
    timeout = PATIENCE_SECONDS  # of the connection: one that sends nothing does not hold its thread for ever

    def __init__(self, page: PageOf, names: Collection[str], *connection: Any) -> None:
        self._page = page
        self._names = names
        super().__init__(*connection)  # answers the request before it returns

    def __getattr__(self, name: str) -> Any:
        """The answer to methods that there are none for: the base class looks up `do_` and the method's name."""
        if name.startswith("do_"):
            return self._refuse_method
        raise AttributeError(name)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        try:
            asked = urlsplit(self.path)
        except ValueError as wrong:
            self._answer_text(HTTPStatus.BAD_REQUEST, f"{self.path!r} is no address: {wrong}")
            return
        self._answer_get(asked.path, asked.query)

    def _answer_get(self, path: str, query: str) -> None:
        if path == PAGE or path in driver_page():
            self._answer_page(path, query)
        else:
            self._answer_text(HTTPStatus.NOT_FOUND, f"nothing at {path}; there is / with a page for people")

    def _answer_page(self, path: str, query: str) -> None:
        """Answer for the page, unless it is asked under a foreign name or by another site."""
        if refused := self._refusal():
            self._answer_text(*refused, HEADERS)
        elif path == PAGE:
            self._answer_value(query, lambda asked: self._page(-1 if asked.since is None else asked.since), HEADERS)
        else:
            file = driver_page()[path]
            self._answer(HTTPStatus.OK, file.content_type, file.body, HEADERS)

    def _refusal(self) -> RefusedRequest | None:
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        return refusal(hosts, origins, self._names)

    def _answer_value(self, query: str, value_of: Stats, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        try:
            asked = Question.read(parse_qs(query, keep_blank_values=True))
        except ValueError as wrong:
            self._answer_text(HTTPStatus.BAD_REQUEST, str(wrong), headers)
            return
        try:
            body = json.dumps(value_of(asked), allow_nan=False, separators=(",", ":")).encode()
        except Unavailable as away:
            self._answer_text(HTTPStatus.BAD_GATEWAY, str(away), headers)
            return
        except Exception as fault:  # of this program: who asks is answered, and the log gets the trace
            text = f"the figures cannot be given: {type(fault).__name__}, see the log of this program"
            self._answer_text(HTTPStatus.INTERNAL_SERVER_ERROR, text, headers)
            raise
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            body, headers = gzip.compress(body, compresslevel=1), {**headers, "Content-Encoding": "gzip"}
        self._answer(HTTPStatus.OK, "application/json", body, headers)

    def _refuse_method(self) -> None:
        self._answer_text(
            HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD: nothing can be changed here", {"Allow": "GET, HEAD"}
        )

    def _answer_text(self, status: HTTPStatus, text: str, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        self._answer(status, "text/plain; charset=utf-8", f"{text}\n".encode(), headers)

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        with suppress(ConnectionError, TimeoutError):  # the client may hang up at any time
            self.send_response(status)
            for name, value in {"Content-Type": content_type, **headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the live view owns the terminal."""


class _StatusHandler(_PageHandler):
    def __init__(
        self,
        registry: CollectorRegistry,
        stats: Stats,
        page: PageOf,
        is_ready: Callable[[], bool],
        names: Collection[str],
        *connection: Any,
    ) -> None:
        self._registry = registry
        self._stats = stats
        self._is_ready = is_ready
        super().__init__(page, names, *connection)

    def _answer_get(self, path: str, query: str) -> None:
        """Answer programs by any name; a browser might have been led here by the page of another site."""
        if asks_as_browser(self.headers) and (refused := self._refusal()):
            self._answer_text(*refused, HEADERS)
            return
        match path:
            case "/metrics":
                encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                self._answer(HTTPStatus.OK, content_type, encode(self._registry))
            case "/stats":
                self._answer_value(query, self._stats)
            case "/healthz":
                self._answer_text(HTTPStatus.OK, "ok")
            case "/readyz":
                if self._is_ready():
                    self._answer_text(HTTPStatus.OK, "ok")
                else:
                    self._answer_text(HTTPStatus.SERVICE_UNAVAILABLE, "not ready: no batch has run; see /stats")
            case _ if path == PAGE or path in driver_page():
                self._answer_page(path, query)
            case _:
                self._answer_text(
                    HTTPStatus.NOT_FOUND,
                    f"nothing at {path}; there are / with a page for people, /metrics, /stats, /healthz and /readyz",
                )


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
        return f"cannot serve on {where}: the port is taken; choose another one, or 0 for any free port"
    if error.errno == errno.EACCES:
        return f"cannot serve on {where}: ports below 1024 need root; choose a higher one"
    return f"cannot serve on {where}: {error.strerror or error}"
