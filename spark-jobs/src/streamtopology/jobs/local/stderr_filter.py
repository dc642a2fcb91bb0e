"""Filter of the standard error of the driver's JVM and its Python processes, on the way to the terminal.

Every line passes except expected noise: the JVM's note that it loaded a module as requested, and the traceback of a process
that Spark disconnected after an idle minute (the process reads a source's plan once a run).
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator

_INCUBATOR = re.compile(r"WARNING: Using incubator modules: \S+")
_HUNG_UP = re.compile(
    r"Traceback \(most recent call last\):\n"
    r'(?:  File "[^"\n]*pyspark[^"\n]*daemon\.py", line .*\n(?:    .*\n)*)+'
    r"BrokenPipeError: .*\n"
)
_TRACEBACK = "Traceback (most recent call last):"


def to_stderr() -> int:
    """Return a descriptor for a child's standard error; its lines go to the current `sys.stderr`, above any live view."""
    reading, writing = os.pipe()
    turn = threading.Lock()
    threading.Thread(target=_pass_on, args=(reading, turn), name="jvm-lines", daemon=True).start()
    atexit.register(turn.acquire)  # the JVM outlives us by a moment, and Python must not end in the middle of a write
    return writing


def _pass_on(reading: int, turn: threading.Lock) -> None:
    with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
        for text in without_noise(lines):
            with turn:
                sys.stderr.write(text)
                sys.stderr.flush()


def without_noise(lines: Iterable[str]) -> Iterator[str]:
    """Yield `lines` without expected noise. The lines of a traceback wait for its last one."""
    held: list[str] = []
    for line in lines:
        if held and line.startswith(" "):
            held.append(line)
            continue
        if held:
            held.append(line)
            if not _HUNG_UP.fullmatch("".join(held)):
                yield from held
            held = []
        elif line.startswith(_TRACEBACK):
            held = [line]
        elif not _INCUBATOR.match(line):
            yield line
    yield from held
