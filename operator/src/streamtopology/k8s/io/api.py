"""The few calls the operator makes to the API server, on plain dicts, over the transport of `kubernetes.aio`.

Plain dicts because the resource builders make them, server-side apply takes them, and turning thousands of watched
objects into the client's model classes costs most of a core (docs/decisions/0032).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from copy import copy
from typing import cast

import aiohttp
from kubernetes.aio.client import ApiClient

from streamtopology.contract.errors import StreamTopologyError, Unavailable
from streamtopology.k8s import names
from streamtopology.k8s.io.bodies import ListPart, decoded, part_of, version_number, yaml_of
from streamtopology.k8s.names import Kind
from streamtopology.k8s.resources.objects import Object

# The timeout of one call: longer than a webhook may take (30 s), so that the API server answers with the name of one that
# hangs. A watch lives longer, see `WATCH_SECONDS`.
REQUEST_SECONDS = 35.0

# The server ends a watch after this time, and the next one continues where it stopped.
WATCH_SECONDS = 290

# A watch that is silent for longer than the server keeps it is a dead connection.
SILENT_SECONDS = 330.0

# Items of one part of a list: pods of some kilobytes, ConfigMaps of up to a megabyte. A list as a whole would be in memory
# several times while it is read.
PAGE = 250

# Seconds before a call that failed in passing is sent again. Not a POST: what it makes would be there twice.
PAUSES = (0.1, 0.4)

# A call that fails after so long waited for something that hangs, such as a webhook: sent again at once, it would wait again.
SLOW_SECONDS = 3.0
_REPEATABLE = ("GET", "PATCH", "PUT", "DELETE")

# With its charset: the library passes a body of this type on as it is. Without, it writes JSON in ASCII (`yaml_of`).
_APPLY = "application/apply-patch+yaml; charset=utf-8"
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class ApiError(StreamTopologyError):
    """The API server refused. `status`: HTTP status, `reason`: machine-readable (Conflict, NotFound), `what`: the path,
    `fields`: those of the object that it names as causes."""

    def __init__(self, status: int, reason: str, message: str, what: str, fields: tuple[str, ...] = ()) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.what = what
        self.fields = fields
        super().__init__(f"{what}: {message} ({status} {reason})")


class NoCluster(Unavailable):
    """There is neither a pod's service account nor a kubeconfig to reach a cluster with."""


class ApiAway(Unavailable):
    """The API server could not be reached, did not answer in time, or may not be written to; try again later."""


def always() -> bool:
    return True


def _unheard(_date: str | None) -> None:
    return None


def unnoted(method: str, code: str) -> None:
    """Nobody counts the calls."""


class Api:
    """Server-side apply, merge patches, lists and watches. ApiError: refused; ApiAway: no answer.

    `may_write` is called before every call that changes something: with several replicas, it is True on the leader. `hear`
    gets the header `Date` of every answer, `answered` each call's method and status, `none` without an answer. `clock`:
    monotonic seconds.
    """

    def __init__(
        self,
        client: ApiClient,
        request_seconds: float = REQUEST_SECONDS,
        may_write: Callable[[], bool] = always,
        hear: Callable[[str | None], None] = _unheard,
        answered: Callable[[str, str], None] = unnoted,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._request_seconds = request_seconds
        self._may_write = may_write
        self._hear = hear
        self._answered = answered
        self._clock = clock

    def within(self, seconds: float) -> Api:
        """The same with another timeout of a call."""
        other = copy(self)
        other._request_seconds = seconds
        return other

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object, or None if there is none."""
        try:
            return await self._call("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def pages(self, kind: Kind, namespace: str | None, selector: str = "") -> AsyncIterator[ListPart]:
        """The list in parts of `PAGE` items."""
        async for page in self._pages(kind, namespace, selector, _JSON):
            yield page

    async def versions(self, kind: Kind, namespace: str | None) -> tuple[list[Object], int]:
        """The metadata of all objects of a kind, and the resource version of the list."""
        found: list[Object] = []
        version = ""
        async for page in self._pages(kind, namespace, "", _METADATA):
            found += [item["metadata"] for item in page.items]
            version = page.version
        return found, version_number(version)

    async def _pages(self, kind: Kind, namespace: str | None, selector: str, accept: str) -> AsyncIterator[ListPart]:
        query = [("limit", str(PAGE)), *([("labelSelector", selector)] if selector else [])]
        after = ""
        while True:
            whole = [*query, ("continue", after)] if after else query
            page = part_of(await self._call("GET", kind.path(namespace), whole, accept=accept), kind)
            yield page
            after = page.after
            if not after:
                return

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        return await self._call("POST", kind.path(namespace), body=body)

    async def apply(self, body: Object, force: bool = True) -> Object:
        """Server-side apply as our field manager. `force`: fields of ours that others have taken become ours again; else they
        are a conflict (409)."""
        kind, metadata = names.BY_KIND[body["kind"]], body["metadata"]
        query = [("fieldManager", names.MANAGER), ("force", "true" if force else "false")]
        return await self._call("PATCH", kind.path(metadata["namespace"], metadata["name"]), query, yaml_of(body), _APPLY)

    async def patch(self, kind: Kind, namespace: str, name: str, body: Object, subresource: str | None = None) -> Object:
        """A JSON merge patch: null removes a field, a list replaces the list."""
        query = [("fieldManager", names.MANAGER)]
        return await self._call("PATCH", kind.path(namespace, name, subresource), query, body, _MERGE)

    async def strategic_patch(
        self, kind: Kind, namespace: str, name: str, body: Object, subresource: str | None = None
    ) -> Object:
        """A strategic merge patch: lists of named things (containers) are merged by name."""
        query = [("fieldManager", names.MANAGER)]
        content = "application/strategic-merge-patch+json"
        return await self._call("PATCH", kind.path(namespace, name, subresource), query, body, content)

    async def json_patch(self, kind: Kind, namespace: str, name: str, operations: list[Object]) -> Object:
        """A JSON patch: its operations one after the other, all or none. A `test` that fails is an error 422."""
        query = [("fieldManager", names.MANAGER)]
        return await self._call("PATCH", kind.path(namespace, name), query, operations, _JSON_PATCH)

    async def replace(self, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        return await self._call("PUT", kind.path(namespace, name), body=body)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str | None = None, at_once: bool = False) -> None:
        """Delete it and, in the background, its dependents; no error if it is gone. `uid` keeps a namesake.

        `at_once`: of a pod, without a kubelet's word that its processes have ended.
        """
        body: Object = {"propagationPolicy": "Background", **({"gracePeriodSeconds": 0} if at_once else {})}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", kind.path(namespace, name), body=body)
        except ApiError as error:
            if error.status != 404:
                raise

    async def events(self, namespace: str, about: str, reason: str) -> list[Object]:
        """The events of this reason about objects of this kind."""
        query = [("fieldSelector", f"involvedObject.kind={about},reason={reason}")]
        return part_of(await self._call("GET", names.EVENT.path(namespace), query), names.EVENT).items

    async def may(self, verb: str, kind: Kind, namespace: str, subresource: str = "") -> bool:
        """True if our rights allow this: a refusal of it has another reason then."""
        group = kind.api_version.rpartition("/")[0]
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": kind.plural, "subresource": subresource}
        review: Object = {
            "apiVersion": names.ACCESS_REVIEW.api_version,
            "kind": names.ACCESS_REVIEW.kind,
            "spec": {"resourceAttributes": asked},
        }
        answer = await self._call("POST", names.ACCESS_REVIEW.path(None), body=review)
        return bool(answer.get("status", {}).get("allowed"))

    async def watch(self, kind: Kind, namespace: str | None, selector: str, since: str) -> AsyncIterator[Object]:
        """Yield events (`type`, `object`) after resource version `since` until the server ends the watch.

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
        response = await self._request("GET", kind.path(namespace), query, None, _JSON, timeout)
        try:
            if response.status >= 300:
                raise _error(response.status, await response.read(), kind.path(namespace))
            async for line in response.content:
                yield _event(decoded(line), kind.path(namespace))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:  # ValueError: half a line, or no event
            raise ApiAway(f"watching {kind.plural}: {_named(error)}") from error
        finally:
            response.close()

    async def _call(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]] | None = None,
        body: Object | list[Object] | bytes | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> Object:
        """The answer. What fails in passing is sent again at once, so that one lost call costs no look."""
        for pause in PAUSES if method in _REPEATABLE else ():
            began = self._clock()
            try:
                return await self._once(method, path, query, body, content_type, accept)
            except (ApiAway, ApiError) as error:
                if not _passes(error) or self._clock() - began > SLOW_SECONDS:
                    raise
            await asyncio.sleep(pause)
        return await self._once(method, path, query, body, content_type, accept)

    async def _once(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]] | None,
        body: Object | list[Object] | bytes | None,
        content_type: str,
        accept: str,
    ) -> Object:
        if method != "GET" and not self._may_write():
            raise ApiAway(f"{method} {path}: not sent, because another replica may lead by now")
        timeout = aiohttp.ClientTimeout(total=self._request_seconds)
        response = await self._request(method, path, query or [], body, content_type, timeout, accept)
        try:
            payload = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiAway(f"{method} {path}: {_named(error)}") from error
        if response.status >= 300:
            raise _error(response.status, payload, path)
        try:
            return decoded(payload)
        except ValueError as error:  # a proxy in between answers in a form of its own
            raise ApiAway(f"{method} {path}: {_named(error)}") from error

    async def _request(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        body: Object | list[Object] | bytes | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
        accept: str = _JSON,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": accept, "Content-Type": content_type}
        request = await self._client.param_serialize(
            method, path, query_params=query, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            answer = await self._client.call_api(*request, _request_timeout=timeout)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._answered(method, "none")
            raise ApiAway(f"{method} {path}: {_named(error)}") from error
        self._hear(answer.response.headers.get("Date"))
        self._answered(method, str(answer.response.status))
        return answer.response


def missing_right(error: ApiAway | ApiError) -> str:
    """The sentence about a call that our rights or our token do not allow, with the remedy; empty for any other error."""
    if not isinstance(error, ApiError) or error.status not in (401, 403):
        return ""
    return f"{error}: " + ("see rbac.create of the chart" if error.status == 403 else "the operator's token is not valid")


def _passes(error: ApiAway | ApiError) -> bool:
    """True if the next call may come through; one that had no answer in its time has taken enough."""
    if isinstance(error, ApiError):
        return error.status in (429, 500, 502, 503, 504)
    return isinstance(error.__cause__, aiohttp.ClientError | OSError) and not isinstance(error.__cause__, TimeoutError)


def _event(event: Object, what: str) -> Object:
    """An event of a watch: `type`, and `object` with its metadata. ValueError: it is none."""
    body = event.get("object")
    if isinstance(body, dict) and event.get("type") == "ERROR":
        body = cast(Object, body)
        raise _refusal(int(body.get("code", 0)), body, what)
    if isinstance(body, dict) and "type" in event and "metadata" in body:
        return event
    raise ValueError(f"a line of the watch is not an event: {sorted(event)}")


def _error(status: int, payload: bytes, what: str) -> ApiError:
    try:
        return _refusal(status, decoded(payload), what)
    except ValueError:  # a proxy in between answers in a form of its own
        return ApiError(status, "", payload[:200].decode(errors="replace"), what)


def _refusal(status: int, answer: Object, what: str) -> ApiError:
    details = answer.get("details")
    causes = details.get("causes", ()) if isinstance(details, dict) else ()  # a server behind the proxy may write a text
    fields = tuple(str(cause["field"]) for cause in causes if cause.get("field"))
    return ApiError(status, str(answer.get("reason", "")), str(answer.get("message", "")), what, fields)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
