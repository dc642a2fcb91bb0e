"""The rows beyond the five papers, in small: streams that drift, waits by hand, what each row says of its contenders."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from streamtopology.lab.reproduce.experiments import EXPERIMENTS, get
from streamtopology.lab.reproduce.experiments.beyond import BEYOND
from streamtopology.lab.reproduce.experiments.beyond.fish import waits
from streamtopology.lab.reproduce.experiments.beyond.routers import alone, by_batches
from streamtopology.lab.reproduce.experiments.beyond.streams import intervals_of
from streamtopology.lab.reproduce.experiments.beyond.switch import AT_ONCE, HOT_FIRST, PORTIONS, Operator, waited
from streamtopology.lab.reproduce.runner import Request, reproduce
from streamtopology.lab.reproduce.trace import KEYS
from streamtopology.routing.table.hashing import hash_int64

STREAM = {"keys": 500, "tuples": 4_000, "intervals": 3, "trace": ""}
SMALL = {
    "kip-speedup": {**STREAM, "instances": 4, "over_zipf": [1.0]},
    "fish-drift": {**STREAM, "instances": 4, "batch": 1_000},
    "prompt-batches": {**STREAM, "instances": 4, "over_zipf": [1.0]},
    "switch-waits": {"keys": 2_000, "instances": 4, "after": 3, "over_utilisation": [0.5], "over_state_by_load": [1.0]},
}


def test_keys_change_places_between_intervals_as_often_as_drift_says():
    first, *_, last = intervals_of(STREAM, 1.2, 0.0, seed=1)
    assert np.bincount(first).argmax() == np.bincount(last).argmax()
    tops = {int(np.bincount(keys).argmax()) for keys in intervals_of({**STREAM, "intervals": 6}, 1.2, 1.0, seed=1)}
    assert len(tops) > 3


def test_a_trace_takes_the_place_of_the_stream(tmp_path: Path):
    file = tmp_path / "trace.parquet"
    pq.write_table(pa.table({"time": [0, 1, 10, 11, 12], "key": list("abaab")}), file)
    parts = list(intervals_of({"intervals": 2, "trace": str(file)}, 1.0, 0.5, seed=1))
    assert [part.tolist() for part in parts] == [[0, 1], [0, 0, 1]]


def test_a_tuple_waits_for_those_before_it_at_its_instance():
    chosen = np.array([0, 0, 1, 0], np.int32)
    assert waits(chosen, 2, 0.5).tolist() == [1.0, 1.5, 1.0, 1.5]


@pytest.mark.parametrize("scheme", ["fish", "prompt", "w-choices", "fields"])
def test_routers_of_batches_use_all_instances_and_each_tuple_once(scheme: str):
    hashes = hash_int64(np.random.default_rng(1).integers(0, 300, 5_000))
    for route in (alone(scheme, 4, 1), by_batches(scheme, 4, 1_000, 3)):
        chosen = route(hashes)
        assert len(chosen) == 5_000
        assert set(chosen.tolist()) == {0, 1, 2, 3}


def test_hot_keys_first_moves_the_hottest_key_in_the_first_portion():
    parameters = get("switch-waits").parameters
    operator = Operator.drawn({**parameters, "keys": 2_000}, by_load=0.5, seed=1)
    portions = operator.portions_of(HOT_FIRST, 9)
    moving = np.flatnonzero(operator.before != operator.after)
    assert portions[moving[operator.shares[moving].argmax()]] == 0
    assert portions.max() <= 8
    assert operator.fullest(operator.after) < operator.fullest(operator.before)


def test_a_switch_of_one_portion_is_a_switch_at_once():
    parameters = {**get("switch-waits").parameters, "keys": 2_000, "utilisation": 0.5, "after": 3, "portion_bytes": 1e12}
    operator = Operator.drawn(parameters, by_load=0.5, seed=1)
    assert waited(operator, parameters, PORTIONS) == waited(operator, parameters, AT_ONCE)


@pytest.mark.parametrize("experiment", BEYOND, ids=lambda experiment: experiment.id)
def test_every_row_measures_what_its_claims_and_plots_need(experiment):
    assert EXPERIMENTS[experiment.id] is experiment
    shares: list[float] = []
    result = experiment.carry_out(SMALL[experiment.id], shares.append, runs=1)
    assert result == experiment.carry_out(SMALL[experiment.id], lambda _: None, runs=1) or experiment.id == "kip-speedup"
    assert all(plot.rows(result["series"]) for plot in experiment.plots)
    assert all(np.isfinite(value) for value in result["summary"].values())
    assert shares[-1] == pytest.approx(1)


def test_rows_of_keys_take_a_trace(tmp_path: Path):
    taking = [experiment.id for experiment in BEYOND if experiment.takes == KEYS]
    assert taking == ["kip-speedup", "fish-drift", "prompt-batches"]
    file, result_file = tmp_path / "trace.parquet", tmp_path / "result.json"
    random = np.random.default_rng(1)
    pq.write_table(pa.table({"time": np.arange(6_000), "key": random.zipf(1.5, 6_000) % 500}), file)
    given = {"intervals": 3, "instances": 4, "over_zipf": [1.0]}
    request = Request(json_file=result_file, trace=file, seeds=1, given=given)
    reproduce("prompt-batches", request, EXPERIMENTS, Console(file=io.StringIO()))
    result = json.loads(result_file.read_text())
    assert result["stand_in"] == f"trace {file}"
    stays, changes = (
        [
            row["throughput"]
            for row in result["series"]
            if (row["stream"], row["scheme"], row["routers"]) == (stream, "prompt", 1)
        ]
        for stream in ("stays", "changes")
    )
    assert stays == changes
