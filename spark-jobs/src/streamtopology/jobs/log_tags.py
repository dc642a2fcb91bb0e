"""Log lines that say which batch and which instance they are of, so that the logs of many pods can be read as one.

Every line begins `TIME batch=N instance=OPERATOR/I `, with - where there is none. Python's lines are tagged as they are
written (an operator's own prints and logging included), those of the JVMs by a log4j2 pattern that reads
properties (`SparkAttemptRunner.begin_batch` sets them), and what a process's children write otherwise on its way through the
process that started them. That process may pass all of them on as JSON objects, one a line.
"""

from __future__ import annotations

import atexit
import io
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TextIO

_TAGGED = re.compile(rb"\d{4}-\d\d-\d\dT\S+Z batch=\S+ instance=")
_PARTS = re.compile(r"(?P<time>\S+) batch=(?P<batch>\S+) instance=(?P<instance>\S+) ?(?P<message>.*)", re.DOTALL)
_LEVEL = re.compile(r"(?P<level>DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL) (?P<logger>[\w.$]+): ")

_batch: ContextVar[int | None] = ContextVar("batch", default=None)
_instance: ContextVar[str | None] = ContextVar("instance", default=None)


@dataclass
class TaggedBatch:
    """The driver's running batch, for the lines of threads that have no batch of their own."""

    batch: int | None = None


_running = TaggedBatch()


@contextmanager
def working_on(batch: int | None, instance: str | None = None) -> Iterator[None]:
    """While entered, tag this thread's lines with `batch` and `instance` (`OPERATOR/I`)."""
    tokens = _batch.set(batch), _instance.set(instance)
    try:
        yield
    finally:
        _batch.reset(tokens[0])
        _instance.reset(tokens[1])


def begin_batch(batch: int) -> None:
    """In the driver: tag its lines with `batch` from now on."""
    _running.batch = batch


def tag_lines() -> None:
    """Tag every line that this process prints or logs from now on. May be called again."""
    if isinstance(sys.stdout, TaggedLines):
        return
    sys.stdout, sys.stderr = TaggedLines(sys.stdout), TaggedLines(sys.stderr)
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)


def tag_all(as_json: bool = False) -> None:
    """Tag lines as `tag_lines` does, and those of child processes, too: for the process that a container runs.

    `as_json`: as JSON objects with time, level, batch, instance (null for none), logger if one is known, message.
    """
    tag_lines()
    kept = os.dup(1)
    reading, writing = os.pipe()
    for stream in (1, 2):
        os.dup2(writing, stream)
    os.close(writing)
    passing = threading.Thread(target=_pass_on, args=(reading, kept, as_json), name="log-lines", daemon=True)
    passing.start()
    atexit.register(_let_pass, kept, passing)


def _pass_on(reading: int, kept: int, as_json: bool) -> None:
    """Copy lines, tagging those without a tag, until all writers have closed."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(os.dup(kept), "wb", buffering=0) as out:
        for line in lines:
            tagged = line if _TAGGED.match(line) else _tag(_running).encode() + line
            out.write(json_line(tagged) if as_json else tagged)


def json_line(line: bytes) -> bytes:
    """A tagged line as a JSON object and a newline. A level that the line does not begin with is INFO."""
    parts = _PARTS.fullmatch(line.decode(errors="replace").rstrip("\n"))
    assert parts is not None
    batch, instance, message = parts["batch"], parts["instance"], parts["message"]
    logged = _LEVEL.match(message)
    level = "INFO" if logged is None else {"WARN": "WARNING", "FATAL": "CRITICAL"}.get(logged["level"], logged["level"])
    shown: dict[str, object] = {
        "time": parts["time"],
        "level": level,
        "batch": int(batch) if batch.isdecimal() else None,
        "instance": None if instance == "-" else instance,
    }
    if logged is not None:
        shown["logger"], message = logged["logger"], message[logged.end() :]
    return json.dumps({**shown, "message": message}, ensure_ascii=False).encode() + b"\n"


def _let_pass(kept: int, passing: threading.Thread) -> None:
    """Wait for the last lines; children that outlive us write for themselves, and are not waited for long."""
    for stream in (1, 2):
        os.dup2(kept, stream)
    passing.join(timeout=1.0)


class TaggedLines(io.TextIOBase):
    """Passes whole lines on to `stream`, each with its tag; the rest of a line waits for its end or for `flush`."""

    def __init__(self, stream: TextIO, running: TaggedBatch = _running) -> None:
        super().__init__()
        self._stream = stream
        self._running = running
        self._line = ""

    def write(self, text: str, /) -> int:
        *lines, self._line = (self._line + text).split("\n")
        if lines:
            tag = _tag(self._running)
            self._stream.write("".join(f"{tag}{line}\n" for line in lines))
            self._stream.flush()
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True


def _tag(running: TaggedBatch) -> str:
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    batch = _batch.get()
    if batch is None:
        batch = running.batch
    shown = "-" if batch is None else batch
    return f"{stamp}.{int(now % 1 * 1000):03d}Z batch={shown} instance={_instance.get() or '-'} "
