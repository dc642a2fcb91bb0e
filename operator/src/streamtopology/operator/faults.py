"""Where a test can have the operator die: at a named step, as by kill -9, so that starting again is shown to be harmless.

    STREAMTOPOLOGY_CRASH_AT=after-apply-ConfigMap

Every point is hit by a test (tests/kubernetes/test_operator_killed.py).
"""

from __future__ import annotations

import os
import signal

VARIABLE = "STREAMTOPOLOGY_CRASH_AT"
"""Names one of `POINTS`. Another name ends the process at its start: it would test nothing."""

_STEPS = (
    "finalizer", "apply-ServiceAccount", "apply-Role", "apply-RoleBinding", "apply-Service", "apply-NetworkPolicy",
    "apply-PodDisruptionBudget", "make-Secret", "apply-ConfigMap", "apply-Job", "patch-ConfigMap", "delete-Job",
    "apply-StatefulSet", "apply-Deployment", "patch-Deployment", "delete-StatefulSet", "resize-Pod", "delete-Pod",
)  # fmt: skip

POINTS = tuple(f"{side}-{what}" for what in ("intent", *_STEPS, "status") for side in ("before", "after"))
"""Before and after each kind of step that is taken (`point` in steps.py), what is about to be done is recorded, and status
is written."""


class UnknownPoint(ValueError):
    """There is no point of that name."""


def read_point(text: str | None) -> str | None:
    """The value of the environment's variable, if it is one of `POINTS`; None where it is not set. Raises UnknownPoint."""
    if text is not None and text not in POINTS:
        raise UnknownPoint(f"{VARIABLE}={text}: expected one of {', '.join(POINTS)}")
    return text


_deadly = read_point(os.environ.get(VARIABLE))


def point(name: str) -> None:
    """Dies here if the variable names this point."""
    if name == _deadly:
        os.kill(os.getpid(), signal.SIGKILL)
