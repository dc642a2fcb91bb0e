"""Failures of Spark's streaming query and of the sources that Spark reads itself, as sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence

from streamtopology.topology import Source

_ERROR_CLASS = re.compile(r"\[[A-Z_]+(?:\.[A-Z_]+)*\] [^\n]*")
_SQL_FRAGMENT = re.compile(r"== SQL[^\n]*==\n([^\n]+)\n\s*\^")
_PYTHON_ERROR = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*(\S[^\n]*)")
# All that Spark says when a source's Python process was killed: before it was asked, or meanwhile.
_CUT_OFF = ("Broken pipe", "Connection reset", "Connection reset by peer", "null")


def plainly(failure: str) -> str:
    """Return Spark's message without the plan that follows it, and of Python's trace only what was raised."""
    message = failure.split("=== Streaming Query ===")[0].strip()
    if raised := _PYTHON_ERROR.findall(message):
        message = message.split("Traceback")[0] + raised[-1]
    if message in _CUT_OFF:
        message = (
            f"a connection was cut off ({message}). Where a source is in Python, the process in which the driver asks it for "
            "offsets has ended: it was killed, perhaps for want of memory. Start again, which continues from the newest commit"
        )
    return f"the streaming query failed: {message}"


def unreadable(sources: Sequence[Source], batch: int, failure: str) -> str:
    """Return the message of a failure while Spark reads `sources`: Spark's own sentence, and the source at fault."""
    raised = _PYTHON_ERROR.findall(failure)
    reason = _ERROR_CLASS.search(failure)
    spoken = raised[-1] if raised else reason[0] if reason else failure.splitlines()[0]
    expression = _SQL_FRAGMENT.search(failure)
    culprits = [s for s in sources if expression and any(expression[1] in text for text in (*s.select, s.where or ""))]
    names = " or ".join(repr(source.name) for source in culprits or sources)
    where = f", expression {expression[1]!r}" if expression else ""
    return (
        f"source {names} failed in batch {batch}{where}: {spoken.rstrip('.')}. "
        "Nothing of this batch was committed. Spark reads this format itself and names no single row, so none can be set "
        "aside: correct the source, or its select or where (try_cast gives NULL instead of an error), and start again."
    )
