"""Log lines that say which batch and which instance they are of, so that the logs of many pods can be read as one.

Every line begins `TIME batch=N instance=OPERATOR/I `, with - where there is none. Python's lines are tagged as they are
written (an operator's own prints and logging included), those of the JVMs by a log4j2 pattern that reads what
`begin_batch` sets, and what a process's children write otherwise on its way through the process that started them.
"""

from __future__ import annotations

import atexit
import io
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
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:  # the workers' daemon imports this module before it chooses which PySpark to import
    from pyspark import SparkContext

_TAGGED = re.compile(rb"\d{4}-\d\d-\d\dT\S+Z batch=\S+ instance=")

_batch: ContextVar[int | None] = ContextVar("batch", default=None)
_instance: ContextVar[str | None] = ContextVar("instance", default=None)


@dataclass
class _Begun:
    """The driver's batch at work, for the lines of threads that are not told theirs."""

    batch: int | None = None


_begun = _Begun()


@contextmanager
def working_on(batch: int | None, instance: str | None = None) -> Iterator[None]:
    """While entered, this thread's lines are of `batch` and of `instance` (`OPERATOR/I`)."""
    tokens = _batch.set(batch), _instance.set(instance)
    try:
        yield
    finally:
        _batch.reset(tokens[0])
        _instance.reset(tokens[1])


def begin_batch(context: SparkContext, batch: int) -> None:
    """In the driver: from now on its lines are of `batch`, and those of executors' JVMs at tasks of the calling thread."""
    _begun.batch = batch
    context.setLocalProperty("mdc.batch", str(batch))
    jvm: Any = context._jvm
    jvm.java.lang.System.setProperty("streamtopology.batch", str(batch))


def tag_lines() -> None:
    """From now on all that this process writes, by print or by logging, is tagged line by line. May be called again."""
    if isinstance(sys.stdout, TaggedLines):
        return
    sys.stdout, sys.stderr = TaggedLines(sys.stdout), TaggedLines(sys.stderr)
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)


def tag_all() -> None:
    """As `tag_lines`, and for what children of this process write: for the process that a container runs."""
    tag_lines()
    kept = os.dup(1)
    reading, writing = os.pipe()
    for stream in (1, 2):
        os.dup2(writing, stream)
    os.close(writing)
    passing = threading.Thread(target=_pass_on, args=(reading, kept), name="log-lines", daemon=True)
    passing.start()
    atexit.register(_let_pass, kept, passing)


def _pass_on(reading: int, kept: int) -> None:
    """Copy lines, tagging those that are not, until nobody can write any more."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(os.dup(kept), "wb", buffering=0) as out:
        for line in lines:
            out.write(line if _TAGGED.match(line) else _tag().encode() + line)


def _let_pass(kept: int, passing: threading.Thread) -> None:
    """What was written last is on its way; children that live on write for themselves, and are not waited for long."""
    for stream in (1, 2):
        os.dup2(kept, stream)
    passing.join(timeout=1.0)


class TaggedLines(io.TextIOBase):
    """Passes whole lines on to `stream`, each with its tag; the rest of a line waits for its end or for `flush`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._line = ""

    def write(self, text: str, /) -> int:
        *lines, self._line = (self._line + text).split("\n")
        if lines:
            tag = _tag()
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


def _tag() -> str:
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    batch = _batch.get()
    if batch is None:
        batch = _begun.batch
    shown = "-" if batch is None else batch
    return f"{stamp}.{int(now % 1 * 1000):03d}Z batch={shown} instance={_instance.get() or '-'} "
