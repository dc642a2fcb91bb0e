"""Load the users' own functions that sources and sinks name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamtopology.jobs.users_code.modules import LoadError, named_in


def load_function(run: str, base_dir: Path, **arguments: str) -> Callable[..., Any]:
    """The function that `run` names, module:function or path/file.py:function. Raises LoadError.

    arguments: name -> what it is, of each argument that the function is called with, in their order.
    """
    _, name, found = named_in(run, base_dir, "function")
    if not callable(found) or isinstance(found, type):
        raise LoadError(f"run {run!r}: {name!r} is no function in {run.rpartition(':')[0]}")
    try:
        inspect.signature(found).bind(*arguments.values())
    except TypeError as error:
        raise LoadError(
            f"run {run!r}: {name}{inspect.signature(found)} is called with {' and '.join(arguments.values())}: {error}; "
            f"declare `def {name}({', '.join(arguments)})`"
        ) from error
    return found
