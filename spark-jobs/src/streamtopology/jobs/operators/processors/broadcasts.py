"""Broadcast variables of a script in the code of its processors: their values go with the code."""

# The registry is PySpark's own, of what its workers have got.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.core import broadcast


class BroadcastValue:
    """Stands for a `Broadcast` of PySpark where its `value` is read."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @staticmethod
    def read(path: Path) -> BroadcastValue:
        """The value that PySpark has written to a file."""
        with path.open("rb") as file:
            return BroadcastValue(pickle.load(file))


@contextmanager
def broadcast_values(values: Mapping[int, BroadcastValue]) -> Iterator[None]:
    """What is unpickled meanwhile has these in the places of broadcast variables, by their numbers."""
    known: dict[int, Any] = broadcast._broadcastRegistry
    known.update(values)
    try:
        yield
    finally:
        for number in values:
            del known[number]
