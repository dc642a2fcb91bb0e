"""deduplicate, filter and an aggregate, one behind the other, emit, batch by batch, what Spark's own query emits."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.spark_aggregates import DDL, DELAY, PAUSE, as_texts, tables
from support.spark_chained import BOUNDS, CALLS, CHAINS, Chain
from support.stages import Flow, Loss, manifest

FIXTURE = Path(__file__).with_name("spark_chained.json")
TESTS = Path(__file__).parents[1]


def here(work: Path, chain: Chain, seed: int) -> list[list[list[str]]]:
    """The rows of each batch that has any, with attempts that are lost all along."""
    rng = random.Random(seed)
    watermarks = {"s": {"column": "at", "delay": f"{DELAY}s"}} if chain.first.watermark else {}
    ddl = f"{DDL}, {', '.join(f'{name} TIMESTAMP' for name in BOUNDS)}"
    flow = Flow(work, manifest(chain.operators, {"s": ddl}, watermarks=watermarks))
    flow.slots = (0,)  # one executor reads all rows, in their order, as Spark does
    for number, table in enumerate(tables(seed)):
        if number == PAUSE:
            flow.silence()
        if rng.random() < 0.5:
            flow.losses = [Loss(rng.randint(1, 3), rng.randint(0, 3))]
        flow.batch(s=with_bounds(table))
    flow.silence()
    kept: Any = flow.sinks["own"]
    columns = [*chain.groups, *(f"a{place}" for place in range(len(CALLS)))]
    batches: list[pa.Table] = [table.select(columns) for _, table in sorted(kept.batches.items())]
    return [as_texts(table) for table in batches if table.num_rows]


def with_bounds(table: pa.Table) -> pa.Table:
    """The rows, each with its window, or NULL."""
    starts = pc.floor_temporal(table["at"], 10, "second").cast(table.schema.field("at").type)
    for name, column in zip(BOUNDS, (starts, pc.add(starts, pa.scalar(timedelta(seconds=10)))), strict=True):
        table = table.append_column(name, column)
    return table


def on_spark(work: Path, *seeds: int) -> dict[int, Any]:
    """What Spark's queries emit, in a process of its own."""
    command = [sys.executable, "-m", "support.spark_chained", str(work), *map(str, seeds)]
    subprocess.run(command, cwd=TESTS, env=os.environ | {"PYTHONPATH": str(TESTS)}, check=True, capture_output=True)
    return {seed: json.loads((work / f"{seed}.json").read_text()) for seed in seeds}


def in_order(found: Any) -> list[list[list[str]]]:
    return [rows for _, rows in sorted(found["batches"].items(), key=lambda item: int(item[0]))]


@pytest.mark.parametrize("name", CHAINS)
def test_few_rows_give_what_spark_gave(name: str, tmp_path: Path) -> None:
    """What Spark gave is held against Spark below, in another level."""
    assert here(tmp_path, CHAINS[name], 1) == in_order(json.loads(FIXTURE.read_text())[name])


@pytest.mark.clusters
def test_many_rows_give_what_spark_gives(tmp_path: Path) -> None:
    """Without the file of what Spark gave, it is written."""
    spark = on_spark(tmp_path, 1, 10, 11, 12)
    if not FIXTURE.exists():
        FIXTURE.write_text(json.dumps(spark[1], separators=(",", ":")))
    assert json.loads(FIXTURE.read_text()) == spark[1], f"remove {FIXTURE}, and run this test again"
    for seed, found in spark.items():
        for name, chain in CHAINS.items():
            (tmp_path / f"{seed} {name}").mkdir()
            assert here(tmp_path / f"{seed} {name}", chain, seed) == in_order(found[name]), (seed, name)
