"""Modules that are loaded when they are first used: compiled kernels, and all that load them."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """The module `name`, imported when one of its attributes is first read.

    Loading numba takes two seconds, and `streamtopology validate` uses no kernel. A module that uses kernels imports them
    for the type checker, and binds the same name to one of these at run time.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspection is no use of the module
            raise AttributeError(name)
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value
