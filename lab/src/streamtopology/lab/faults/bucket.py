"""A bucket as clients see it: conditional creates, answers that are lost, requests that come late or fail.

The real client of buckets asks it, with its retries: these functions stand for those of `obstore`.
"""

from __future__ import annotations

import builtins
import datetime
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

CHECKPOINT = "s3://bucket/flow"
SINKS = "s3://bucket/out"
_ROOT = "s3://bucket/"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "simulated", "AWS_SECRET_ACCESS_KEY": "simulated"}

Answer = TypeVar("Answer")

_LONG_AGO = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Object:
    """An object, which is also the answer to a request for it."""

    data: builtins.bytes
    attributes: Mapping[str, str]

    @property
    def e_tag(self) -> str:
        return hashlib.md5(self.data, usedforsecurity=False).hexdigest()

    def to_bytes(self) -> builtins.bytes:
        return self.data

    def bytes(self) -> Object:
        return self


class Client(Protocol):
    """The place that a client of `obstore` works on."""

    @property
    def prefix(self) -> str | None: ...


@dataclass(eq=False)
class Bucket:
    """Its objects by URI. `step` is called before each request. `made`: after a file of the checkpoint was made, with
    its path and content.

    `failing`: the number of requests that fail next, `losing`: of those that are done and whose answer is lost.
    """

    step: Callable[[str, str], None]
    made: Callable[[str, bytes], None]
    objects: dict[str, Object] = field(default_factory=dict[str, Object])
    failing: int = 0
    losing: int = 0

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The functions of `obstore` by name."""
        return {"put": self.put, "get": self.get, "head": self.head, "list": self.list, "delete": self.delete}

    def put(
        self,
        client: Client,
        path: str,
        data: bytes | memoryview,
        *,
        mode: str = "overwrite",
        attributes: Mapping[str, str] | None = None,
        **how: object,
    ) -> None:
        def put() -> None:
            uri = _uri(client, path)
            if uri in self.objects and mode == "create":
                raise AlreadyExistsError(path)
            self.objects[uri] = Object(bytes(data), dict(attributes or {}))
            if uri.startswith(f"{CHECKPOINT}/"):
                self.made(uri.removeprefix(f"{CHECKPOINT}/"), self.objects[uri].data)

        self._ask("put", path, put)

    def get(self, client: Client, path: str, *, options: Mapping[str, Any] | None = None) -> Object:
        asked = options or {}
        found = self._ask("get", path, lambda: self._found(client, path))
        if asked.get("if_match", found.e_tag) != found.e_tag:
            raise PreconditionError(path)
        start, end = asked.get("range", (0, len(found.data)))
        return Object(found.data[start:end], found.attributes)

    def head(self, client: Client, path: str) -> Mapping[str, Any]:
        return self._ask("head", path, lambda: _as_listed(path, self._found(client, path)))

    def list(self, client: Client, prefix: str | None = None) -> Iterator[list[dict[str, Any]]]:
        below = "" if prefix is None else f"{prefix.rstrip('/')}/"
        return self._ask("list", below, lambda: iter([self._listed(_uri(client, below), _uri(client, ""))]))

    def delete(self, client: Client, path: str | Sequence[str]) -> None:
        paths = [path] if isinstance(path, str) else path

        def delete() -> None:
            for one in paths:
                self.objects.pop(_uri(client, one), None)

        self._ask("delete", paths[0], delete)

    def below(self, uri: str) -> Mapping[str, builtins.bytes]:
        """The content of all objects below `uri`, by path."""
        start = f"{uri}/"
        return {name.removeprefix(start): found.data for name, found in sorted(self.objects.items()) if name.startswith(start)}

    def _listed(self, below: str, root: str) -> list[dict[str, Any]]:
        return [_as_listed(uri.removeprefix(root), self.objects[uri]) for uri in sorted(self.objects) if uri.startswith(below)]

    def _found(self, client: Client, path: str) -> Object:
        uri = _uri(client, path)
        if uri not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[uri]

    def _ask(self, verb: str, path: str, do: Callable[[], Answer]) -> Answer:
        self.step(verb, path)
        if self.failing:
            self.failing -= 1
            raise GenericError("status code: 503 <Code>SlowDown</Code>")
        answer = do()
        if self.losing:
            self.losing -= 1
            raise GenericError("error sending request - connection reset")
        return answer


def _as_listed(path: str, found: Object) -> dict[str, Any]:
    return {"path": path, "size": len(found.data), "last_modified": _LONG_AGO, "e_tag": found.e_tag}


def _uri(client: Client, path: str) -> str:
    return f"{_ROOT}{client.prefix}/{path}" if client.prefix else f"{_ROOT}{path}"
