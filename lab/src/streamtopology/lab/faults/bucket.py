"""A bucket as clients see it: conditional creates, answers that are lost, requests that come late or fail.

The real `S3Store` asks it, with its retries: these functions stand for those of `obstore`.
"""

from __future__ import annotations

import builtins
import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from obstore.exceptions import AlreadyExistsError, GenericError

URI = "s3://bucket/flow"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "simulated", "AWS_SECRET_ACCESS_KEY": "simulated"}

Answer = TypeVar("Answer")

_LONG_AGO = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Object:
    """An object, which is also the answer to a request for it."""

    data: builtins.bytes
    attributes: Mapping[str, str]

    def to_bytes(self) -> builtins.bytes:
        return self.data

    def bytes(self) -> Object:
        return self


@dataclass(eq=False)
class Bucket:
    """`step` is called before each request. `made`: after an object was made, with its path and content.

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

    def put(self, store: object, path: str, data: bytes | memoryview, *, attributes: Mapping[str, str], **how: object) -> None:
        def create() -> None:
            if path in self.objects:
                raise AlreadyExistsError(path)
            self.objects[path] = Object(bytes(data), dict(attributes))
            self.made(path, self.objects[path].data)

        self._ask("put", path, create)

    def get(self, store: object, path: str, *, options: Mapping[str, Any] | None = None) -> Object:
        found = self._ask("get", path, lambda: self._found(path))
        start, end = (options or {}).get("range", (0, len(found.data)))
        return Object(found.data[start:end], found.attributes)

    def head(self, store: object, path: str) -> Object:
        return self._ask("head", path, lambda: self._found(path))

    def list(self, store: object, prefix: str | None = None) -> Iterator[list[dict[str, Any]]]:
        below = "" if prefix is None else f"{prefix.rstrip('/')}/"
        return self._ask("list", below, lambda: iter([self._listed(below)]))

    def delete(self, store: object, path: str) -> None:
        self._ask("delete", path, lambda: self.objects.pop(path, None))

    def _listed(self, below: str) -> list[dict[str, Any]]:
        return [
            {"path": path, "size": len(self.objects[path].data), "last_modified": _LONG_AGO}
            for path in sorted(self.objects)
            if path.startswith(below)
        ]

    def _found(self, path: str) -> Object:
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

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
