"""From a manifest's `run` to the operator class: a built-in name, `module:Class` or `path/file.py:Class`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from streamtopology.jobs.operators.aggregate import Aggregate
from streamtopology.jobs.operators.base import Operator
from streamtopology.jobs.operators.count import Count
from streamtopology.jobs.operators.deduplicate import Deduplicate
from streamtopology.jobs.operators.enrich import Enrich
from streamtopology.jobs.operators.quantiles import Quantiles
from streamtopology.jobs.operators.session_window import SessionWindow
from streamtopology.jobs.operators.sql import Filter, Map
from streamtopology.jobs.operators.top_k import TopK
from streamtopology.jobs.operators.window_aggregate import WindowAggregate
from streamtopology.jobs.operators.window_join import WindowJoin
from streamtopology.jobs.users_code.modules import LoadError, named_in

BUILTINS: Mapping[str, type[Operator]] = {
    "count": Count,
    "aggregate": Aggregate,
    "top-k": TopK,
    "quantiles": Quantiles,
    "map": Map,
    "filter": Filter,
    "enrich": Enrich,
    "window-aggregate": WindowAggregate,
    "session-window": SessionWindow,
    "window-join": WindowJoin,
    "deduplicate": Deduplicate,
}


def load(run: str, base_dir: Path) -> type[Operator]:
    """The operator class that `run` names; files are relative to `base_dir` (the manifest's folder).

    Raises LoadError; an error inside the loaded module is its cause.
    """
    if ":" not in run:
        if run not in BUILTINS:
            raise LoadError(
                f"run {run!r} is not a built-in operator; allowed: {', '.join(BUILTINS)}, or a class of your own, or a "
                "StatefulProcessor of PySpark, as module:Class or path/file.py:Class"
            )
        return BUILTINS[run]
    module, name, found = named_in(run, base_dir, "Class")
    if _is_processor(found):
        from streamtopology.jobs.operators.processors.operator import operator_of  # loads Spark's Python, as the class has

        return operator_of(found)
    if not isinstance(found, type) or not issubclass(found, Operator):
        classes = sorted(key for key, value in vars(module).items() if _is_own_operator(value, module))
        raise LoadError(
            f"run {run!r}: {name!r} is not an operator class in {run.rpartition(':')[0]} (a subclass of "
            f"streamtopology.api.Operator); found there: {', '.join(classes) or 'none'}"
        )
    return found


def _is_processor(value: object) -> TypeGuard[type[Any]]:
    spark = sys.modules.get("pyspark.sql.streaming.stateful_processor")
    return isinstance(value, type) and spark is not None and issubclass(value, spark.StatefulProcessor)


def _is_own_operator(value: object, module: ModuleType) -> bool:
    return isinstance(value, type) and issubclass(value, Operator) and value.__module__ == module.__name__
