"""Sources that Spark reads itself: what it or an operator cannot take is a sentence that names source and remedy."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.manifests import counting, manifest, memory_sink
from support.waiting import eventually

from streamtopology.jobs.connectors.sources.errors import SourceError
from streamtopology.jobs.connectors.sources.source_tag import untag
from streamtopology.jobs.connectors.sources.spark.native import load, rows_of, tagged_union
from streamtopology.jobs.runtime.spark_rows import SparkRows
from streamtopology.jobs.runtime.streaming_query import source_frames
from streamtopology.jobs.variables import MissingVariable
from streamtopology.topology import Source, Trigger, Watermark, parse

pytestmark = pytest.mark.clusters


def rate(*select: str, where: str | None = None, watermark: Watermark | None = None, **options: str) -> Source:
    return Source("r", "rate", None, options, select, where, watermark)


def test_times_of_spark_are_event_times(spark: SparkSession) -> None:
    source = rate(watermark=Watermark("timestamp"))
    assert rows_of(source, load(spark, source)).types == [pa.timestamp("us", "UTC"), pa.int64()]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (rate("make_interval(1) AS i"), "source 'r': column 'i' is interval, which Arrow has no type for; cast it"),
        (rate("map() AS m"), "column 'm' is map<void,void>, which Arrow has no type for"),
        (rate("parse_json('1') AS v"), "column 'v' is or holds a variant, of which only bytes would arrive; take it apart"),
        (rate("array(named_struct('x', parse_json('1'))) AS v"), "column 'v' is or holds a variant"),
        (rate("'a' COLLATE UTF8_LCASE AS k"), "column 'k' is or holds a string collate UTF8_LCASE, but operators and routes"),
        (rate("map('a' COLLATE UNICODE_CI, 1) AS m"), "column 'm' is or holds a string collate UNICODE_CI"),
        (rate("value AS a", "value AS A"), "2 columns are called 'a', which SQL takes for one; give each another name"),
        (rate("value AS __source"), "column '__source' has a name of ours; give it another name"),
        (rate(watermark=Watermark("at")), "column 'at' is not among its rows, which have timestamp, value"),
        (rate("1 AS value", "true AS at", watermark=Watermark("at")), "column 'at' is bool; allowed: "),
    ],
)
def test_rows_that_operators_cannot_take_are_refused(spark: SparkSession, source: Source, sentence: str) -> None:
    frame = load(spark, source)
    with pytest.raises(SourceError) as refused:
        rows_of(source, frame)
    assert sentence in str(refused.value)


def test_remedies_for_types_unlike_ours_are_taken(spark: SparkSession) -> None:
    source = rate("to_json(parse_json('1')) AS v", "lower(('A' COLLATE UTF8_LCASE) COLLATE UTF8_BINARY) AS k")
    assert rows_of(source, load(spark, source)).types == [pa.string(), pa.string()]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            rate("value +"),
            "select ['value +'] is refused by Spark, whose SQL it is: [PARSE_SYNTAX_ERROR] Syntax error at or near",
        ),
        (rate(where="value"), "where 'value' is refused by Spark, whose SQL it is: [DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN]"),
        (rate("count(*) AS n"), "source 'r': its select or where does not go row by row, which only an operator can do: ["),
        (rate("rank() OVER (ORDER BY value) AS n"), "does not go row by row, which only an operator can do: ["),
        (rate(rowsPerSecond="x"), "source 'r': Spark does not read it with format 'rate': For input string"),
    ],
)
def test_mistake_is_named_with_its_field_and_nothing_of_jars(
    spark: SparkSession, source: Source, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SourceError) as refused:
        load(spark, source)
    assert sentence in str(refused.value)
    assert "jar" not in str(refused.value)
    assert caplog.text == ""


def test_options_have_the_values_of_variables_and_messages_their_names(spark: SparkSession) -> None:
    source = rate(rowsPerSecond="${env:PACE}", option="${env:PACE_ALSO}")
    assert load(spark, source, {"PACE": "3", "PACE_ALSO": ""}).isStreaming
    with pytest.raises(SourceError) as refused:
        load(spark, source, {"PACE": "s3cret", "PACE_ALSO": "s3cret!"})
    assert "format 'rate': For input string: \"${env:PACE}\"" in str(refused.value)
    with pytest.raises(SourceError) as refused:
        load(spark, source, {"PACE": "s3\ncret", "PACE_ALSO": ""})
    assert "s3\ncret" in str(refused.value.__cause__)
    assert "s3" not in str(refused.value)
    with pytest.raises(MissingVariable, match="source 'r': option rowsPerSecond needs the environment variable PACE, which"):
        load(spark, source, {})


def test_union_has_columns_of_any_name(spark: SparkSession) -> None:
    source = rate("value AS `a``b`", "value AS `a.b`")
    frame = load(spark, source)
    assert tagged_union({"one": frame, "two": frame}).select("one.*").columns == ["a`b", "a.b"]


FRAMES = """
def events(spark):
    return spark.readStream.format("rate").load().selectExpr("value % 7 AS user")

def still(spark):
    return spark.range(3)

def nothing(spark):
    pass

def broken(spark):
    raise KeyError("no table")

def counts(spark):
    return events(spark).groupBy("user").count()
"""


def framed(folder: Path, function: str) -> Source:
    (folder / "frames.py").write_text(FRAMES)
    return Source("f", "dataframe", None, {"run": f"frames.py:{function}"})


def test_a_function_may_make_the_frame_of_a_source(spark: SparkSession, tmp_path: Path) -> None:
    source = framed(tmp_path, "events")
    assert rows_of(source, load(spark, source, base_dir=tmp_path)) == pa.schema({"user": pa.int64()})


def test_a_frame_that_is_no_stream_needs_one_that_is(spark: SparkSession, tmp_path: Path) -> None:
    still, events = framed(tmp_path, "still"), replace(framed(tmp_path, "events"), name="g")
    topology = parse(manifest("still", [{"name": "rows", "format": "rate"}], [counting()], [memory_sink("still", "counts")]))
    with pytest.raises(SourceError) as refused:
        source_frames(spark, replace(topology, sources=(still,)), tmp_path)
    assert "source 'f': its frame is no stream" in str(refused.value)
    frames = source_frames(spark, replace(topology, sources=(still, events)), tmp_path)
    assert [frame.isStreaming for frame in frames.values()] == [False, True]


def test_a_frame_that_is_no_stream_comes_once_with_the_first_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    events = spark.readStream.schema("user BIGINT").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "data"))
    for number in range(3):
        file = tmp_path / "data" / f"{number}.parquet"
        pq.write_table(pa.table({"user": [number]}), file)
        os.utime(file, (1_000_000 + number,) * 2)  # Spark reads the oldest first, and files of one millisecond in any order
    seen: list[tuple[int, str, int]] = []
    still = spark.range(3).selectExpr("nullif(id, -1) AS id")
    rows = SparkRows({"g": events, "f": still}, "q", tmp_path / "log", Trigger(), lambda: None, time.monotonic)
    rows.start(available_now=True)
    while not rows.has_ended():
        eventually(lambda: rows.waiting() is not None or rows.has_ended())
        if (batch := rows.waiting()) is not None:
            tagged = [untagged for each in batch.frame.toArrow().to_batches() for untagged in untag(each)]
            seen += [(batch.number, name, value) for name, found in tagged for value in found.column(0).to_pylist()]
            rows.is_done(batch.number)
    assert sorted(seen) == [(0, "f", 0), (0, "f", 1), (0, "f", 2), (0, "g", 0), (1, "g", 1), (2, "g", 2)]


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("nothing", "source 'f': frames.py:nothing returns NoneType, not a DataFrame"),
        ("broken", "source 'f': frames.py:broken fails by KeyError: 'no table' (frames.py, line 12, in broken: "),
        ("counts", "does not go row by row, which only an operator can do"),
    ],
)
def test_a_function_that_makes_no_frame_of_rows_is_refused(
    spark: SparkSession, tmp_path: Path, function: str, sentence: str
) -> None:
    with pytest.raises(SourceError) as refused:
        load(spark, framed(tmp_path, function), base_dir=tmp_path)
    assert sentence in str(refused.value)
