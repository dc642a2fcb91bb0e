"""Pages for people over HTTP, of drivers and of the operator: their files, their headers, and the askers that they refuse.

A web page of another site can let its own name lead to this machine (DNS rebinding) and would then read keys of the stream
as its own data. So a page answers to addresses, to localhost and to names that the user gave, and so do the other paths
where a browser asks. Programs are not refused: Prometheus, probes and the operator ask by names that only the cluster knows.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from streamtopology.contract.environment import PAGE_HOSTS

# Of each answer of the page, refusals included: nothing from elsewhere is loaded, nothing inline runs, nobody frames it.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_START = "index.html"
_LONGEST_NAME = 80


class PageFile(NamedTuple):
    """A file of the page."""

    content_type: str
    body: bytes


class RefusedRequest(NamedTuple):
    """A request that is not answered, and the reason for people."""

    status: HTTPStatus
    why: str


@cache
def page_files(package: str) -> Mapping[str, PageFile]:
    """Path -> the file served there: those in the folder `page` of `package`, the page itself at `/`, and those of the look
    that all pages share."""
    found: dict[str, PageFile] = {}
    shared = files("streamtopology.web") / "look"
    for file in (*shared.iterdir(), *(files(package) / "page").iterdir()):
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == _START else f"/{file.name}"
            found[path] = PageFile(f"{kind}; charset=utf-8", file.read_bytes())
    return found


def refusal(hosts: Sequence[str], origins: Sequence[str], names: Collection[str]) -> RefusedRequest | None:
    """Return why a request for the page is refused, None if it is not.

    `hosts`, `origins`: the values of its headers Host and Origin; `names`: hosts that the user gave.
    """
    if len(hosts) != 1 or not _is_own(hosts[0], names):
        asked = ", ".join(hosts)[:_LONGEST_NAME] or "no host"
        return RefusedRequest(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"the page answers to an address, to localhost and to the names in {PAGE_HOSTS}, not to {asked!r}: "
            "open it by one of these",
        )
    own = {f"{scheme}://{hosts[0]}".lower() for scheme in ("http", "https")}
    if any(origin.lower() not in own for origin in origins):
        return RefusedRequest(HTTPStatus.FORBIDDEN, "the page answers to no other site")
    return None


def asks_as_browser(headers: Container[str]) -> bool:
    """Return whether a request with these headers, of any case, is a browser's: a page can change this one, not remove it."""
    return "Accept-Language" in headers


def _is_own(host: str, names: Collection[str]) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    if not name:
        return False
    name = name.removesuffix(".")
    return name == "localhost" or name in names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
