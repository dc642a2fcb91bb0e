"""Edits of a manifest between two runs: after some, state would stand for something else, and they are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.stages import SLOTS, Flow, Routes, manifest, random_table

from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.operators.window_join import WindowJoin
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.rerouting.router import InProcessRouter
from streamtopology.jobs.runtime.topology_run import new_history
from streamtopology.jobs.state import RowState, RowStateSchema, StateError
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.topology import Rebalance

TIMES = {"column": "t"}


def windows(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {"time": "t", "aggregates": {"n": "count()"}, **options}
    grouping = {"policy": "mixed", "key": "k"}
    operator = {"name": "w", "inputs": ["s"], "grouping": grouping, "run": "window-aggregate", "with": given}
    return manifest([operator], {"s": "k BIGINT, t DOUBLE"}, watermarks={"s": TIMES})


def rows(*times: float) -> pa.Table:
    return pa.table({"k": pa.array([1] * len(times), pa.int64()), "t": pa.array(times, pa.float64())})


@pytest.mark.parametrize(
    ("before", "now", "sentence"),
    [
        ({"size": "10s"}, {"size": "5s"}, "windows of 10s in it, and for the end of windows of 5s now"),
        ({"size": "5s"}, {"size": "10s"}, "windows of 5s in it, and for the end of windows of 10s now"),
        ({"size": "10s"}, {"size": "10s", "slide": "5s"}, "in it, and for the end of windows of 10s that slide by 5s now"),
    ],
)
def test_windows_of_another_size_are_not_mixed(
    tmp_path: Path, before: dict[str, Any], now: dict[str, Any], sentence: str
) -> None:
    """Windows that begin at one time were one: the first half's row had the rows of both halves."""
    flow = Flow(tmp_path, windows(before))
    flow.batch(s=rows(0, 1, 6, 7, 8))
    flow.start(windows(now))
    with pytest.raises(TopologyFailed, match=sentence):
        flow.batch(s=rows(2, 3))
    flow.start(windows(before))
    flow.batch(s=rows(2, 3))
    flow.drain()
    assert sum(flow.published("w")["n"].to_pylist()) == 7, "after an edit back the topology resumes"


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        ({"grouping": {"policy": "mixed", "key": "t"}}, "do not fit state of (t "),
        ({"with": {"time": "t", "size": "9s", "aggregates": {"n": "count()"}}}, "for the end of windows of 9s now"),
        ({"with": {"time": "t", "size": "10s", "aggregates": {"n": "max(k)"}}}, "do not fit state of (k "),
        ({"name": "another"}, "operator 'w' is no longer in the manifest"),
    ],
)
def test_checkpoint_of_another_version_is_refused_before_spark_starts(
    tmp_path: Path, now: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = windows({"size": "10s"})
    Flow(tmp_path, given, checkpoint=str(tmp_path / "work/flow/checkpoint")).batch(s=rows(0, 1))
    pq.write_table(rows(2), tmp_path / "a.parquet")
    given["spec"]["sources"][0]["options"]["path"] = str(tmp_path / "*.parquet")
    file, work_dir = tmp_path / "flow.yaml", ["--work-dir", str(tmp_path / "work")]
    file.write_text(yaml.safe_dump(given))
    assert main(["validate", str(file), *work_dir]) == 0
    given["spec"]["operators"][0] |= now
    given["spec"]["sinks"] = []
    file.write_text(yaml.safe_dump(given))
    capsys.readouterr()
    for command in ("validate", "run"):
        assert main([command, str(file), *work_dir]) == 1
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "work/cluster").exists()
    assert main(["validate", str(file)]) == 0, "another work folder has no checkpoint"


def test_key_columns_in_another_order_are_refused(tmp_path: Path) -> None:
    """Deltas say by hashes of keys which ones have left: with those of another order, others were forgotten."""

    def counting(*key: str) -> dict[str, Any]:
        operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": list(key)}, "run": "count"}
        return manifest([operator], {"s": "a BIGINT, b BIGINT"})

    flow = Flow(tmp_path, counting("a", "b"))
    flow.batch(s=pa.table({"a": list(range(200)), "b": [9] * 200}))
    assert isinstance(flow.router, Routes)
    flow.router.reroute({"n": random_table(np.random.default_rng(1), SLOTS, hash_int64(np.arange(9)))})
    flow.batch(s=pa.table({"a": [1], "b": [9]}))
    flow.start(counting("b", "a"))
    with pytest.raises(TopologyFailed, match=r"rows of \(a int64, b int64, .*do not fit state of \(b int64, a int64, "):
        flow.batch(s=pa.table({"a": [1], "b": [9]}))
    flow.start(counting("a", "b"))
    flow.batch(s=pa.table({"a": [1], "b": [9]}))
    assert sorted(row["count"] for row in flow.state("n")) == [1] * 199 + [3]


@pytest.mark.parametrize(("before", "now"), [(["u"], ["i"]), (["u", "i"], ["i", "u"])])
def test_join_by_another_key_is_refused(tmp_path: Path, before: list[str], now: list[str]) -> None:
    """Kept tuples have a key that is only numbered: a user met an item of the same number."""

    def joining(key: list[str]) -> dict[str, Any]:
        operator = {"name": "j", "inputs": ["a", "b"], "grouping": {"policy": "mixed", "key": key}, "run": "window-join"}
        with_options = operator | {"with": {"time": "t", "size": "100s", "select": ["a.u", "b.i", "b.u AS other"]}}
        columns = "u BIGINT, i BIGINT, t DOUBLE"
        return manifest([with_options], {"a": columns, "b": columns}, watermarks={"a": TIMES, "b": TIMES})

    flow = Flow(tmp_path, joining(before))
    flow.batch(a=pa.table({"u": [1], "i": [7], "t": [1.0]}))
    flow.start(joining(now))
    with pytest.raises(TopologyFailed, match=f"rows by {', '.join(before)} in it, and for .* rows by {', '.join(now)} now"):
        flow.batch(b=pa.table({"u": [5, 1, 7], "i": [1, 7, 1], "t": [2.0, 2.0, 2.0]}))


def test_kept_rows_of_before_keys_were_named_take_their_names() -> None:
    columns = pa.schema([("u", pa.int64()), ("t", pa.int64())])

    def state(*key: str) -> RowState:
        join = WindowJoin(time="t", size="9s")
        join.prepare({"a": columns, "b": columns}, key)
        assert isinstance(join.state, RowStateSchema)
        return RowState(join.state)

    named = state("u").schema
    plain = pa.schema([column.remove_metadata() for column in named.inputs["a"]])
    old = RowState(RowStateSchema({"a": plain}, named.key, named.time))
    old.append("a", pa.table([[1], [2], [1], [2], [0]], schema=plain))
    taken = state("u")
    taken.apply(old.delta())
    with pytest.raises(StateError, match="_join_at stands for the time of rows by u in it, and for the time of rows by t now"):
        state("t").apply(taken.snapshot())


def test_migration_of_an_edited_manifest_is_taken_up(tmp_path: Path) -> None:
    """It changes nothing in what runs, but how later plans move state."""
    flow = Flow(tmp_path, windows({"size": "10s"}))
    flow.batch(s=rows(0))
    edited = windows({"size": "10s"})
    edited["spec"]["migration"] = {"portion": "4Mi"}
    for _ in range(2):
        flow.start(edited)
        assert flow.router.ready().topology.migration.portion_bytes == 4 * 2**20
        flow.batch(s=rows(1))
    assert flow.last.epoch == 2


def test_settings_of_an_edit_that_is_refused_half_way_are_not_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controllers: list[Controller] = []

    def router(plan: ExecutionPlan, checkpoint: Checkpoint) -> InProcessRouter:
        controllers.append(Controller(plan.topology.rebalance, lambda: 0.0))
        return InProcessRouter(plan, checkpoint, controllers[-1], new_history(plan.topology), dict, lambda: 0.0)

    flow = Flow(tmp_path, windows({"size": "10s"}), router=router)
    running, configured = flow.router, list[Rebalance]()
    assert isinstance(running, InProcessRouter)
    monkeypatch.setattr(controllers[-1], "configure", configured.append)
    edited = replace(running.topology, rebalance=replace(running.topology.rebalance, tolerance=0.5))

    def full(number: int, text: str) -> None:
        raise CheckpointError("the disk is full")

    with monkeypatch.context() as failing:
        failing.setattr(flow.checkpoint, "write_epoch", full)
        with pytest.raises(CheckpointError, match="the disk is full"):
            running.apply(edited, ())
    assert configured[-1] == running.topology.rebalance
    running.apply(edited, ())
    assert configured[-1] == edited.rebalance
