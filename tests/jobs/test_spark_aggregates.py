"""aggregate, window-aggregate and session-window emit, batch by batch, what Spark's own query emits for the same rows."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.spark_aggregates import CASES, DDL, DELAY, GATING, PAUSE, Batches, Case, as_texts, below, tables
from support.stages import SLOTS, Flow, Loss, manifest, random_table

FIXTURE = Path(__file__).with_name("spark_aggregates.json")
TESTS = Path(__file__).parents[1]


def here(work: Path, case: Case, seed: int, policy: str = "mixed") -> tuple[list[str], list[list[list[str]]]]:
    """(types, the rows of each batch that has any), with attempts that are lost all along, and keys that move."""
    rng = random.Random(seed)
    given = [below(table, case.window) for table in tables(seed)]
    operator = case.operator | {"grouping": case.operator["grouping"] | {"policy": policy}}
    ddl = DDL if case.window is None else f"{DDL}, window_start TIMESTAMP, window_end TIMESTAMP"
    watermarks = {"s": {"column": "at", "delay": f"{DELAY}s"}} if case.watermark else {}
    flow = Flow(work, manifest([operator], {"s": ddl}, watermarks=watermarks))
    for number, table in enumerate(given):
        if number == PAUSE:
            flow.silence()
        if rng.random() < 0.5:
            flow.losses = [Loss(rng.randint(1, 2), rng.randint(0, 3))]
        flow.batch(s=table)
        if policy == "mixed":
            flow.router.reroute({"own": random_table(np.random.default_rng(number), SLOTS)})
    flow.silence()
    kept: Any = flow.sinks["own"]
    batches: dict[int, pa.Table] = {n: table.select(_columns(case)) for n, table in sorted(kept.batches.items())}
    types = [str(kind).replace("<item:", "<element:") for kind in next(iter(batches.values())).schema.types]
    return types, [as_texts(table) for table in batches.values() if table.num_rows]


def _columns(case: Case) -> list[str]:
    return [*case.groups, *case.operator["with"]["aggregates"]]


def on_spark(work: Path, *seeds: int) -> dict[int, Any]:
    """What Spark's queries emit, in a process of its own."""
    command = [sys.executable, "-m", "support.spark_aggregates", str(work), *map(str, seeds)]
    subprocess.run(command, cwd=TESTS, env=os.environ | {"PYTHONPATH": str(TESTS)}, check=True, capture_output=True)
    return {seed: json.loads((work / f"{seed}.json").read_text()) for seed in seeds}


def assert_equal(expected: Any, found: tuple[list[str], list[list[list[str]]]]) -> None:
    types, batches = found
    assert types == expected["types"]
    wanted: Batches = {int(number): rows for number, rows in expected["batches"].items()}
    for number, (mine, theirs) in enumerate(zip(batches, (wanted[n] for n in sorted(wanted)), strict=False)):
        only_here = [row for row in mine if row not in theirs]
        only_on_spark = [row for row in theirs if row not in mine]
        assert (number, only_here, only_on_spark) == (number, [], [])
        assert len(mine) == len(theirs)
    assert len(batches) == len(wanted)


@pytest.mark.parametrize("name", GATING)
def test_few_rows_give_what_spark_gave(name: str, tmp_path: Path) -> None:
    """What Spark gave is held against Spark below, in another level."""
    assert_equal(json.loads(FIXTURE.read_text())[name], here(tmp_path, CASES[name], 1))


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("windows alone, complete", "shuffle"),
        ("sliding, update", "partial-key"),
        ("event times, append", "shuffle"),
        ("sessions", "shuffle"),
    ],
)
def test_keys_that_are_split_over_instances_give_the_same(name: str, policy: str, tmp_path: Path) -> None:
    """Parts of a group meet in the batch that they come in."""
    whole, split = (here(folder(tmp_path, each), CASES[name], 1, each) for each in ("mixed", policy))
    assert split == whole


def folder(work: Path, *names: str) -> Path:
    made = work.joinpath(*names)
    made.mkdir(parents=True)
    return made


@pytest.mark.clusters
def test_what_spark_gave_is_what_it_gives(tmp_path: Path) -> None:
    """Without the file of what Spark gave, it is written."""
    spark = on_spark(tmp_path, 1)[1]
    if not FIXTURE.exists():
        FIXTURE.write_text(json.dumps({name: spark[name] for name in GATING}, separators=(",", ":")))
    kept = json.loads(FIXTURE.read_text())
    assert kept == {name: spark[name] for name in GATING}, f"remove {FIXTURE}, and run this test again"


@pytest.mark.clusters
@pytest.mark.parametrize("seed", [1, 10])
def test_many_rows_give_what_spark_gives(seed: int, tmp_path: Path) -> None:
    found = on_spark(tmp_path, seed)[seed]
    for name, case in CASES.items():
        for policy in ("mixed", "partial-key"):
            assert_equal(found[name], here(folder(tmp_path, policy, name), case, seed, policy))
