"""Parquet files in the order of their numbers: what the demo, the benchmarks and the generators of streams write."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_FIRST_MTIME = 1_700_000_000  # seconds; files are a second apart, so that their order does not depend on the disk


def write_batches(
    target: Path, name: str, batches: int, row_groups: int, batch: Callable[[int], pa.Table], *, plain: bool = False
) -> list[Path]:
    """Write `NAME-000000.parquet` and so on, whole and in the order of their times, with `batch(number)` in it.

    `plain`: neither compressed nor by dictionaries, so that files of as many rows of numbers have the same size.
    """
    layout: Mapping[str, Any] = {"compression": "none", "use_dictionary": False} if plain else {}
    target.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for number in range(batches):
        table = batch(number)
        path = target / f"{name}-{number:06d}.parquet"
        draft = target / f".{path.name}"
        pq.write_table(table, draft, row_group_size=max(1, -(-table.num_rows // row_groups)), **layout)
        os.utime(draft, (_FIRST_MTIME + number, _FIRST_MTIME + number))
        os.replace(draft, path)
        written.append(path)
    return written
