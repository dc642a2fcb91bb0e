"""`reproduce --trace`: real keys, or pairs of keys, with times, in place of an experiment's stand-in."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.reproduce.experiment import ExperimentError
from streamtopology.lab.reproduce.experiments import EXPERIMENTS, get
from streamtopology.lab.reproduce.experiments.locality.online import weeks_of
from streamtopology.lab.reproduce.experiments.posg.workloads import mentions
from streamtopology.lab.reproduce.runner import Request, reproduce
from streamtopology.lab.reproduce.trace import KEYS, PAIRS, kind_of, read_trace


def written(folder: Path, **columns: object) -> Path:
    file = folder / "trace.parquet"
    pq.write_table(pa.table(columns), file)
    return file


def test_a_trace_is_read_in_the_order_of_its_times(tmp_path: Path) -> None:
    file = written(tmp_path, time=[3.0, 1.0, 2.0], key=["b", "a", "b"], second_key=[7, 8, 9])
    trace = read_trace(str(file), PAIRS)
    assert trace.times.tolist() == [1, 2, 3]
    assert len(set(trace.keys.tolist()[1:])) == 1
    assert trace.keys[0] != trace.keys[1]
    assert len(set(trace.second_keys.tolist())) == 3
    assert kind_of(file) == PAIRS


def test_timestamps_and_csv_are_read_and_rows_without_a_key_left_out(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("time,key\n2026-11-23T12:00:02Z,x\n2026-11-23T12:00:01Z,\n2026-11-23T12:00:00Z,y\n")
    trace = read_trace(str(file), KEYS)
    assert (len(trace.keys), trace.n_keys, kind_of(file)) == (3, 3, KEYS)


def test_periods_are_of_equal_length_in_time(tmp_path: Path) -> None:
    file = written(tmp_path, time=[0, 1, 2, 3, 9, 10], key=[1] * 6)
    assert [(part.start, part.stop) for part in read_trace(str(file), KEYS).periods(2)] == [(0, 4), (4, 6)]


def test_a_file_that_is_no_trace_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    file = written(tmp_path, time=[1], word=["a"])
    with pytest.raises(WrongUse, match="no column key; a trace of keys needs time, key, found time, word"):
        reproduce("all", Request(trace=file), EXPERIMENTS, Console(file=io.StringIO()))
    with pytest.raises(WrongUse, match=r"nowhere\.parquet: there is no such file"):
        reproduce("all", Request(trace=tmp_path / "nowhere.parquet"), EXPERIMENTS, Console(file=io.StringIO()))
    empty = written(tmp_path, time=pa.array([], pa.int64()), key=pa.array([], pa.string()))
    with pytest.raises(ExperimentError, match="no row has all of time, key"):
        read_trace(str(empty.rename(tmp_path / "empty.parquet")), KEYS)


def test_an_experiment_runs_on_a_trace_of_keys(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    file = written(tmp_path, time=np.arange(20_000), key=random.zipf(1.5, 20_000) % 500)
    result_file = tmp_path / "result.json"
    reproduce("cg-eps", Request(json_file=result_file, trace=file, seeds=2), EXPERIMENTS, Console(file=io.StringIO()))
    result = json.loads(result_file.read_text())
    assert result["stand_in"] == f"trace {file}"
    assert result["parameters"]["trace"] == str(file)
    assert 0 < result["summary"]["memory of KG 0"] <= 500 / 20_000


def test_experiments_take_the_kind_of_trace_that_they_name(tmp_path: Path) -> None:
    keys, pairs = ([name for name, each in EXPERIMENTS.items() if each.takes == kind] for kind in (KEYS, PAIRS))
    assert (keys[0], pairs) == ("posg-tweets", ["locality-online"])
    assert all(name.startswith(("cg-", "kip-", "fish-", "prompt-")) for name in keys[1:])
    assert all(get(name).parameters["trace"] == "" for name in (*keys, *pairs))
    trace = written(tmp_path, time=[1], key=["a"])
    with pytest.raises(WrongUse, match="locality-online takes no trace of keys; these do: posg-tweets, cg-eps"):
        reproduce("locality-online", Request(trace=trace), EXPERIMENTS, Console(file=io.StringIO()))


def test_weeks_and_mentions_come_from_a_trace(tmp_path: Path) -> None:
    file = written(tmp_path, time=[0, 1, 10, 11, 12], key=list("abaab"), second_key=list("xyxyx"))
    weeks = list(weeks_of({"weeks": 2, "trace": str(file)}, seed=1))
    assert [len(first) for first, _ in weeks] == [2, 3]
    assert weeks[0][0][0] == weeks[1][0][0]
    stream = mentions({**get("posg-tweets").parameters, "trace": str(file), "k": 2, "m": 4}, np.random.default_rng(1))
    assert len(stream.items) == 4
    assert stream.costs[stream.items[0]] == pytest.approx(5e-3)
