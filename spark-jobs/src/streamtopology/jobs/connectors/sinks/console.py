"""A sink that prints the first rows of each batch, for people trying things out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from streamtopology.jobs.columnar.python_values import python_values
from streamtopology.jobs.connectors.sinks.base import staged_table

_CELL_WIDTH = 20


def shown_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column for people. Those that neither Python nor Arrow can spell are shown as their type."""
    try:
        return python_values(column)
    except (pa.ArrowException, LookupError, ValueError, TypeError):
        return [f"<{column.type}>" if scalar.is_valid else None for scalar in column]


def print_table(title: str, table: pa.Table, rows: int, out: TextIO, truncate: bool = True) -> None:
    """Print the first `rows` rows of a table below its title; characters that the terminal's encoding lacks are escaped."""

    def line(text: str) -> None:
        encoding = out.encoding or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=out)

    shown = table.slice(0, rows)
    columns = [
        [name, *(_cell(value, truncate) for value in shown_values(column))]
        for name, column in zip(table.column_names, shown.columns, strict=True)
    ]
    widths = [max(map(len, cells)) for cells in columns]
    line(title)
    for cells in zip(*columns, strict=True):
        line("  " + "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    if table.num_rows > shown.num_rows:
        line(f"  ... {table.num_rows - shown.num_rows} more")


def _cell(value: object, truncate: bool) -> str:
    text = "NULL" if value is None else str(value)
    return text[: _CELL_WIDTH - 3] + "..." if truncate and len(text) > _CELL_WIDTH else text


class ConsoleSink:
    """Prints `rows` rows of a batch to `out`. A batch is printed once per process: paper does not remember."""

    def __init__(self, name: str, out: TextIO, rows: int = 20, truncate: bool = True) -> None:
        self._name = name
        self._out = out
        self._rows = rows
        self._truncate = truncate
        self._last = -1

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        table = staged_table(files)
        if batch <= self._last or table is None:
            return
        self._last = batch
        print_table(f"{self._name}, batch {batch}: {table.num_rows} rows", table, self._rows, self._out, self._truncate)
        self._out.flush()

    def close(self) -> None:
        pass
