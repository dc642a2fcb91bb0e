"""Users' code that ends its process, or says so: SystemExit, KeyboardInterrupt and the like are errors of that code."""

from __future__ import annotations

import dis
from types import TracebackType

_RAISE = frozenset({dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"]})
_PROJECT = "streamtopology."


def is_interrupt(error: BaseException) -> bool:
    """True for a Ctrl-C, which meets users' code wherever that is; False if the code has a `raise KeyboardInterrupt`."""
    return isinstance(error, KeyboardInterrupt) and not _is_raised_by_users_code(error.__traceback__)


def named(error: BaseException) -> str:
    """`sys.exit(3)` for what ends the process, `KeyboardInterrupt` for others."""
    return f"sys.exit({error})" if isinstance(error, SystemExit) else type(error).__name__


def _is_raised_by_users_code(traceback: TracebackType | None) -> bool:
    """True if the last line on the way to an error is a `raise` outside of this project, whose signal handlers raise, too."""
    if traceback is None:
        return False
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame
    if str(frame.f_globals.get("__name__", "")).startswith(_PROJECT):
        return False
    return frame.f_code.co_code[traceback.tb_lasti] in _RAISE
