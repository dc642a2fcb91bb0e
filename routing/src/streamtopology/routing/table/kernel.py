"""`njit` of numba, which is loaded when a kernel is first called: that takes two seconds, and a driver that takes over the
workers of another one commits before it needs any.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numba import njit
else:

    class Kernel:
        """A function that numba compiles at its first call, or when another kernel that calls it is compiled."""

        def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
            self.py_func = function
            self._options = options
            functools.update_wrapper(self, function)

        def __call__(self, *arguments: Any) -> Any:
            return self._compiled(*arguments)

        @property
        def _numba_type_(self) -> Any:
            """What numba sees where a kernel names this one."""
            return self._compiled._numba_type_

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):  # inspection is no use of it
                raise AttributeError(name)
            return getattr(self._compiled, name)

        @functools.cached_property
        def _compiled(self) -> Any:
            import numba

            return numba.njit(**self._options)(self.py_func)

    def njit(**options: Any) -> Callable[[Callable[..., Any]], Kernel]:
        return lambda function: Kernel(function, options)


__all__ = ["njit"]
