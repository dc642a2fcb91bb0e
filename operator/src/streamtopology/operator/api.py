"""The few calls the operator makes to the API server, on plain dicts, over the transport of `kubernetes.aio`.

Plain dicts because the resource builders make them, server-side apply takes them, and turning thousands of watched
objects into the client's model classes costs most of a core (docs/decisions/0032).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient

from streamtopology.operator import names
from streamtopology.operator.names import Kind

REQUEST_SECONDS = 20.0
"""How long one call may take; a watch lives longer, see `WATCH_SECONDS`."""

WATCH_SECONDS = 290
"""After so long the server ends a watch in good order, and it is begun again where it stood."""

SILENT_SECONDS = 330.0
"""A watch silent for longer than the server would keep it is a dead connection."""

Object = dict[str, Any]

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """The API server refused. `status`: HTTP status, `reason`: the machine's word (Conflict, NotFound), `what`: the path."""

    def __init__(self, status: int, reason: str, message: str, what: str) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.what = what
        super().__init__(f"{what}: {message} ({status} {reason})")


class ApiAway(Exception):
    """The API server could not be reached, did not answer in time, or may not be written to; try again later."""


def always() -> bool:
    return True


class Api:
    """Server-side apply, merge patches, lists and watches. ApiError: refused; ApiAway: no answer.

    `may_write` is asked before every call that changes something: where there are replicas, whether this one leads.
    """

    def __init__(
        self, client: ApiClient, request_seconds: float = REQUEST_SECONDS, may_write: Callable[[], bool] = always
    ) -> None:  # fmt: skip
        self._client = client
        self._request_seconds = request_seconds
        self._may_write = may_write

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object, or None if there is none."""
        try:
            return await self._call("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: Kind, namespace: str | None, selector: str = "") -> Object:
        """The list object: `items` and `metadata.resourceVersion`. From the server's cache: a watch goes on from there."""
        query = [("labelSelector", selector), ("resourceVersion", "0")] if selector else [("resourceVersion", "0")]
        return await self._call("GET", kind.path(namespace), query)

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        return await self._call("POST", kind.path(namespace), body=body)

    async def apply(self, body: Object) -> Object:
        """Server-side apply as our field manager; fields of ours that others hold become ours again."""
        kind, metadata = names.BY_KIND[body["kind"]], body["metadata"]
        query = [("fieldManager", names.MANAGER), ("force", "true")]
        return await self._call("PATCH", kind.path(metadata["namespace"], metadata["name"]), query, body, _APPLY)

    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Object, subresource: str | None = None
    ) -> Object:  # fmt: skip
        """A JSON merge patch: null removes a field, a list replaces the list."""
        query = [("fieldManager", names.MANAGER)]
        return await self._call("PATCH", kind.path(namespace, name, subresource), query, body, _MERGE)

    async def strategic_patch(
        self, kind: Kind, namespace: str, name: str, body: Object, subresource: str | None = None
    ) -> Object:  # fmt: skip
        """A strategic merge patch: lists of named things (containers) are merged by name."""
        query = [("fieldManager", names.MANAGER)]
        content = "application/strategic-merge-patch+json"
        return await self._call("PATCH", kind.path(namespace, name, subresource), query, body, content)

    async def replace(self, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        return await self._call("PUT", kind.path(namespace, name), body=body)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str | None = None) -> None:
        """Deletes it and, in the background, what it owns; nothing to do if it is gone. `uid` guards against a namesake."""
        body: Object = {"propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", kind.path(namespace, name), body=body)
        except ApiError as error:
            if error.status != 404:
                raise

    async def watch(self, kind: Kind, namespace: str | None, selector: str, since: str) -> AsyncIterator[Object]:
        """Events (`type`, `object`) after resource version `since`; ends when the server ends the watch.

        ApiError with status 410: `since` is too old, list again.
        """
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", since),
            ("timeoutSeconds", str(WATCH_SECONDS)),
        ]
        if selector:
            query.append(("labelSelector", selector))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._request_seconds, sock_read=SILENT_SECONDS)
        response = await self._request("GET", kind.path(namespace), query, None, "application/json", timeout)
        try:
            if response.status >= 300:
                raise _error(response.status, await response.read(), kind.path(namespace))
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(
                        int(status["code"]), status.get("reason", ""), status.get("message", ""), kind.path(namespace)
                    )
                yield event
        except (
            aiohttp.ClientError,
            TimeoutError,
            ValueError,
        ) as error:  # ValueError: half a line, or a longer one than we read
            raise ApiAway(f"watching {kind.plural}: {_named(error)}") from error
        finally:
            response.close()

    async def _call(
        self, method: str, path: str, query: list[tuple[str, str]] | None = None, body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:  # fmt: skip
        if method != "GET" and not self._may_write():
            raise ApiAway(f"{method} {path}: not sent, for another replica may lead by now")
        timeout = aiohttp.ClientTimeout(total=self._request_seconds)
        response = await self._request(method, path, query or [], body, content_type, timeout)
        try:
            payload = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiAway(f"{method} {path}: {_named(error)}") from error
        if response.status >= 300:
            raise _error(response.status, payload, path)
        return json.loads(payload)

    async def _request(
        self, method: str, path: str, query: list[tuple[str, str]], body: Object | None, content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:  # fmt: skip
        headers = {"Accept": "application/json", "Content-Type": content_type}
        request = await self._client.param_serialize(
            method, path, query_params=query, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            answer = await self._client.call_api(*request, _request_timeout=timeout)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiAway(f"{method} {path}: {_named(error)}") from error
        return answer.response


def _error(status: int, payload: bytes, what: str) -> ApiError:
    try:
        answer: Mapping[str, Any] = json.loads(payload)
        return ApiError(status, str(answer.get("reason", "")), str(answer.get("message", "")), what)
    except (ValueError, AttributeError):  # a proxy in between answers in words of its own
        return ApiError(status, "", payload[:200].decode(errors="replace"), what)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
