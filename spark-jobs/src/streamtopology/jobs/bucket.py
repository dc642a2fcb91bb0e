"""Objects in a bucket: S3, or a server that speaks its protocol and knows `If-None-Match: *`.

Credentials and endpoint come from the environment alone (`VARIABLES`). Requests to a server that is away or
overloaded are retried for `PATIENCE_SECONDS`; a refusal is raised at once.
"""

from __future__ import annotations

import os
import random
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlparse

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from streamtopology.contract.errors import StreamTopologyError

if TYPE_CHECKING:
    from obstore import GetOptions

VARIABLES = "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL"
PATIENCE_SECONDS = 30.0

_KEYS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
_ROLES = {"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"}

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 3.0
_CONNECT_SECONDS = 5
_REQUEST_SECONDS = 300  # a snapshot of a gigabyte is one request
# Without a byte of an answer, after which a server that takes requests counts as away. An upload has its answer at its end.
_SILENT_SECONDS = 10
_LITTLE_BYTES = 4 << 20
_AT_ONCE = 16
# Of an upload in parts; S3 takes 10,000 of them.
_PART_BYTES = 64 << 20
_PARTS_AT_ONCE = 2
# Bytes from which on an object is uploaded in parts; one request ends at 5 GB.
_LARGEST_PUT = 1 << 30
_WRITER = "writer"
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(.*?)</Code>")
_BEYOND_THE_END = 416
_ASK_AGAIN = {408, 409, 429, 500, 502, 503, 504}
# The refusal of one object of a request that deletes many, whose answer is a 200.
_OF_ONE_OBJECT = re.compile(r"\(code: (\w+)\)")
_ASK_AGAIN_FOR_IT = {"InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown"}
# In the client's words: a listing has such a name; the 301 of a bucket in another region.
_ODD_NAME = re.compile("object with invalid path: (.*)", re.DOTALL)
_ELSEWHERE = "redirect without LOCATION"
_RIGHTS = f"check the bucket, and the credentials in the environment ({VARIABLES}) and their rights"
_REGION = "set AWS_REGION to the region of the bucket"

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Use:
    """The use of a bucket, as messages about it need it. `raises`: makes the exception of a sentence.

    `users`: the processes that need the credentials. `field`: the manifest's, which names the bucket. `if_gone`: the remedy for
    an object that has disappeared.
    """

    users: str
    field: str
    if_gone: str
    raises: Callable[[str], StreamTopologyError]

    def advice(self, code: str) -> str | None:
        """The remedy for a refusal with this code of S3; None for any other."""
        return {
            "NoSuchBucket": f"make the bucket, or correct `{self.field}`",
            "PermanentRedirect": _REGION,
            "AuthorizationHeaderMalformed": _REGION,
            "NoSuchKey": self.if_gone,
            "NotImplemented": f"the server must know `If-None-Match: *`; name a `{self.field}` on one that does",
        }.get(code)


class Bucket:
    """The objects below `s3://bucket/prefix`. An object is there whole or not at all, and then durably: S3 promises that."""

    def __init__(self, uri: str, use: Use, patience: float = PATIENCE_SECONDS) -> None:
        if not os.environ.keys() >= _KEYS and not os.environ.keys() & _ROLES:
            raise use.raises(f"{use.field} {uri} needs credentials in the environment of {use.users}: {VARIABLES}, or a role's")
        parsed = urlparse(uri)
        self.uri = uri.rstrip("/")
        self._use = use
        self._patience = patience
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        self._server = endpoint or "Amazon S3"
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        # What delta-rs, which asks the server itself, needs beside the credentials of the environment.
        self.options = {"aws_region": region, "allow_http": "true", "retry_timeout": f"{patience:g}s", "max_retries": "1000"}
        self.options |= {"aws_endpoint": endpoint} if endpoint else {}
        self._client, self._uploads = (
            S3Store(
                parsed.netloc,
                prefix=parsed.path.strip("/"),
                region=region,
                client_options={
                    "allow_http": (endpoint or "").startswith("http://"),
                    "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
                    "read_timeout": timedelta(seconds=silent),
                    "timeout": timedelta(seconds=_REQUEST_SECONDS),
                },
                retry_config={"max_retries": 0},  # it would ask again for a `create`, too, whose first answer was lost
                config={"endpoint": endpoint} if endpoint else {},
            )
            for silent in (_SILENT_SECONDS, _REQUEST_SECONDS)
        )

    def create(self, path: str, data: bytes | memoryview) -> bool:
        """Make an object unless there is one. Each bears the name of its writer: an answer that was lost can be found out."""
        if len(data) > _LARGEST_PUT:
            return self.create_from(path, lambda: [data])
        me = uuid.uuid4().hex

        def put() -> bool:
            try:
                obstore.put(self._for(data), path, data, mode="create", use_multipart=False, attributes={_WRITER: me})
            except AlreadyExistsError:
                return self._writer(path) == me
            return True

        return self._retried("write", path, put)

    def put(self, path: str, data: bytes | memoryview) -> None:
        """Make an object, or have it instead of the one that is there: readers find one of them, whole."""
        if len(data) > _LARGEST_PUT:
            self._put_parts(path, lambda: [data])
        else:
            self._retried("write", path, lambda: obstore.put(self._for(data), path, data, use_multipart=False))

    def create_from(self, path: str, pieces: Callable[[], Iterable[bytes | memoryview]]) -> bool:
        """Make an object in several requests, as one ends at 5 GB; they cannot be made not to overwrite, so it is looked up."""
        if self.exists(path):
            return False
        self._put_parts(path, pieces)
        return True

    def read(self, path: str) -> bytes:
        return self._retried("read", path, lambda: obstore.get(self._client, path).bytes().to_bytes())

    def read_range(self, path: str, start: int, length: int) -> bytes:
        def part() -> bytes:
            try:
                return obstore.get(self._client, path, options={"range": (start, start + length)}).bytes().to_bytes()
            except BaseError as error:
                if _status_of(error) == _BEYOND_THE_END:
                    return b""
                raise

        return self._retried("read", path, part)

    def find(self, path: str) -> bytes | None:
        def found() -> bytes | None:
            try:
                return obstore.get(self._client, path).bytes().to_bytes()
            except FileNotFoundError:
                return None

        return self._retried("read", path, found)

    def part_of(self, path: str, e_tag: str | None, start: int, length: int) -> bytes | None:
        """Bytes of the object that has this ETag; None if it is gone, or another one has its name."""

        def part() -> bytes | None:
            try:
                options: GetOptions = {"range": (start, start + length)}
                if e_tag is not None:
                    options["if_match"] = e_tag
                return obstore.get(self._client, path, options=options).bytes().to_bytes()
            except (FileNotFoundError, PreconditionError):
                return None

        return self._retried("read", path, part)

    def exists(self, path: str) -> bool:
        return self.status(path) is not None

    def status(self, path: str) -> Mapping[str, Any] | None:
        """An object as the server lists it: path, size, last_modified, e_tag; None without one."""

        def there() -> Mapping[str, Any] | None:
            try:
                return obstore.head(self._client, path)
            except FileNotFoundError:
                return None

        return self._retried("look for", path, there)

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return [path for path, there in zip(paths, threads.map(self.exists, paths), strict=True) if not there]

    def list(self, folder: str) -> Sequence[str]:
        """Paths of all objects below `folder`, sorted."""
        return sorted(found["path"] for found in self.listed(folder))

    def listed(self, folder: str) -> Sequence[Mapping[str, Any]]:
        """All objects below `folder`, as the server lists them: path, size, last_modified, e_tag."""

        def below() -> Sequence[Mapping[str, Any]]:
            return [found for chunk in obstore.list(self._client, prefix=folder or None) for found in chunk]

        return self._retried("list", folder, below)

    def delete(self, path: str) -> None:
        def gone() -> None:
            try:
                obstore.delete(self._client, path)
            except FileNotFoundError:
                return

        self._retried("delete", path, gone)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete objects, a thousand with each request; they may be gone already."""
        if paths:
            self._retried("delete", paths[0], lambda: obstore.delete(self._client, paths))

    def where(self, path: str) -> str:
        """The object as people can find it."""
        return f"{self.uri}/{path}"

    def _for(self, data: bytes | memoryview) -> S3Store:
        return self._client if len(data) <= _LITTLE_BYTES else self._uploads

    def _put_parts(self, path: str, pieces: Callable[[], Iterable[bytes | memoryview]]) -> None:
        def put() -> None:
            parts = (bytes(part) for piece in pieces() for part in _cut(piece))
            obstore.put(self._uploads, path, parts, use_multipart=True, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)

        self._retried("write", path, put)

    def _writer(self, path: str) -> object:
        """The writer of an object that existed a moment ago. Raises _Conflict when it is gone: two requests met."""
        try:
            return obstore.get(self._client, path, options={"head": True}).attributes.get(_WRITER)
        except FileNotFoundError as gone:
            raise _Conflict("two requests for the same object met") from gone

    def _retried(self, verb: str, path: str, ask: Callable[[], Answer]) -> Answer:
        """The server's answer, retried for `patience` seconds. Raises for a refusal or no answer."""
        since, away, pause = time.monotonic(), 0.0, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return ask()
            except (BaseError, FileNotFoundError, _Conflict) as error:
                why, refusal = _cause_and_remedy(error, self._use)
                if refusal is not None:
                    raise self._failure(verb, path, why, refusal) from error
                now = time.monotonic()
                away += min(now - since, self._patience / 2)  # more is this process standing still, as likely as the server
                since = now
                if away > self._patience:
                    todo = f"asked for {away:.0f} s; start again once it answers: nothing is lost"
                    raise self._failure(verb, path, why, todo) from error
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _failure(self, verb: str, path: str, why: str, todo: str) -> StreamTopologyError:
        return self._use.raises(f"cannot {verb} {self.where(path)}: {self._server} says {why!r}; {todo}")


def _cut(piece: bytes | memoryview) -> Iterator[memoryview]:
    view = memoryview(piece)
    return (view[start : start + _PART_BYTES] for start in range(0, len(view), _PART_BYTES))


class _Conflict(Exception):
    """Neither of two requests for the same object may have had its way."""


def _status_of(error: Exception) -> int | None:
    status = _STATUS.search(str(error))
    return None if status is None else int(status[1])


def _cause_and_remedy(error: Exception, use: Use) -> tuple[str, str | None]:
    """Map an error to its cause and, where a retry is useless, to its remedy (else None)."""
    text = str(error).partition("\n\nDebug source")[0]
    status, code = _STATUS.search(text), _CODE.search(text)
    if isinstance(error, FileNotFoundError):
        why = code[1] if code else "NoSuchKey"
        is_refusal = True
    elif status is not None:
        why = f"{status[1]} {code[1]}" if code else status[1]
        is_refusal = int(status[1]) not in _ASK_AGAIN
    elif code := _OF_ONE_OBJECT.search(text):
        why = code[1]
        is_refusal = why not in _ASK_AGAIN_FOR_IT
    elif odd := _ODD_NAME.search(text):
        return odd[1].strip(), "rename that object: the parts of its name may not be empty, . or .."
    elif _ELSEWHERE in text:
        why = "PermanentRedirect"
        is_refusal = True
    else:
        why = text.rpartition(" - ")[2].strip()
        is_refusal = False
    return why, (use.advice(code[1] if code else why) or _RIGHTS) if is_refusal else None
