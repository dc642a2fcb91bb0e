"""Reports of people who run jobs like ours, on one real cluster: right values are DuckDB's or plain Python's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamtopology.jobs.errors import TopologyFailed
from streamtopology.topology import ManifestError

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.topologies import Runner

from support.manifests import manifest

pytest_plugins = ("support.topologies",)
pytestmark = [pytest.mark.smoke, pytest.mark.timeout(300)]

COUNTED = {"name": "c", "inputs": ["s"], "parallelism": 2, "grouping": {"policy": "fields", "key": "k"}, "run": "count"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def put(path: str, content: pa.Table | str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        Path(path).write_text(content)
    else:
        pq.write_table(content, path)


def source(format_: str = "parquet", schema: str = "k STRING, v BIGINT", path: str = "in", **options: object) -> dict[str, Any]:
    return {"name": "s", "format": format_, "schema": schema, "options": {"path": path, **options}}


def mapped(*select: str) -> dict[str, Any]:
    return {"name": "c", "inputs": ["s"], "run": "map", "with": {"select": list(select)}}


def sink(path: str = "out", of: str = "c", format_: str = "parquet") -> dict[str, Any]:
    return {"name": f"{of}-sink", "input": of, "format": format_, "options": {"path": path}}


def case(given: Mapping[str, Any], *operators: Mapping[str, Any], sinks: Sequence[Mapping[str, Any]] = (), **spec: Any) -> Any:
    return manifest("case", [given], operators or [COUNTED], sinks or [sink()], **spec)


def rows(sql: str) -> list[tuple[Any, ...]]:
    return sorted(duckdb.execute(sql).fetchall())


def counts() -> dict[str, int]:
    return dict(rows("select k, max(count) from 'out/*.parquet' group by 1"))


def test_partition_folders_are_read(runner: Runner) -> None:
    put("in/dt=2024-01-01/a.parquet", pa.table({"k": ["a", "b"], "v": [1, 2]}))
    put("in/dt=2024-01-02/b.parquet", pa.table({"k": ["a", "b"], "v": [3, 4]}))
    runner.run(case(source()))
    assert counts() == {"a": 2, "b": 2}


def test_pattern_takes_no_manifest_and_no_draft(runner: Runner) -> None:
    put("in/batch-000000000.jsonl", '{"k":"a","v":1}\n{"k":"b","v":2}\n')
    put("in/_manifest/000000000.json", '{"batch": 0, "rows": 2}')
    put("in/_temporary/half.jsonl", '{"k":"a","v":1}\n')
    runner.run(case(source("json", path="in/*")))
    assert counts() == {"a": 1, "b": 1}


def test_job_that_moved_with_its_files_continues(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    put("one/in/a.parquet", pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3]}))
    monkeypatch.chdir("one")
    given = case(source())
    type(runner)(runner.embedded, Path.cwd()).run(given)
    os.rename(Path.cwd(), Path.cwd().with_name("two"))
    monkeypatch.chdir("../two")
    put("in/b.parquet", pa.table({"k": ["z"], "v": [9]}))
    type(runner)(runner.embedded, Path.cwd()).run(given)
    assert counts() == {"a": 2, "b": 1, "z": 1}


def test_sink_in_its_own_source_is_refused(runner: Runner) -> None:
    put("data/a.parquet", pa.table({"k": ["a"], "v": [1]}))
    with pytest.raises(ManifestError, match="data"):
        runner.run(case(source(path="data"), mapped("k", "v"), sinks=[sink("./data")]))


def test_two_sinks_of_one_folder_are_refused(runner: Runner) -> None:
    put("in/a.parquet", pa.table({"k": ["a"], "v": [1]}))
    other = {**COUNTED, "name": "t", "run": "aggregate", "with": {"aggregates": {"total": "sum(v)"}}}
    with pytest.raises(ManifestError, match="out"):
        runner.run(case(source(), COUNTED, other, sinks=[sink("out"), sink("./out", "t")]))


def test_bad_file_is_named_and_the_run_continues_without_it(runner: Runner) -> None:
    put("in/a.parquet", pa.table({"k": ["a"], "v": ["text"]}))
    with pytest.raises(ManifestError, match=r"a\.parquet"):
        runner.run(case(source()))
    os.rename("in/a.parquet", "a.bad")
    put("in/b.parquet", pa.table({"k": ["b"], "v": [1]}))
    runner.run(case(source()))
    assert counts() == {"b": 1}


def test_mended_file_is_read_with_all_its_rows(runner: Runner) -> None:
    put("in/a.parquet", pa.table({"k": ["a", "a"], "v": ["1", "2"]}))
    summed = {**COUNTED, "run": "aggregate", "with": {"aggregates": {"n": "count()", "total": "sum(v)"}}}
    with pytest.raises(ManifestError, match=r"a\.parquet"):
        runner.run(case(source(), summed))
    put("in/a.parquet", pa.table({"k": ["a"] * 10, "v": list(range(10))}))
    runner.run(case(source(), summed))
    assert rows("select k, n, total from 'out/*.parquet'") == [("a", 10, 45)]


OWN = """
import pyarrow as pa
from streamtopology.jobs.operators.base import Operator

class Text(Operator):
    output = pa.schema([("k", pa.string()), ("v", pa.int64())])

    def process(self, rows, state):
        texts = pa.array([str(v) for v in rows.column("v").to_pylist()])
        return pa.RecordBatch.from_arrays([rows.column("k"), texts], names=["k", "surprise"])

class Pandas(Operator):
    output = Text.output

    def process(self, rows, state):
        return pa.RecordBatch.from_pandas(rows.batch.select(["k", "v"]).to_pandas(), preserve_index=False)
"""


def test_output_other_than_declared_is_refused_by_name(runner: Runner) -> None:
    put("own.py", OWN)
    put("in/a.parquet", pa.table({"k": ["a"], "v": [1]}))
    with pytest.raises(TopologyFailed, match="surprise"):
        runner.run(case(source(), {**COUNTED, "run": "own.py:Text"}))


def test_output_of_pandas_is_cast_as_declared(runner: Runner) -> None:
    put("own.py", OWN)
    put("in/a.parquet", pa.table({"k": [f"k{i}" for i in range(20)], "v": pa.array([None, *range(1, 20)], pa.int64())}))
    runner.run(case(source(), {**COUNTED, "run": "own.py:Pandas"}))
    assert rows("select count(*), sum(v) from 'out/*.parquet'") == [(20, 190)]
    assert rows("select distinct type from parquet_schema('out/*.parquet') where name = 'v'") == [("INT64",)]


def test_csv_as_spark_writes_it_is_read_by_its_escape_and_refused_without(runner: Runner) -> None:
    put("in/a.csv", 'k,v\n"say \\"hi\\"",1\n"5\\" pipe",2\n')
    with pytest.raises(ManifestError, match="escape"):
        runner.run(case(source("csv", header=True)))
    runner.run(case(source("csv", header=True, escape="\\")))
    assert set(counts()) == {'5" pipe', 'say "hi"'}


def test_date_of_a_json_source_is_read(runner: Runner) -> None:
    put("in/a.json", '{"k":"a","d":"2024-01-01"}\n')
    runner.run(case(source("json", "k STRING, d DATE"), mapped("k", "d"), sinks=[sink(format_="json")]))
    assert rows("select d::VARCHAR from read_json('out/*.jsonl')") == [("2024-01-01",)]


def test_bytes_survive_a_json_sink_and_source(runner: Runner) -> None:
    put("first/a.parquet", pa.table({"k": ["a", "b"], "b": [b"\x00\x01\x02", b"\xff"]}))
    sent = case(source(schema="k STRING, b BINARY", path="first"), mapped("k", "b"), sinks=[sink("between", format_="json")])
    runner.run(sent)
    runner.run(case(source("json", "k STRING, b BINARY", "between"), mapped("k", "b"), checkpoint="other"))
    assert rows("select k, b from 'out/*.parquet'") == [("a", b"\x00\x01\x02"), ("b", b"\xff")]


def test_texts_of_a_lookup_stay_texts(runner: Runner) -> None:
    put("zips.csv", "city,zip,code\nBoston,02108,1E5\nNewark,07102,2E3\n")
    put("in/a.parquet", pa.table({"city": ["Boston", "Newark"], "v": [1, 2]}))
    lookup = {"file": "zips.csv", "on": "city", "columns": ["zip", "code"]}
    enriched = {"name": "c", "inputs": ["s"], "run": "enrich", "with": {"lookup": lookup}}
    runner.run(case(source(schema="city STRING, v BIGINT"), enriched))
    assert rows("select zip, code from 'out/*.parquet'") == [("02108", "1E5"), ("07102", "2E3")]


def test_microseconds_taken_for_seconds_are_refused_by_name(runner: Runner) -> None:
    put("in/a.parquet", pa.table({"k": ["a"] * 100, "t": [1_700_000_000_000_000 + i * 1_000_000 for i in range(100)]}))
    given = source(schema="k STRING, t BIGINT") | {"watermark": {"column": "t", "delay": "10s"}}
    windows = {**COUNTED, "run": "window-aggregate", "with": {"time": "t", "size": "1h", "aggregates": {"n": "count()"}}}
    with pytest.raises(ManifestError, match="'t'"):
        runner.run(case(given, windows))
