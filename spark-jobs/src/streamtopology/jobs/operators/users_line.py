"""The line of a user's own code at which an error was raised."""

from __future__ import annotations

import linecache
import os
import sysconfig
import traceback

_PROJECT = "streamtopology."
_INSTALLED = tuple(sysconfig.get_paths()[kind] + os.sep for kind in ("stdlib", "purelib", "platlib"))


def users_line(error: BaseException) -> str:
    """`line 12 of ops.py: return 1 / row["v"]`, the last line that is neither ours nor of an installed package; "" without."""
    for raised in (error, error.__cause__):
        if raised is None:
            continue
        for frame, line in reversed(list(traceback.walk_tb(raised.__traceback__))):
            path = frame.f_code.co_filename
            if str(frame.f_globals.get("__name__", "")).startswith(_PROJECT) or path.startswith(_INSTALLED):
                continue
            return f"line {line} of {os.path.basename(path)}: {linecache.getline(path, line).strip()}"
    return ""
