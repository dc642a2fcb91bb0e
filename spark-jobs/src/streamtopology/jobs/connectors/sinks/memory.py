"""A sink in the driver's memory, for tests and notebooks: `memory_rows("counts")` is everything published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.connectors.sinks.base import staged_table

_published: dict[str, dict[int, pa.Table]] = {}


class MemorySink:
    """Keeps the batches of sink `name` for the life of the process; opening it begins with none."""

    def __init__(self, name: str) -> None:
        self._batches = _published[name] = {}

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        table = staged_table(files)
        if table is not None and batch not in self._batches:
            self._batches[batch] = table

    def close(self) -> None:
        pass


def memory_rows(name: str) -> pa.Table:
    """All rows published to memory sink `name` by this process, batch by batch; no columns before the first batch.

    Raises KeyError when no sink of that name was opened.
    """
    batches = _published[name]
    return pa.concat_tables(batches[number] for number in sorted(batches)) if batches else pa.table({})
