"""Queries without duplicates, as Spark runs them over the rows of `spark_aggregates.tables`, and as options of ours.

`python -m support.spark_duplicates FOLDER SEED...` runs Spark's own, and writes `SEED.json`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.spark_aggregates import DELAY, record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Case:
    """dropDuplicates of the columns `key`, or dropDuplicatesWithinWatermark."""

    key: tuple[str, ...]
    watermark: bool = True
    within: bool = False
    mode: str = "append"

    @property
    def operator(self) -> dict[str, Any]:
        options = ({"time": "at"} if self.watermark else {}) | ({"within": f"{DELAY}s"} if self.within else {})
        grouping = {"policy": "mixed", "key": list(self.key)}
        return {"name": "own", "inputs": ["s"], "grouping": grouping, "run": "deduplicate", "with": options}


CASES: Mapping[str, Case] = {
    "users for ever": Case(("user",), watermark=False),
    "users for ever, update": Case(("user",), watermark=False, mode="update"),
    "users behind a watermark": Case(("user",)),
    "users and times": Case(("user", "at")),
    "times and numbers": Case(("at", "small", "x")),
    "users within": Case(("user",), within=True),
    "users within, update": Case(("user",), within=True, mode="update"),
    "users and times within": Case(("at", "user"), within=True),
    "floats": Case(("x", "f"), watermark=False),
    "many columns": Case(("flag", "raw", "day", "name"), watermark=False),
    "decimals within": Case(("user", "flag", "price"), within=True),
}


def without_duplicates(rows: DataFrame, case: Case) -> DataFrame:
    if case.watermark:
        rows = rows.withWatermark("at", f"{DELAY} seconds")
    return (rows.dropDuplicatesWithinWatermark if case.within else rows.dropDuplicates)(list(case.key))


if __name__ == "__main__":
    queries = {name: (case.mode, partial(without_duplicates, case=case)) for name, case in CASES.items()}
    record(Path(sys.argv[1]), list(map(int, sys.argv[2:])), queries)
