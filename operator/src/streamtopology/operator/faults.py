"""Where a test can have the operator die: at a named step, as by kill -9, so that starting again is shown to be harmless."""

from __future__ import annotations

import os
import signal

VARIABLE = "STREAMTOPOLOGY_CRASH_AT"
"""Names a point: `before-` or `after-` and a step's point (`apply-ConfigMap`), `intent` or `status`."""


def point(name: str) -> None:
    """Dies here if the variable names this point."""
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
