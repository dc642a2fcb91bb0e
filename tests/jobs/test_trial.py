"""`streamtopology try`: the first rows through the whole manifest, each failing row with its line, and nothing written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.waiting import eventually

from streamtopology.jobs.cli.main import main
from streamtopology.jobs.errors import RowFailed, TupleFailed
from streamtopology.jobs.runtime.preflight.checks import examine
from streamtopology.jobs.runtime.trial import part_to_try, try_rows

OWN = """
import pyarrow as pa
from streamtopology.api import BadTuple, Operator, TupleOperator


class Share(TupleOperator):
    output = pa.schema([("k", pa.int64()), ("share", pa.float64())])

    def process_tuple(self, row, state):
        return [{"k": row["k"], "share": 1 / row["v"]}]


class Whole(Operator):
    output = pa.schema([("k", pa.int64())])

    def process(self, rows, state):
        if 0 in rows.column("v").to_pylist():
            raise ValueError("zero")
        return rows.batch.select(["k"])
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def source(name: str = "rows", **fields: Any) -> dict[str, Any]:
    return {"name": name, "format": "csv", "schema": "k BIGINT, v BIGINT, t BIGINT", "options": {"path": "in.csv"}} | fields


def operator(name: str, inputs: list[str], run: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputs": inputs, "run": run, "grouping": {"policy": "mixed", "key": "k"}} | fields


def written(*operators: dict[str, Any], sources: list[dict[str, Any]] | None = None, **spec: Any) -> Path:
    """A manifest in the current folder, with a sink of files for each operator and the name of it, and classes of its own."""
    Path("own.py").write_text(OWN)
    sinks = [
        {"name": each["name"], "input": each["name"], "format": "parquet", "options": {"path": f"out/{each['name']}"}}
        for each in operators
    ]
    body = {
        "sources": sources or [source()],
        "operators": list(operators),
        "sinks": sinks,
        "executors": [{"name": "worker", "replicas": 3, "cpu": "1"}],
        "checkpoint": "checkpoint",
        **spec,
    }
    head = {"apiVersion": "streamtopology.dev/v1alpha1", "kind": "StreamTopology", "metadata": {"name": "trial"}}
    Path("flow.yaml").write_text(yaml.safe_dump({**head, "spec": body}))
    return Path("flow.yaml")


def rows_of(count: int) -> None:
    Path("in.csv").write_text("".join(f"{n * n % 7},{n % 13},{n}\n" for n in range(count)))


def tried(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """The exit code and what was printed; nothing that a user has was changed."""
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    code = main(["try", "flow.yaml", *options])
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def sinks_of(most: int) -> dict[str, list[tuple[Any, ...]]]:
    """What each sink would get, in the order of its values."""
    topology, _ = part_to_try(examine(Path("flow.yaml")).refuse_problems())
    tables = try_rows(topology, Path.cwd(), most).sinks
    return {name: sorted(zip(*table.to_pydict().values(), strict=True)) for name, table in tables.items()}


def test_sinks_get_what_duckdb_makes_of_the_first_rows() -> None:
    rows_of(1500)
    even = source(
        where="v % 2 = 0", select=["k", "v + 1 AS v", "to_timestamp(t) AS t"], watermark={"column": "t", "delay": "0s"}
    )
    sums = operator("sums", ["rows"], "aggregate", **{"with": {"aggregates": {"total": "sum(v)"}}})
    windows = operator(
        "windows", ["rows"], "window-aggregate", **{"with": {"size": "100s", "time": "t", "aggregates": {"n": "count()"}}}
    )
    written(sums, windows, sources=[even])
    first = "(SELECT column0 AS k, column1 + 1 AS v, column2 AS t FROM (FROM 'in.csv' LIMIT 1000) WHERE column1 % 2 = 0)"
    found = sinks_of(1000)
    assert found["sums"] == duckdb.sql(f"SELECT k, sum(v)::BIGINT FROM {first} GROUP BY k ORDER BY k").fetchall()
    counted = duckdb.sql(f"SELECT count(*) FROM {first} GROUP BY k, t // 100").fetchall()
    assert sorted(row[-1] for row in found["windows"]) == sorted(count for (count,) in counted)


def test_first_rows_of_parquet_are_taken_over_files_and_row_groups() -> None:
    Path("in").mkdir()
    for number in range(3):
        pq.write_table(pa.table({"k": [number] * 10}), f"in/{number}.parquet", row_group_size=4)
        os.utime(f"in/{number}.parquet", (number, number))
    files = {"name": "rows", "format": "parquet", "schema": "k BIGINT", "options": {"path": "in"}}
    written(operator("n", ["rows"], "count"), sources=[files])
    assert sinks_of(17)["n"] == [(0, 10), (1, 7)]


def test_shown_are_sources_sinks_and_windows_that_close(capsys: pytest.CaptureFixture[str]) -> None:
    rows_of(30)
    timed = source(select=["k", "to_timestamp(t) AS t"], watermark={"column": "t", "delay": "0s"})
    written(operator("n", ["rows"], "count"), sources=[timed])
    code, printed = tried(capsys, "--rows", "12")
    assert code == 0
    assert "source 'rows': the first 12 rows\nsink 'n', rows of 'n': 4 rows\n  k  count\n" in printed
    assert "open windows closed" in printed
    assert "source 'rows': 30 rows, all that it has\n" in tried(capsys)[1]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            "own.py:Share",
            'Share raised ZeroDivisionError: division by zero on key k=0 (own.py, line 10, in process_tuple: return [{"k"',
        ),
        ("own.py:Whole", 'ValueError: zero (own.py, line 18, in process: raise ValueError("zero"))'),
    ],
)
def test_a_failing_row_is_named_with_the_users_line(run: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows_of(13)
    written(operator("own", ["rows"], run))
    code, printed = tried(capsys)
    assert code == 1
    assert f"""operator 'own' failed on the row {{'k': 0, 'v': 0, 't': 0}}: {said}""" in printed
    assert "sink 'own', rows of 'own': 12 rows" in printed
    assert "1 row failed: a run would end at the first" in printed
    written(operator("own", ["rows"], run), onBadTuple="deadLetter")
    code, printed = tried(capsys)
    assert (code, "sets them aside" in printed) == (0, True)


def test_a_row_on_which_a_select_fails_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.csv").write_text("1,1,1\n2,2,2\n")
    written(operator("n", ["rows"], "count"), sources=[source(select=["CAST(log(2 - v) AS BIGINT) AS k"])])
    code, printed = tried(capsys)
    assert code == 1
    assert (
        """source 'rows' failed on the row {'k': 2, 'v': 2""" in printed
        or """source 'rows' failed on the row {'v': 2}""" in printed
    )


def test_a_long_value_of_a_failing_row_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """It was printed whole, twice: in the row, and in the reason."""
    Path("in.csv").write_text(f"{'x' * 100_000},1\n")
    given = source(schema="text STRING, v BIGINT", select=["CAST(text AS BIGINT) AS k"])
    written(operator("n", ["rows"], "count"), sources=[given])
    code, printed = tried(capsys)
    assert (code, "{'text': 'xxx" in printed, "xxx... (100,002 characters)" in printed) == (1, True, True)
    assert len(printed) < 2500
    row = {"text": "x" * 100_000}
    assert len(str(TupleFailed("n", 0, 0, row, row, f"no number: {row}"))) < 2500
    assert len(str(RowFailed("rows", 0, row, f"no number: {row}"))) < 2500


def test_what_needs_spark_is_named_as_not_tried(capsys: pytest.CaptureFixture[str]) -> None:
    rows_of(5)
    rate = {"name": "ticks", "format": "rate", "select": ["value AS k"]}
    written(operator("n", ["rows"], "count"), operator("m", ["ticks"], "count"), sources=[source(), rate])
    code, printed = tried(capsys)
    assert code == 0
    assert "not tried: source 'ticks': Spark reads format rate" in printed
    assert "not tried: operator 'm': it reads 'ticks'\nnot tried: sink 'm': it takes the rows of 'm'\n" in printed
    assert "sink 'n', rows of 'n': 4 rows" in printed
    written(operator("m", ["ticks"], "count"), sources=[rate])
    code, printed = tried(capsys)
    assert (code, "no source can be read here" in printed) == (1, True)


def test_a_topic_whose_broker_is_away_is_named_as_not_tried(capsys: pytest.CaptureFixture[str]) -> None:
    rows_of(5)
    topic = {"name": "topic", "format": "kafka", "options": {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}}
    topic |= {"select": ["partition AS k"]}
    written(operator("n", ["rows"], "count"), operator("m", ["topic"], "count"), sources=[source(), topic])
    code, printed = tried(capsys)
    assert code == 0
    assert "not tried: source 'topic': no broker at 127.0.0.1:1" in printed


def test_nothing_to_read_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.csv").write_text("")
    written(operator("n", ["rows"], "count"))
    code, printed = tried(capsys)
    assert (code, "source 'rows': no rows\n" in printed, "rows of 'n': 0 rows" in printed) == (0, True, True)
    rows_of(5)
    written(operator("n", ["rows"], "count"), sources=[source(where="v > 100")])
    code, printed = tried(capsys)
    assert (code, "5 rows, all that it has; its where leaves out all of them" in printed) == (0, True)
    Path("in.csv").unlink()
    code, printed = tried(capsys)
    assert (code, "does not exist; create it or correct option path" in printed) == (2, True)


def test_a_module_that_does_not_load_is_refused_as_by_validate(capsys: pytest.CaptureFixture[str]) -> None:
    rows_of(5)
    written(operator("own", ["rows"], "broken.py:Own"))
    Path("broken.py").write_text("import nowhere_to_be_found\n")
    code, printed = tried(capsys)
    assert (code, "broken.py needs nowhere_to_be_found, which is not installed" in printed) == (2, True)


def test_ctrl_c_ends_it_with_130_and_leaves_nothing() -> None:
    rows_of(5)
    written(operator("own", ["rows"], "slow.py:Slow"))
    slow = OWN.replace("class Share", "class Slow").replace(
        "return [{", 'print("here", flush=True)\n        import time; time.sleep(60)\n        return [{'
    )
    Path("slow.py").write_text(slow)
    temporary = tempfile.gettempdir()
    command = [sys.executable, "-m", "streamtopology.jobs.cli.main", "try", "flow.yaml"]
    with (
        Path("log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "TMPDIR": temporary}) as process,
    ):
        eventually(lambda: "here" in Path("log").read_text(), 60)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert Path("log").read_text() == "here\nstopped\n"
    assert list(Path(temporary).iterdir()) == []


def test_no_spark_is_loaded() -> None:
    rows_of(5)
    written(operator("n", ["rows"], "count"))
    code = (
        "import sys; from streamtopology.jobs.cli.main import main; code = main(['try', 'flow.yaml']); "
        "sys.exit(code or str([name for name in ('pyspark', 'py4j') if name in sys.modules] or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
    assert "sink 'n'" in done.stdout
