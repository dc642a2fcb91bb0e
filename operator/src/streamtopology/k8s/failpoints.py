"""Failpoints: a test has the operator die at a named step, as by kill -9, to show that a restart is harmless.

    STREAMTOPOLOGY_CRASH_AT=after-apply-ConfigMap

Every point is hit by a test (tests/kubernetes/test_operator_killed.py).
"""

from __future__ import annotations

import os
import signal

from streamtopology.contract.errors import UnknownFailpoint

# The name of one of `POINTS`. Any other ends the process at its start: it would test nothing.
VARIABLE = "STREAMTOPOLOGY_CRASH_AT"

_STEPS = (
    "finalizer", "apply-ServiceAccount", "apply-Role", "apply-RoleBinding", "apply-Service", "apply-NetworkPolicy",
    "apply-PodDisruptionBudget", "make-Secret", "apply-ConfigMap", "apply-Job", "patch-ConfigMap", "delete-Job",
    "apply-StatefulSet", "patch-StatefulSet", "apply-Deployment", "patch-Deployment", "delete-StatefulSet", "resize-Pod",
    "delete-Pod", "delete-PodDisruptionBudget",
)  # fmt: skip

# Before and after each kind of step (`point` in steps.py), the record of the intent, and the write of the status.
POINTS = tuple(f"{side}-{what}" for what in ("intent", *_STEPS, "status") for side in ("before", "after"))


def read_point(text: str | None) -> str | None:
    """The value of the variable, None where it is not set. UnknownFailpoint: it is none of `POINTS`."""
    if text is not None and text not in POINTS:
        raise UnknownFailpoint(f"{VARIABLE}={text}: expected one of {', '.join(POINTS)}")
    return text


_deadly = read_point(os.environ.get(VARIABLE))


def point(name: str) -> None:
    """Kill this process if the variable names this point."""
    if name == _deadly:
        os.kill(os.getpid(), signal.SIGKILL)
