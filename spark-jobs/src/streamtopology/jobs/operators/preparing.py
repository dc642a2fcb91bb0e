"""Make and prepare an operator of a class; what the user's own code raises meanwhile names class, file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamtopology.jobs.operators import own_classes
from streamtopology.jobs.operators.base import Operator, OperatorError
from streamtopology.jobs.operators.casting import plain_type
from streamtopology.jobs.operators.idle_keys import with_time_of_writing
from streamtopology.jobs.operators.own_classes import check_fields, check_output, refuse_async
from streamtopology.jobs.users_code.ending import is_interrupt
from streamtopology.jobs.users_code.line import users_line

_PROJECT = "streamtopology."


def make(cls: type[Operator], options: Mapping[str, Any], base_dir: Path) -> Operator:
    """An operator with these options. Raises OperatorError and what `__init__` means for people: ValueError, ImportError."""
    with _naming(cls):
        made = cls(**options)
        made.base_dir = base_dir
        return made


def prepare(
    operator: Operator, inputs: Mapping[str, pa.Schema], key: tuple[str, ...], keys: Mapping[str, tuple[str, ...]]
) -> pa.Schema | None:
    """Prepare the operator and return the schema of its rows, in types that can be routed. Raises as `make`.

    keys: the key columns as each input calls them.
    """
    operator.renamed_keys = {alias: columns for alias, columns in keys.items() if columns != key}
    with _naming(type(operator)):
        refuse_async(operator)
        check_fields(operator)
        output = operator.prepare(inputs, key)
    if operator.ttl is not None and not operator.forgets_by_itself:
        operator.state = with_time_of_writing(operator)
    if _is_of_the_project(type(operator)):
        return output
    check_output(operator, output)
    return None if output is None else pa.schema([field.with_type(plain_type(field.type)) for field in output])


def check_methods(operator: Operator) -> None:
    """Raise OperatorError if a user's class lacks a method that the runtime calls, or cannot be called as it calls it."""
    if not _is_of_the_project(type(operator)):
        own_classes.check_methods(operator)


@contextmanager
def _naming(cls: type[Operator]) -> Iterator[None]:
    """Turn an error of a user's class into an OperatorError. One of a built-in class is the project's own, and stays."""
    try:
        yield
    except (ValueError, ImportError):
        raise
    except BaseException as error:
        if is_interrupt(error) or _is_of_the_project(cls):
            raise
        raise OperatorError(
            f"{cls.__name__} raised {type(error).__name__}: {error}{users_line(cls, error)}; correct the class, or raise "
            "OptionError there if an option or column does not fit"
        ) from error


def _is_of_the_project(cls: type[Operator]) -> bool:
    return cls.__module__.startswith(_PROJECT)
