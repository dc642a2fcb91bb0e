"""Signals that end a run."""

from __future__ import annotations

import os
import signal


def stop_on_sigterm() -> None:
    """Have SIGTERM end a run as Ctrl-C does, with everything cleaned up."""

    def interrupt(signum: int, _: object) -> None:
        signal.signal(signum, signal.SIG_DFL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
