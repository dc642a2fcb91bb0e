"""The line of a user's own code at which an error was raised."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

_PROJECT = "streamtopology."


def users_line(own_code: Callable[..., object], error: BaseException) -> str:
    """` (ops.py, line 12, in process: return 1 / x)`: the last line of the function, or of the class and those that it
    derives from, on the way to the error; "" without any."""
    kinds = [kind for kind in getattr(own_code, "__mro__", (own_code,)) if not kind.__module__.startswith(_PROJECT)]
    own = {getattr(sys.modules.get(kind.__module__), "__file__", None) for kind in kinds}
    own |= {file for kind in kinds for file in _files(kind)}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
    if not frames:
        return ""
    last = frames[-1]
    code = f": {last.line:.100}" if last.line else ""
    return f" ({Path(last.filename).name}, line {last.lineno}, in {last.name}{code})"


def _files(kind: object) -> Iterator[str]:
    """The files of a function, or of the methods of a class: one that was pickled may have no module in this process."""
    for member in (kind, *getattr(kind, "__dict__", {}).values()):
        code = getattr(member, "__code__", None)
        if code is not None:
            yield code.co_filename
