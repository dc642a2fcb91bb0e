"""Streams of rows and the aggregates that Spark makes of them, batch by batch: what ours are compared with.

`python -m support.spark_aggregates FOLDER SEED...` runs Spark's own queries over `tables(SEED)`, and writes `SEED.json`.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DELAY = 5
# After so many batches no rows come for a while, and a batch without rows runs if one is due.
PAUSE = 3
SCHEMA = pa.schema(
    {
        "user": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "n": pa.int64(),
        "small": pa.int16(),
        "x": pa.float64(),
        "f": pa.float32(),
        "day": pa.date32(),
        "seen": pa.timestamp("us", "UTC"),
        "name": pa.string(),
        "raw": pa.binary(),
        "flag": pa.bool_(),
        "price": pa.decimal128(10, 2),
        "rate": pa.decimal128(20, 5),
        "big": pa.decimal128(38, 3),
    }
)
DDL = (
    "user STRING, at TIMESTAMP, n BIGINT, small SMALLINT, x DOUBLE, f FLOAT, day DATE, seen TIMESTAMP, name STRING, "
    "raw BINARY, flag BOOLEAN, price DECIMAL(10, 2), rate DECIMAL(20, 5), big DECIMAL(38, 3)"
)
# Our call -> Spark's.
CALLS: Mapping[str, str] = {
    "count()": "count(1)",
    "count(x)": "count(x)",
    "sum(n)": "sum(n)",
    "mean(n)": "avg(n)",
    "min(n)": "min(n)",
    "max(n)": "max(n)",
    "sum(small)": "sum(small)",
    "max(small)": "max(small)",
    "sum(x)": "sum(x)",
    "mean(x)": "avg(x)",
    "min(x)": "min(x)",
    "max(x)": "max(x)",
    "sum(f)": "sum(f)",
    "min(f)": "min(f)",
    "max(f)": "max(f)",
    "min(day)": "min(day)",
    "max(seen)": "max(seen)",
    "count(name)": "count(name)",
    "min(name)": "min(name)",
    "max(name)": "max(name)",
    "max(raw)": "max(raw)",
    "min(flag)": "min(flag)",
    "max(flag)": "max(flag)",
    "sum(price)": "sum(price)",
    "mean(price)": "avg(price)",
    "max(price)": "max(price)",
    "sum(rate)": "sum(rate)",
    "mean(rate)": "avg(rate)",
    "min(rate)": "min(rate)",
    "sum(big)": "sum(big)",
    "mean(big)": "avg(big)",
    "max(big)": "max(big)",
    "stddev(n)": "stddev(n)",
    "variance(x)": "variance(x)",
    "var_pop(small)": "var_pop(small)",
    "stddev_pop(price)": "stddev_pop(price)",
    "collect_list(name)": "collect_list(name)",
    "collect_set(day)": "collect_set(day)",
}
# Result columns whose last digits depend on the order of the tuples. Eleven are shown: half the difference of two prices has
# as many, and would be rounded up or down if fewer were.
_ROUNDED = {f"a{place}" for place, call in enumerate(CALLS) if call.startswith(("stddev", "var"))}
# Batch -> its rows, each as texts, sorted; batches without rows are left out.
Batches = dict[int, list[list[str]]]


@dataclass(frozen=True)
class Case:
    """A query in one of Spark's modes. groups: the columns of its groups, key first as ours needs it.

    window: size and slide, whose bounds ours gets as columns. options: of our operator. gap: Spark's, of session_window().
    """

    mode: str
    groups: tuple[str, ...]
    window: tuple[int, int] | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    keys: int = 1
    watermark: bool = True
    gap: str = ""

    @property
    def operator(self) -> dict[str, Any]:
        emits = {"append": "closed", "update": "updates", "complete": "all"}
        calls = {f"a{place}": call for place, call in enumerate(CALLS)}
        options = {"aggregates": calls, "emit": emits[self.mode], "nan": "keep", **self.options}
        if not {"size", "time"} & set(self.options):
            options["groupBy"] = list(self.groups[self.keys :])
        grouping = {"policy": "mixed", "key": list(self.groups[: self.keys])}
        run = "session-window" if self.gap else "window-aggregate" if {"closes", "size"} & set(self.options) else "aggregate"
        return {"name": "own", "inputs": ["s"], "grouping": grouping, "run": run, "with": options}


def _cases() -> dict[str, Case]:
    made: dict[str, Case] = {}
    bounds, ends = ("window_start", "window_end"), {"closes": "window_end"}
    for mode in ("append", "update", "complete"):
        made[f"tumbling, {mode}"] = Case(mode, ("user", *bounds), (10, 10), ends)
        made[f"sliding, {mode}"] = Case(mode, ("user", *bounds), (10, 4), ends)
        made[f"windows alone, {mode}"] = Case(mode, bounds, (10, 10), ends, keys=2)
        made[f"windows made here, {mode}"] = Case(mode, ("user", *bounds), None, {"time": "at", "size": "10s", "slide": "4s"})
        made[f"event times, {mode}"] = Case(mode, ("user", "at"), None, {"closes": "at"})
        made[f"event times and days, {mode}"] = Case(mode, ("at", "user", "day"), None, {"closes": "at"})
    sessions, gap = ("session_start", "session_end"), {"time": "at", "gap": "3s"}
    made["sessions"] = Case("append", ("user", *sessions), None, gap, gap="'3 seconds'")
    by_day = gap | {"groupBy": ["day"]}
    made["sessions of users and days"] = Case("append", ("user", "day", *sessions), None, by_day, gap="'3 seconds'")
    own = {"time": "at", "gapColumn": "small"}
    made["sessions with gaps of their own"] = Case("append", ("user", *sessions), None, own, gap="small || ' seconds'")
    for mode in ("update", "complete"):
        made[f"users, {mode}"] = Case(mode, ("user",), watermark=False)
        made[f"users behind a watermark, {mode}"] = Case(mode, ("user",))
        made[f"many columns, {mode}"] = Case(mode, ("user", "x", "day", "f"), watermark=False)
    return made


CASES = _cases()
# Those of which the expected results of a few rows are kept.
GATING = (
    "tumbling, append",
    "sliding, update",
    "windows alone, complete",
    "windows made here, update",
    "event times, append",
    "event times and days, update",
    "sessions of users and days",
    "sessions with gaps of their own",
    "users, complete",
    "many columns, update",
)


def tables(seed: int) -> list[pa.Table]:
    """The rows of each batch: some late, one batch without rows, one whose rows have no event time."""
    rng = random.Random(seed)
    count, rows = (6, 10) if seed < 10 else (10, 200)
    users = [None, "", "a"] if seed < 10 else [None, *map(str, range(20))]
    made: list[pa.Table] = []
    for number in range(count):
        now = 10 * (number + 100)  # Spark takes what is before 1970 for late from the start
        some = 0 if number == PAUSE + 1 else rows
        at = [None if number == PAUSE else _time(rng, now) for _ in range(some)]
        columns: list[list[Any]] = [
            [rng.choice(users) for _ in at],
            at,
            [rng.choice([None, rng.randint(-9, 9), rng.randint(-(2**50), 2**50)]) for _ in at],
            [rng.choice([None, rng.randint(-9, 9)]) for _ in at],
            [rng.choice([None, float("nan"), float("inf"), *[rng.randint(-9, 9) / 4] * 5]) for _ in at],
            [rng.choice([None, float("nan"), rng.randint(-99, 99) / 4]) for _ in at],
            [rng.choice([None, date(2026, 1, rng.randint(1, 3))]) for _ in at],
            [rng.choice([None, _time(rng, now)]) for _ in at],
            [rng.choice([None, "", "a", "ä", "z", "aa", "\U0001f600", "\uffff", str(rng.randint(0, 99))]) for _ in at],
            [rng.choice([None, b"", bytes([rng.randint(0, 255)])]) for _ in at],
            [rng.choice([None, True, False]) for _ in at],
            *(
                [_decimal(rng, digits, kind.type.scale) for _ in at]
                for kind, digits in zip(list(SCHEMA)[-3:], (10, 20, 33), strict=True)
            ),
        ]
        arrays = [pa.array(column, kind.type, from_pandas=False) for column, kind in zip(columns, SCHEMA, strict=True)]
        made.append(pa.Table.from_arrays(arrays, schema=SCHEMA))
    return made


def _time(rng: random.Random, now: int) -> datetime | None:
    """Now and then none; of few different microseconds, since groups are made by it."""
    if rng.random() < 0.1:
        return None
    return datetime.fromtimestamp(rng.randint(now - 20, now + 9), UTC) + timedelta(microseconds=rng.choice([0, 0, 400, 600]))


def _decimal(rng: random.Random, digits: int, scale: int) -> Decimal | None:
    most = 10 ** rng.randint(1, digits) - 1
    return rng.choice([None, Decimal(rng.randint(-most, most)).scaleb(-scale, Context(prec=40))])


def below(table: pa.Table, window: tuple[int, int] | None) -> pa.Table:
    """What comes to ours: each row once for each of its windows, whose bounds are columns."""
    if window is None:
        return table
    size, slide = window
    places: list[int] = []
    starts: list[datetime] = []
    for place, at in enumerate(table["at"].to_pylist()):
        if at is None:
            continue
        last = int(at.timestamp()) // slide * slide
        found = range(last, int(at.timestamp()) - size, -slide)
        places += [place] * len(found)
        starts += [datetime.fromtimestamp(start, UTC) for start in found]
    kind = SCHEMA.field("at").type
    rows = table.take(pa.array(places, pa.int64())).append_column("window_start", pa.array(starts, kind))
    return rows.append_column("window_end", pa.array([start + timedelta(seconds=size) for start in starts], kind))


def as_texts(table: pa.Table) -> list[list[str]]:
    columns = [
        [f"{value:.11g}" if name in _ROUNDED and value is not None else _text(value) for value in table[name].to_pylist()]
        for name in table.column_names
    ]
    return sorted(map(list, zip(*columns, strict=True)))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value + 0.0)  # -0.0 is 0.0
    if isinstance(value, list):  # in any order
        return str(sorted(map(_text, value)))
    return str(value.astimezone(UTC)) if isinstance(value, datetime) else str(value)


def on_spark(
    spark: SparkSession, folder: Path, seed: int, queries: Mapping[str, tuple[str, Callable[[DataFrame], DataFrame]]]
) -> dict[str, Any]:
    """Batches by query, each in a mode and of the rows of `tables`, and the types of the columns."""
    files = folder / f"files-{seed}"
    first, later = tables(seed)[:PAUSE], tables(seed)[PAUSE:]
    found: dict[str, Any] = {name: {"types": [], "batches": {}} for name in queries}
    for number, part in enumerate((first, later)):
        files.mkdir(exist_ok=True)
        for place, table in enumerate(part):
            turn = number * PAUSE + place
            pq.write_table(table, files / f"{turn}.parquet")
            os.utime(files / f"{turn}.parquet", (turn, turn))  # Spark takes the oldest first
        checkpoints = folder / f"checkpoint-{seed}"
        for running in [_started(spark, files, checkpoints / name, *queries[name], found[name]) for name in queries]:
            running.awaitTermination()
    return found


def _started(
    spark: SparkSession,
    files: Path,
    checkpoint: Path,
    mode: str,
    query: Callable[[DataFrame], DataFrame],
    found: dict[str, Any],
) -> StreamingQuery:
    def keep(frame: DataFrame, batch: int) -> None:
        table = frame.toArrow()
        found["types"] = [str(kind) for kind in table.schema.types]
        if table.num_rows:
            found["batches"][batch] = as_texts(table)

    rows = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(files))
    return (
        query(rows)
        .writeStream.outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(keep)
        .trigger(availableNow=True)
        .start()
    )


def _aggregated(rows: DataFrame, case: Case) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    if case.watermark:
        rows = rows.withWatermark("at", f"{DELAY} seconds")
    size, slide = case.window or (10, 4)
    keys = [name for name in case.groups if not name.startswith(("window", "session"))]
    window = F.session_window("at", F.expr(case.gap)) if case.gap else F.window("at", f"{size} seconds", f"{slide} seconds")
    windowed = [window.alias("w")] if len(keys) < len(case.groups) else []
    calls = [F.expr(call).alias(f"a{place}") for place, call in enumerate(CALLS.values())]
    bounds = ["w.start", "w.end"] if windowed else []
    return rows.groupBy(*keys, *windowed).agg(*calls).select(*keys, *bounds, *[f"a{place}" for place in range(len(calls))])


def record(folder: Path, seeds: Sequence[int], queries: Mapping[str, tuple[str, Callable[[DataFrame], DataFrame]]]) -> None:
    """Write `SEED.json` for each seed."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    for name, value in {"session.timeZone": "UTC", "shuffle.partitions": "2"}.items():
        builder = builder.config(f"spark.sql.{name}", value)
    spark = builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    for seed in seeds:
        (folder / f"{seed}.json").write_text(json.dumps(on_spark(spark, folder, seed, queries)))
    spark.stop()


if __name__ == "__main__":
    cases = {name: (case.mode, partial(_aggregated, case=case)) for name, case in CASES.items()}
    record(Path(sys.argv[1]), list(map(int, sys.argv[2:])), cases)
