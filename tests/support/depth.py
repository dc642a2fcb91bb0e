"""How many examples a property plays: some in the gate, all in `make test-long`.

A property that plays many examples finds most faults with its first ones. The gate takes those, from the seed in
pyproject.toml; the long level takes the full count, which begins with the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

# The mark of a test that the long level plays again, with more.
DEEP = "deep"

_Test = TypeVar("_Test", bound=Callable[..., object])

# True in `make test-long`; set by tests/conftest.py, before any test is imported.
is_long = False


def examples(gate: int, long: int) -> int:
    return long if is_long else gate


def deep(gate: int, long: int, **others: Any) -> Callable[[_Test], _Test]:
    """Decorate a property in place of `settings(max_examples=...)`. `others`: more settings."""

    def decorated(test: _Test) -> _Test:
        return pytest.mark.deep(settings(max_examples=examples(gate, long), **others)(test))

    return decorated
