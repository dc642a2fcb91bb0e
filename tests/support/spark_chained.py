"""Aggregates of rows without duplicates, as Spark runs them over `spark_aggregates.tables`, and as operators of ours.

`python -m support.spark_chained FOLDER SEED...` runs Spark's own, and writes `SEED.json`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.spark_aggregates import record
from support.spark_duplicates import CASES as WITHOUT_DUPLICATES
from support.spark_duplicates import Case, without_duplicates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Our call -> Spark's.
CALLS: Mapping[str, str] = {"count()": "count(1)", "sum(n)": "sum(n)", "min(name)": "min(name)", "max(price)": "max(price)"}
BOUNDS = ("window_start", "window_end")


@dataclass(frozen=True)
class Chain:
    """What is grouped by `groups`, in windows of 10 s if they are among these, of the rows of `first` that pass `where`."""

    first: Case
    groups: tuple[str, ...]
    mode: str
    where: str = "true"

    @property
    def operators(self) -> list[dict[str, Any]]:
        calls = {f"a{place}": call for place, call in enumerate(CALLS)}
        keys = [name for name in self.groups if name not in (*BOUNDS, "at")] or list(self.groups[:1])
        options: dict[str, Any] = {"aggregates": calls, "nan": "keep", "groupBy": [n for n in self.groups if n not in keys]}
        closes = next((name for name in ("window_end", "at") if name in self.groups and self.first.watermark), None)
        options["emit"] = {"append": "closed", "update": "updates", "complete": "all"}[self.mode]
        run = "aggregate" if closes is None else "window-aggregate"
        grouping = {"policy": "mixed", "key": keys}
        timed = " AND window_end IS NOT NULL" if BOUNDS[0] in self.groups else ""  # as Spark's window() does
        return [
            self.first.operator | {"name": "first"},
            {"name": "some", "inputs": ["first"], "run": "filter", "with": {"where": f"{self.where}{timed}"}},
            {"name": "own", "inputs": ["some"], "grouping": grouping, "run": run}
            | {"with": options | ({} if closes is None else {"closes": closes})},
        ]


_SOME = "small > 0"
CHAINS: Mapping[str, Chain] = {
    "users and times, windows, append": Chain(WITHOUT_DUPLICATES["users and times"], ("user", *BOUNDS), "append"),
    "users and times, windows, update": Chain(WITHOUT_DUPLICATES["users and times"], ("user", *BOUNDS), "update", _SOME),
    "users and times, windows, complete": Chain(WITHOUT_DUPLICATES["users and times"], BOUNDS, "complete", _SOME),
    "users within, windows, append": Chain(WITHOUT_DUPLICATES["users within"], BOUNDS, "append", _SOME),
    "users within, windows, update": Chain(WITHOUT_DUPLICATES["users within"], ("user", *BOUNDS), "update"),
    "users within, names, update": Chain(WITHOUT_DUPLICATES["users within"], ("name",), "update", _SOME),
    "times and numbers, times, append": Chain(WITHOUT_DUPLICATES["times and numbers"], ("at", "day"), "append"),
    "users behind a watermark, days, complete": Chain(WITHOUT_DUPLICATES["users behind a watermark"], ("day",), "complete"),
    "floats, users, update": Chain(WITHOUT_DUPLICATES["floats"], ("user",), "update", _SOME),
    "floats, users, complete": Chain(WITHOUT_DUPLICATES["floats"], ("user", "flag"), "complete"),
}


def _aggregated(rows: DataFrame, chain: Chain) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    keys = [name for name in chain.groups if name not in BOUNDS]
    windowed = [F.window("at", "10 seconds").alias("w")] if BOUNDS[0] in chain.groups else []
    calls = [F.expr(call).alias(f"a{place}") for place, call in enumerate(CALLS.values())]
    found = without_duplicates(rows, chain.first).where(chain.where).groupBy(*keys, *windowed).agg(*calls)
    named = {"window_start": "w.start", "window_end": "w.end"}
    return found.select(*[named.get(name, name) for name in chain.groups], *[f"a{place}" for place in range(len(calls))])


if __name__ == "__main__":
    queries = {name: (chain.mode, partial(_aggregated, chain=chain)) for name, chain in CHAINS.items()}
    record(Path(sys.argv[1]), list(map(int, sys.argv[2:])), queries)
