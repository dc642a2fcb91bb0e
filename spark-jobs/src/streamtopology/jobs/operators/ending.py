"""An operator that ends the process where tuples are processed is at fault, and no worker dies of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamtopology.jobs.operators.base import OperatorError
from streamtopology.jobs.users_code.ending import is_interrupt, named


@contextmanager
def refused_where_tuples_are_processed(operator: object) -> Iterator[None]:
    """Turn what ends a process into an OperatorError of the class; a Ctrl-C stays."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise OperatorError(
            f"{type(operator).__name__} ends the process, by {named(error)} or the like; raise BadTuple for tuples that "
            "cannot be processed"
        ) from error
