"""The files of a process's modules: one that lives on after they have changed runs what is no longer there."""

from __future__ import annotations

import os
import sys


class LoadedFiles:
    """Knows each file as it was at the first `note` after it was loaded."""

    def __init__(self) -> None:
        self._modules = 0
        self._known: dict[str, tuple[int, int] | None] = {}

    def note(self) -> None:
        """Take note of what has been loaded since; often called, for nothing."""
        if len(sys.modules) == self._modules:
            return
        modules = tuple(sys.modules.values())
        self._modules = len(modules)
        for module in modules:
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and path not in self._known:
                self._known[path] = _version(path)

    def have_changed(self) -> bool:
        return any(_version(path) != version for path, version in self._known.items())


def _version(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
