"""From a manifest's `run` to the operator class: a built-in name, `module:Class` or `path/file.py:Class`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from streamtopology.jobs.operators.aggregate import Aggregate
from streamtopology.jobs.operators.base import Operator
from streamtopology.jobs.operators.counting import Count
from streamtopology.jobs.operators.enrich import Enrich
from streamtopology.jobs.operators.quantiles import Quantiles
from streamtopology.jobs.operators.sql import Filter, Map
from streamtopology.jobs.operators.top_k import TopK
from streamtopology.jobs.operators.window_aggregate import WindowAggregate
from streamtopology.jobs.operators.window_join import WindowJoin

BUILTINS: Mapping[str, type[Operator]] = {
    "count": Count,
    "aggregate": Aggregate,
    "top-k": TopK,
    "quantiles": Quantiles,
    "map": Map,
    "filter": Filter,
    "enrich": Enrich,
    "window-aggregate": WindowAggregate,
    "window-join": WindowJoin,
}


class LoadError(ValueError):
    """A `run` that names no operator; the sentence says what was looked for and where."""


def load(run: str, base_dir: Path) -> type[Operator]:
    """The operator class that `run` names; files are relative to `base_dir` (the manifest's folder).

    Raises LoadError; an error inside the module that is loaded is told as its cause.
    """
    place, colon, name = run.rpartition(":")
    if not colon:
        if run not in BUILTINS:
            raise LoadError(
                f"run {run!r} is not a built-in operator; allowed: {', '.join(BUILTINS)}, or a class of your own as "
                "module:Class or path/file.py:Class"
            )
        return BUILTINS[run]
    if not place or not name.isidentifier():
        raise LoadError(f"run {run!r} does not name a class; write module:Class or path/file.py:Class")
    module = _from_file(base_dir / place, run) if place.endswith(".py") else _from_module(place, run)
    found = getattr(module, name, None)
    if not isinstance(found, type) or not issubclass(found, Operator):
        classes = sorted(key for key, value in vars(module).items() if _is_own_operator(value, module))
        raise LoadError(
            f"run {run!r}: {name!r} is not an operator class in {place} (a subclass of "
            f"streamtopology.jobs.operators.base.Operator); found there: {', '.join(classes) or 'none'}"
        )
    return found


def _is_own_operator(value: object, module: ModuleType) -> bool:
    return isinstance(value, type) and issubclass(value, Operator) and value.__module__ == module.__name__


def _from_module(name: str, run: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise LoadError(f"run {run!r}: module {name} needs {error.name}, which is not installed") from error
        raise LoadError(
            f"run {run!r}: there is no module {name}; a file is named with its ending, path/file.py:Class"
        ) from error
    except Exception as error:
        raise LoadError(f"run {run!r}: module {name} does not load: {type(error).__name__}: {error}") from error


def _from_file(path: Path, run: str) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise LoadError(f"run {run!r}: there is no file {path}")
    source = path.read_bytes()
    name = f"streamtopology_user_{path.stem}_{hashlib.sha256(str(path).encode() + source).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"run {run!r}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise LoadError(f"run {run!r}: {path} does not load: {type(error).__name__}: {error}") from error
    return module
