"""The operator's page: all topologies that it runs, for people. Off unless it is given a port; it only reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler

from streamtopology.k8s.decide.listing import listing
from streamtopology.k8s.resources.objects import Object
from streamtopology.web.page_http import HEADERS, PageFile, page_files, refusal

# The path of the value behind the page.
LISTING = "/topologies.json"

_STANDS_BY = "this replica of the operator stands by; another one leads and has the list"

Topologies = Callable[[], Iterable[Object]]


class Listed:
    """The topologies that the page shows: of the reconciler, while this replica leads. `clock`: seconds since 1970."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._topologies: Topologies | None = None

    def follow(self, topologies: Topologies) -> None:
        """Show these from now on."""
        self._topologies = topologies

    def answer(self) -> web.Response:
        """The value behind the page, or that there is none here."""
        if self._topologies is None:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, _STANDS_BY)
        answer = web.json_response(listing(self._topologies(), self._clock()))
        answer.enable_compression()
        return answer


def page_app(listed: Listed, names: Collection[str]) -> web.Application:
    """The page as an application. `names`: hosts by which browsers may open it, in addition to addresses and localhost."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse foreign names and other sites, and give each answer the headers of a page."""
        refused = refusal(request.headers.getall("Host", []), request.headers.getall("Origin", []), names)
        try:
            answer = _text(*refused) if refused else await handler(request)
        except web.HTTPException as wrong:  # no such path, or a method that changes something
            answer = _text(HTTPStatus(wrong.status), f"{wrong.reason}: there is / with a page for people, which only reads")
            answer.headers.update({name: value for name, value in wrong.headers.items() if name == "Allow"})
        answer.headers.update(HEADERS)
        return answer

    async def topologies(_: web.Request) -> web.StreamResponse:
        return listed.answer()

    app = web.Application(middlewares=[guarded])
    app.router.add_get(LISTING, topologies)
    for path, file in page_files("streamtopology.k8s.io").items():
        app.router.add_get(path, _served(file))
    return app


def _served(file: PageFile) -> Handler:
    async def serve(_: web.Request) -> web.StreamResponse:
        return web.Response(body=file.body, headers={"Content-Type": file.content_type})

    return serve


def _text(status: HTTPStatus, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
