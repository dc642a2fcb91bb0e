"""Operators: the interface (`base`), the built-ins, and how a manifest's `run` finds a class."""

from __future__ import annotations

from streamtopology.jobs.operators.registry import BUILTINS, LoadError, load

__all__ = ["BUILTINS", "LoadError", "load"]
