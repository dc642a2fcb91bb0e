"""Load the Python modules that hold users' own operators."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from streamtopology.contract.errors import InvalidInput
from streamtopology.jobs.operators.ending import is_interrupt, named

FORMER = {
    "streamtopology.jobs.keys",
    "streamtopology.jobs.operators",
    "streamtopology.jobs.operators.base",
    "streamtopology.jobs.operators.options",
    "streamtopology.jobs.state",
}
"""Modules that the documentation named to users before `streamtopology.api`."""
_PROJECT = "streamtopology."
_REMEDY = "import from streamtopology.api instead, which has all that operators of your own need"


class LoadError(InvalidInput):
    """A `run` that names no operator; the message says what was looked for, and where."""


def module_from_name(name: str, run: str) -> ModuleType:
    """The installed module `name`. Raises LoadError."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise LoadError(_unloadable(run, f"module {name}", error)) from error
        raise LoadError(f"run {run!r}: there is no module {name}; {_where_else(name)}") from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise LoadError(_unloadable(run, f"module {name}", error)) from error
    origin = None if module.__spec__ is None else module.__spec__.origin
    if origin is not None and origin.endswith(".py") and not name.startswith(_PROJECT):
        _refuse_former_imports(Path(origin), Path(origin).read_bytes(), run)
    return module


def module_from_file(path: Path, run: str) -> ModuleType:
    """The module in a file, loaded once for each content. Raises LoadError."""
    path = path.resolve()
    if not path.is_file():
        raise LoadError(f"run {run!r}: there is no file {path}")
    source = path.read_bytes()
    name = f"streamtopology_user_{path.stem}_{hashlib.sha256(str(path).encode() + source).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    _refuse_former_imports(path, source, run, rewritten=True)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"run {run!r}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(_for_this_version(source), path, "exec"), vars(module))
    except BaseException as error:
        del sys.modules[name]
        if is_interrupt(error):
            raise
        raise LoadError(_unloadable(run, str(path), error)) from error
    return module


def former_names(path: Path) -> list[tuple[int, str]]:
    """Line and module of each `from MODULE import NAME` in a file that is read as one from `streamtopology.api`."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []  # loading it says why
    return [(node.lineno, str(node.module)) for node in _run(tree) if _is_former(node)]


def _for_this_version(source: bytes) -> ast.Module:
    """The file's code, with names that were imported from former modules taken from `streamtopology.api`."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if _is_former(node):
            node.module = "streamtopology.api"
    return tree


def _is_former(node: ast.AST) -> TypeGuard[ast.ImportFrom]:
    """True for `from MODULE import NAME`, where NAME is no module itself."""
    if not isinstance(node, ast.ImportFrom) or node.level != 0 or node.module not in FORMER:
        return False
    return not any(f"{node.module}.{alias.name}" in FORMER for alias in node.names)


def _refuse_former_imports(path: Path, source: bytes, run: str, rewritten: bool = False) -> None:
    """Raise LoadError for an import of what users imported before `streamtopology.api`, but for what is `rewritten`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return  # loading it says where
    for line, module in _imports(tree, rewritten):
        if module in FORMER:
            raise LoadError(f"run {run!r}: {path}, line {line} imports {module}, which is internal now; {_REMEDY}")


def _imports(tree: ast.Module, rewritten: bool) -> Iterator[tuple[int, str]]:
    """Line and name of each imported module; of `from a import b` also `a.b`, which may be one.

    Imports for type checkers alone are left out, and those in the place of one that failed: a file for several versions.
    """
    for node in _run(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            if rewritten and _is_former(node):
                continue
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and all below it that runs where all imports succeed."""
    yield node
    left_out: list[ast.AST] = []
    if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
        left_out = [*node.body]
    elif isinstance(node, ast.Try):
        left_out = [handler for handler in node.handlers if _takes_import_errors(handler.type)]
    for child in ast.iter_child_nodes(node):
        if child not in left_out:
            yield from _run(child)


def _takes_import_errors(taken: ast.expr | None) -> bool:
    taken_each = taken.elts if isinstance(taken, ast.Tuple) else [taken]
    return any(_last_name(each) in ("ImportError", "ModuleNotFoundError") for each in taken_each)


def _last_name(node: ast.expr | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


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
        return "the project's modules have moved: name a built-in operator by its short name, such as count"
    return "a file is named with its ending, path/file.py:Class"
