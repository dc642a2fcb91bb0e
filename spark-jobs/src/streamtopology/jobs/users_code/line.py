"""The line of a user's own code at which an error was raised."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path

_PROJECT = "streamtopology."


def users_line(own_code: Callable[..., object], error: BaseException) -> str:
    """` (ops.py, line 12, in process: return 1 / x)`: the last line of the function, or of the class and those that it
    derives from, on the way to the error; "" without any."""
    kinds = getattr(own_code, "__mro__", (own_code,))
    modules = {kind.__module__ for kind in kinds if not kind.__module__.startswith(_PROJECT)}
    own = {getattr(sys.modules.get(module), "__file__", None) for module in modules}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
    if not frames:
        return ""
    last = frames[-1]
    code = f": {last.line:.100}" if last.line else ""
    return f" ({Path(last.filename).name}, line {last.lineno}, in {last.name}{code})"
