"""Load the Python modules that hold users' own operators and functions."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from streamtopology.contract.errors import InvalidInput
from streamtopology.jobs.users_code.ending import is_interrupt, named

_PROJECT = "streamtopology."
_FROM_FILE = "streamtopology_user_"
_REMEDY = "import from streamtopology.api instead, which has all that operators of your own need"


class LoadError(InvalidInput):
    """A `run` that names nothing that can run; the message says what was looked for, and where."""


def named_in(run: str, base_dir: Path, what: str) -> tuple[ModuleType, str, object]:
    """The module, the name and the thing of `module:Name` or `path/file.py:Name`; None if the module has no such thing.

    Files are relative to `base_dir` (the manifest's folder). what: the word for things of this kind. Raises LoadError; an error
    inside the loaded module is its cause.
    """
    place, _, name = run.rpartition(":")
    if not place or not name.isidentifier():
        raise LoadError(f"run {run!r} does not name a {what.lower()}; write module:{what} or path/file.py:{what}")
    module = module_from_file(base_dir / place, run) if place.endswith(".py") else module_from_name(place, run)
    return module, name, getattr(module, name, None)


def module_from_name(name: str, run: str) -> ModuleType:
    """The installed module `name`. Raises LoadError."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise LoadError(_unloadable(run, f"module {name}", error)) from error
        raise LoadError(f"run {run!r}: there is no module {name}; {_where_else(name)}") from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise LoadError(_unloadable(run, f"module {name}", error)) from error


def module_from_file(path: Path, run: str) -> ModuleType:
    """The module in a file, loaded once for each content. Raises LoadError."""
    path = path.resolve()
    if not path.is_file():
        raise LoadError(f"run {run!r}: there is no file {path}")
    source = path.read_bytes()
    name = f"{_FROM_FILE}{path.stem}_{hashlib.sha256(str(path).encode() + source).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"run {run!r}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(source, path, "exec"), vars(module))
    except BaseException as error:
        del sys.modules[name]
        if is_interrupt(error):
            raise
        raise LoadError(_unloadable(run, str(path), error)) from error
    return module


def is_loading(module: str) -> bool:
    """True for the name of a module that `module_from_file` has loaded, or loads."""
    return module.startswith(_FROM_FILE)


def _unloadable(run: str, what: str, error: BaseException) -> str:
    if isinstance(error, ImportError) and (error.name or "").startswith(_PROJECT):
        return f"run {run!r}: {what} imports what this version does not have ({error}); {_REMEDY}"
    if isinstance(error, ModuleNotFoundError):
        return f"run {run!r}: {what} needs {error.name}, which is not installed; install it for driver and executors"
    if not isinstance(error, Exception):
        return (
            f"run {run!r}: {what} ends the process when it is imported, by {named(error)} or the like; put what it does "
            'as a script below `if __name__ == "__main__":`'
        )
    return f"run {run!r}: {what} does not load: {type(error).__name__}: {error}"


def _where_else(name: str) -> str:
    if name.startswith(_PROJECT):
        return "a built-in operator is named by its short name, such as count"
    return "a file is named with its ending, path/file.py:Class"
