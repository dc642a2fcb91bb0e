"""A sink that calls a function of the user's: each batch once, the newest again after a restart, errors with their line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support.stages import Flow, manifest

from streamtopology import topology
from streamtopology.jobs.connectors.sinks import BatchSink, SinkError, Writer, check, destination, open_sink
from streamtopology.jobs.connectors.sinks.function import FRAMES
from streamtopology.jobs.connectors.sinks.registry import takes
from streamtopology.jobs.driver.publisher import Publisher

OWN = """
import sys

CALLS = []

def kept(rows, batch):
    CALLS.append((batch, rows.to_pylist()))

def failing(rows, batch):
    if batch == 1:
        raise KeyError("no such table")

def ending(rows, batch):
    sys.exit(3)

def of_one(rows):
    pass

class Sink:
    pass

NUMBER = 5
"""


def sink_of(run: str, **options: str) -> topology.Sink:
    return topology.Sink("crm", "all", "function", {"run": run, "frame": "arrow", **options})


def flow_to(tmp_path: Path, run: str) -> Flow:
    (tmp_path / "own.py").write_text(OWN)
    every = {"name": "all", "inputs": ["s"], "run": "filter", "with": {"where": "n > 0"}}
    sinks = [{"name": "crm", "input": "all", "format": "function", "options": {"run": run, "frame": "arrow"}}]

    def opened(name: str, _: object) -> BatchSink:
        return open_sink(sink_of(run), Writer("flow", "1"), base_dir=tmp_path)

    return Flow(tmp_path, manifest([every], {"s": "n BIGINT"}, sinks=sinks), sink=opened)


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def calls(flow: Flow) -> list[Any]:
    sink: Any = flow.sinks["crm"]
    return sink._function.__globals__["CALLS"]


def test_function_gets_each_batch_with_rows_and_the_newest_again_after_a_restart(tmp_path: Path) -> None:
    flow = flow_to(tmp_path, "own.py:kept")
    flow.batch(s=numbers(1, 2))
    flow.batch(s=numbers(-1))
    flow.batch(s=numbers(3))
    expected = [(0, [{"n": 1}, {"n": 2}]), (2, [{"n": 3}])]
    assert calls(flow) == expected
    Publisher.of(flow.checkpoint, flow.topology, tmp_path).publish_again(flow.last, flow.topology)
    assert calls(flow) == [*expected, expected[-1]], "once more, with its number"


def test_function_may_ask_for_batches_without_rows(tmp_path: Path) -> None:
    """As Spark's foreachBatch is called: with the columns, whether there are rows or not."""
    flow = flow_to(tmp_path, "own.py:kept")
    sink = sink_of("own.py:kept", empty="true")
    rows = pa.schema({"n": pa.int64()})
    flow.sinks["crm"] = asked = open_sink(sink, Writer("flow", "1"), base_dir=tmp_path, rows=rows)
    asked.publish(0, [])
    asked.publish(0, [])
    asked.publish(1, [])
    assert calls(flow) == [(0, []), (1, [])]


def test_failing_function_stops_the_run_after_the_commit_with_its_line(tmp_path: Path) -> None:
    flow = flow_to(tmp_path, "own.py:failing")
    flow.batch(s=numbers(1))
    with pytest.raises(
        SinkError, match=r"'crm': the function failed at batch 1 by KeyError: 'no such table' \(own.py, line 11"
    ):
        flow.batch(s=numbers(2))


def test_function_that_ends_the_process_is_an_error_of_it(tmp_path: Path) -> None:
    flow = flow_to(tmp_path, "own.py:ending")
    with pytest.raises(SinkError, match=r"the function failed at batch 0 by sys.exit\(3\) \(own.py, line 14, in ending"):
        flow.batch(s=numbers(1))


@pytest.mark.parametrize(
    ("run", "options", "complaint"),
    [
        ("own.py:gone", {}, "'gone' is no function in own.py"),
        ("own.py:NUMBER", {}, "'NUMBER' is no function in own.py"),
        ("own.py:Sink", {}, "'Sink' is no function in own.py"),
        (
            "own.py:of_one",
            {},
            "of_one(rows) is called with the rows and the batch's number: too many positional arguments",
        ),
        ("gone.py:kept", {}, "there is no file "),
        ("kept", {}, "does not name a function; write module:function or path/file.py:function"),
        ("own.py:kept", {"frame": "pandas"}, "option frame must be spark or arrow, not 'pandas'"),
        ("own.py:kept", {"path": "x"}, "format function has no option 'path'; it has: run, frame, empty"),
    ],
)
def test_function_that_cannot_be_called_is_refused_before_the_start(
    tmp_path: Path, run: str, options: dict[str, str], complaint: str
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (problem,) = check(sink_of(run, **options), tmp_path)
    assert complaint in problem.message


def test_function_is_named_as_the_place_of_the_rows() -> None:
    assert destination(sink_of("own.py:kept")) == "function own.py:kept"


@pytest.mark.parametrize(
    "kind", [pa.uint8(), pa.float16(), pa.date64(), pa.time32("s"), pa.decimal256(50, 2), pa.list_(pa.uint64())]
)
def test_types_that_spark_has_not_are_refused_for_a_dataframe_alone(kind: pa.DataType) -> None:
    schema = pa.schema([("x", kind)])
    (sentence,) = takes(sink_of("own.py:kept", frame="spark"), schema).refusals(schema)
    assert "Spark has" in sentence
    assert "`frame: arrow`" in sentence
    assert takes(sink_of("own.py:kept"), schema).refusals(schema) == []


ALL = {
    "flag": pa.array([True, None]),
    "small": pa.array([1, None], pa.int8()),
    "single": pa.array([0.5, None], pa.float32()),
    "money": pa.array(["1.50", None]).cast(pa.decimal128(38, 2)),
    "text": pa.array(["zwölf", None], pa.large_string()),
    "bytes": pa.array([b"ab", None], pa.binary(2)),
    "day": pa.array([5, None], pa.int32()).cast(pa.date32()),
    "at": pa.array([10**15, None], pa.int64()).cast(pa.timestamp("ns", "UTC")),
    "local": pa.array([10**9, None], pa.int64()).cast(pa.timestamp("s")),
    "time": pa.array([10**9, None], pa.int64()).cast(pa.time64("us")),
    "took": pa.array([10**9, None], pa.int64()).cast(pa.duration("us")),
    "list": pa.array([[1, None], None], pa.large_list(pa.int64())),
    "pair": pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"x": 1, "y": "a"}, None], pa.struct([("x", pa.int64()), ("y", pa.string())])),
}


def test_dataframe_has_the_values_of_all_types_that_are_taken(spark: SparkSession) -> None:
    rows = pa.table(ALL)
    assert takes(sink_of("own.py:kept", frame="spark"), rows.schema).refusals(rows.schema) == []
    frame = FRAMES["spark"](rows)
    assert frame.columns == rows.column_names
    found = frame.toArrow()
    for name, column in ALL.items():
        values = found.column(name)
        assert values.null_count == 1
        as_given = values if name == "pair" else values.cast(column.type)  # Arrow ends the process over a cast of these
        assert as_given.to_pylist() == column.to_pylist(), name
