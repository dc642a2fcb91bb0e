"""A sink that prints the first rows of each batch, for people trying things out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from streamtopology.jobs.columnar.python_values import python_values
from streamtopology.jobs.connectors.sinks.base import staged_table

_CELL_WIDTH = 20


class ConsoleSink:
    """Prints `rows` rows of a batch to `out`. A batch is printed once per process: paper does not remember."""

    def __init__(self, name: str, out: TextIO, rows: int = 20, truncate: bool = True) -> None:
        self._name = name
        self._out = out
        self._rows = rows
        self._truncate = truncate
        self._last = -1

    def publish(self, batch: int, files: Sequence[Path]) -> None:
        table = staged_table(files)
        if batch <= self._last or table is None:
            return
        self._last = batch
        shown = table.slice(0, self._rows)
        columns = [
            [name, *map(self._cell, python_values(column))]
            for name, column in zip(table.column_names, shown.columns, strict=True)
        ]
        widths = [max(map(len, cells)) for cells in columns]
        print(f"{self._name}, batch {batch}: {table.num_rows} rows", file=self._out)
        for line in zip(*columns, strict=True):
            print(
                "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip(),
                file=self._out,
            )
        if table.num_rows > shown.num_rows:
            print(f"  ... {table.num_rows - shown.num_rows} more", file=self._out)
        self._out.flush()

    def close(self) -> None:
        pass

    def _cell(self, value: object) -> str:
        text = "NULL" if value is None else str(value)
        return text[: _CELL_WIDTH - 3] + "..." if self._truncate and len(text) > _CELL_WIDTH else text
