"""Watch of one ConfigMap through the API server: list, then watch from there, for ever, through all failures.

A mounted file would lag by a minute; a watch notifies within milliseconds.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from kubernetes.client import CoreV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.watch import Watch
from urllib3.exceptions import HTTPError

# Time after which the server ends a quiet watch and the next one begins: this also detects a dead connection.
WATCH_SECONDS = 60

_ANSWER_SECONDS = 10
# Between the beginnings of two watches: something on the way may end each at once.
LEAST_SECONDS = 0.5

_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class ConfigMapContent:
    """`binary_data` is base64 text, as the API gives it."""

    data: Mapping[str, str]
    binary_data: Mapping[str, str]


class ConfigMapWatch:
    """Calls `take` from a thread of its own with each new content, and with None if there is no such map.

    Enter it to begin. `notify` gets a sentence when the API server does not answer, and when it answers again.
    """

    def __init__(
        self,
        api: CoreV1Api,
        namespace: str,
        name: str,
        take: Callable[[ConfigMapContent | None], None],
        notify: Callable[[str], None],
        watch_seconds: int = WATCH_SECONDS,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._take = take
        self._notify = notify
        self._watch_seconds = watch_seconds
        self._taken: list[ConfigMapContent | None] = []
        self._closing = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="routing-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing.set()  # the thread is in a read that ends by itself, without a wait for it

    def _run(self) -> None:
        version: str | None = None
        while not self._closing.is_set():
            try:
                if version is None:
                    version = self._list()
                began = time.monotonic()
                version = self._follow(version)
                self._closing.wait(max(0.0, began + LEAST_SECONDS - time.monotonic()))
            except ApiException as refusal:
                version = None  # list again, and take the current content
                if refusal.status != HTTPStatus.GONE:
                    self._pause(f"{refusal.status} {refusal.reason}")
            except (HTTPError, OSError) as failure:
                self._pause(str(failure))
            except Exception as failure:  # noqa: BLE001 - an answer of a proxy, for one: without this thread nothing is heard
                version = None
                self._pause(f"{type(failure).__name__}: {failure}")

    def _list(self) -> str:
        """Take the current content; return the version to watch from."""
        answer: Any = self._api.list_namespaced_config_map(
            self._namespace, field_selector=self._selector, _request_timeout=_ANSWER_SECONDS, _preload_content=False
        )
        found = json.loads(answer.data)  # the library's own models refuse a list without items
        items = found.get("items") or ()
        self._answered()
        self._offer(_content(items[0]) if items else None)
        return str((found.get("metadata") or {}).get("resourceVersion") or "")

    def _follow(self, version: str) -> str:
        """Take changes after `version` until the server ends the watch; return the newest version seen."""
        watch = Watch()
        events: Any = watch.stream(
            self._api.list_namespaced_config_map,
            self._namespace,
            field_selector=self._selector,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=self._watch_seconds,
            _request_timeout=(_ANSWER_SECONDS, self._watch_seconds + _ANSWER_SECONDS),
        )
        for event in events:
            if self._closing.is_set():
                break
            self._answered()
            if event["type"] in ("ADDED", "MODIFIED"):
                self._offer(_content(event["raw_object"]))
            elif event["type"] == "DELETED":
                self._offer(None)
        return str(watch.resource_version or version)

    @property
    def _selector(self) -> str:
        return f"metadata.name={self._name}"

    def _offer(self, content: ConfigMapContent | None) -> None:
        if [content] != self._taken:
            self._taken = [content]
            self._take(content)

    def _answered(self) -> None:
        if self._failures:
            self._notify(f"ConfigMap {self._name} is watched again")
        self._failures = 0

    def _pause(self, why: str) -> None:
        """Wait a little longer after each failure in a row, with a notice; a watch that is merely cut resumes at once."""
        pause = _PAUSES[min(self._failures, len(_PAUSES) - 1)]
        self._failures += 1
        self._notify(f"ConfigMap {self._name} cannot be watched ({why}); the routing stays as it is, next try in {pause:g} s")
        self._closing.wait(pause)


def _content(config_map: Mapping[str, Any]) -> ConfigMapContent:
    return ConfigMapContent(config_map.get("data") or {}, config_map.get("binaryData") or {})
