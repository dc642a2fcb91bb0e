"""SQL on one tuple at a time: what it gives, what it refuses, and that it reaches nothing outside the batch."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.jobs.columnar.expressions import ExpressionError, left_out, output_schema, project
from streamtopology.jobs.columnar.spark_functions import IN_DUCKDB

AT = datetime.datetime(2013, 1, 1, 5, 30, tzinfo=datetime.UTC)
SCHEMA = pa.schema(
    [
        ("x", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.int64())),
    ]
)
BATCH = pa.RecordBatch.from_pylist(
    [
        {"x": 1, "f": 0.5, "s": "a b", "t": AT, "l": [1]},
        {"x": None, "f": float("nan"), "s": None, "t": None, "l": None},
        {"x": 3, "f": None, "s": "", "t": AT + datetime.timedelta(days=1), "l": []},
    ],
    schema=SCHEMA,
)


@given(st.lists(st.one_of(st.none(), st.integers(-5, 5))), st.integers(-5, 5))
@settings(max_examples=25)
def test_select_and_where_are_pythons_comprehension(values, least):
    batch = pa.RecordBatch.from_pydict({"x": pa.array(values, pa.int64())})
    expected = [value for value in values if value is not None and value >= least]
    assert project(batch, (), f"x >= {least}").column("x").to_pylist() == expected
    doubled = project(batch, ["x", "x * 2 AS y"], f"x >= {least}")
    assert doubled.to_pylist() == [{"x": value, "y": 2 * value} for value in expected]
    assert doubled.schema == output_schema(batch.schema, ["x", "x * 2 AS y"], f"x >= {least}")


def test_types_stay_and_times_are_utc():
    assert project(BATCH, ["*"]).schema == SCHEMA == output_schema(SCHEMA, ["*"])
    assert project(BATCH) is BATCH
    row = project(BATCH, ["t", "extract(hour FROM t) AS hour", "t + INTERVAL 1 DAY AS next", "l"]).to_pylist()[0]
    assert row == {"t": AT, "hour": 5, "next": AT + datetime.timedelta(days=1), "l": [1]}


def test_a_filter_keeps_columns_as_they_are():
    dictionary = pa.RecordBatch.from_arrays(
        [pa.array(["a", "b"]).dictionary_encode(), pa.array([1, 2], pa.uint8())], ["d", "u"]
    )
    kept = project(dictionary, (), "d = 'b'")
    assert kept.schema == dictionary.schema
    assert kept.to_pylist() == [{"d": "b", "u": 2}]


def test_a_tuple_may_become_several():
    words = project(BATCH, ["unnest(string_split(s, ' ')) AS word", "x"], "s IS NOT NULL")
    assert [(row["word"], row["x"]) for row in words.to_pylist()] == [("a", 1), ("b", 1), ("", 3)]


def test_an_empty_batch_gives_an_empty_one():
    assert project(BATCH.slice(0, 0), ["x + 1 AS y"]).schema == pa.schema([("y", pa.int32())])


@pytest.mark.parametrize(
    ("select", "where", "reported"),
    [
        (["x", "nosuch + 1 AS y"], None, r"expression 'nosuch \+ 1 AS y'.*columns: x, f, s, t, l"),
        (["x"], "x >", "expression 'x >'"),
        (["x", "f AS x"], None, "a column 'x'; name them with AS"),
        (["sum(x) AS total"], None, r"expression 'sum\(x\) AS total' looks at several rows"),
        (
            ["x", "sum(x * x) AS total"],
            None,
            r"expression 'sum\(x \* x\) AS total' looks at .* an operator with run: aggregate",
        ),
        (["x"], "sum(x) > 3", r"expression 'sum\(x\) > 3' looks at several rows"),
        (["lag(x) OVER () AS y"], None, "looks at several rows"),
        (["DISTINCT x"], None, "looks at several rows"),
        (["x"], "x = (SELECT max(y) FROM (SELECT 1 AS y))", "looks at several rows"),
        (["x FROM (SELECT 1 AS x); SELECT 1 AS x"], None, "several statements"),
        (["input"], None, r'"input" not found.*columns: x, f'),
        ([""], None, "is not a SQL text"),
        (["x"], 5, "is not a SQL text"),
    ],
)
def test_unfit_expression_is_refused_by_name(select, where, reported):
    with pytest.raises(ExpressionError, match=reported):
        output_schema(SCHEMA, select, where)


OF_SPARK = {
    "array": "array(x, f)", "date_format": "date_format(t, 'yyyy-MM-dd')",
    "date_sub": "date_sub(t, 1)", "datediff": "datediff(t, t)", "element_at": "element_at(l, 1)", "explode": "explode(l)",
    "from_unixtime": "from_unixtime(x)", "get_json_object": "get_json_object(s, '$.a')", "named_struct": "named_struct('a', x)",
    "nvl": "nvl(x, 1)", "rlike": "s RLIKE 'a'", "size": "size(l)", "substring_index": "substring_index(s, ',', 1)",
    "to_date": "to_date(s, 'yyyy')", "to_timestamp": "to_timestamp(s, 'yyyy')", "transform": "transform(l, x -> x + 1)",
    "unix_timestamp": "unix_timestamp(t)", "window": "window(t, '1 minute')",
    "session_window": "session_window(t, '1 minute')",
}  # fmt: skip


@pytest.mark.parametrize(("name", "instead"), IN_DUCKDB.items())
def test_function_of_spark_alone_is_refused_with_one_that_does_the_same(name: str, instead: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        output_schema(SCHEMA, ["x", f"{OF_SPARK[name]} AS y"])
    assert f"{name} is Spark's: write {instead}" in str(refused.value)
    if "window" not in name:
        columns = pa.schema([*SCHEMA, ("a", pa.int32()), ("b", pa.int32()), ("seconds", pa.float64())])
        assert output_schema(columns, [f"{instead} AS y"]).names == ["y"]


def test_lambda_with_an_arrow_is_refused_with_the_form_that_works() -> None:
    with pytest.raises(
        ExpressionError, match=r"list_transform\(l, lambda x: x \+ 1\) in place of x -> x \+ 1 \(columns:"
    ) as refused:
        output_schema(SCHEMA, ["list_transform(l, x -> x + 1) AS y"])
    assert "SET" not in str(refused.value)
    assert output_schema(SCHEMA, ["list_transform(l, lambda x: x + 1) AS y"]).names == ["y"]


@pytest.mark.parametrize("expression", ["hour(at) AS h", "date_trunc('day', at) AS day", "AT + INTERVAL 1 DAY AS y"])
def test_column_that_is_a_word_of_sql_is_named_with_its_remedy(expression: str) -> None:
    schema = pa.schema([("at", pa.timestamp("us")), ("x", pa.int32())])
    with pytest.raises(ExpressionError, match='at is a word of SQL, too: write the column as "at"'):
        output_schema(schema, ["x", expression])
    with pytest.raises(ExpressionError, match="Parser Error"):
        output_schema(schema, ["hour(x AS y"])


@pytest.mark.parametrize("name", ["input", "output", "kept", "tuples"])
def test_column_may_have_the_name_of_any_table(name):
    batch = pa.record_batch([pa.array([{"a": 5}, None]), pa.array([7, 8])], names=[name, "a"])
    assert project(batch, [f"{name}.a AS b", "a", name]).to_pylist() == [
        {"b": 5, "a": 7, name: {"a": 5}},
        {"b": None, "a": 8, name: None},
    ]
    assert project(batch, (), f"{name}.a = 5").num_rows == 1


def test_a_value_that_does_not_convert_names_the_expression():
    with pytest.raises(ExpressionError, match=r"'CAST\(s AS INTEGER\) AS n'.*'a b'"):
        project(BATCH, ["x", "CAST(s AS INTEGER) AS n"])


@pytest.mark.parametrize(
    "select",
    ["(SELECT count(*) FROM read_csv('/etc/passwd')) AS n", "(SELECT content FROM read_text('/etc/passwd')) AS n",
     "(SELECT 1 FROM '/etc/passwd') AS n", "getenv('HOME') AS n", "(SELECT x FROM BATCH) AS n"],
)  # fmt: skip
def test_nothing_outside_the_batch_can_be_reached(select):
    with pytest.raises(ExpressionError, match=r"disabled|not exist"):
        project(BATCH, [select])


def test_a_forked_worker_gets_a_connection_of_its_own():
    project(BATCH, ["x"])
    child = os.fork()
    if child == 0:
        os._exit(0 if project(BATCH, ["x + 1 AS y"]).column("y").to_pylist() == [2, None, 4] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


FULL = """
import resource
import pyarrow as pa
from streamtopology.jobs.columnar.expressions import project

batch = pa.record_batch({"x": ["a"]})
project(batch, ["x"])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), used + (1 << 29)))
try:
    project(batch, ["length(repeat(x, 4000000000)) AS n"])
except MemoryError as error:
    print(error)
"""


def test_full_memory_is_no_fault_of_the_expression():
    printed = subprocess.run([sys.executable, "-c", FULL], check=True, capture_output=True, text=True).stdout
    assert "Out of Memory" in printed
    assert "repeat(x, 4000000000)" in printed


def test_columns_of_rows_that_where_leaves_out_are_null_where_their_expression_fails() -> None:
    texts = pa.RecordBatch.from_pylist([{"v": "no JSON"}, {"v": '{"at": 7}'}, {"v": '{"at": 8, "b": 1}'}])
    select = ["error(v) AS never", "json_extract_string(v, '$.at') AS At", "v"]
    where = "v LIKE '%b%'"
    assert left_out(texts, select, where, ["At"]).to_pydict() == {"At": [None, "7"]}
    assert left_out(texts, select, where, ["v"]).to_pydict() == {"v": ["no JSON", '{"at": 7}']}
    assert left_out(texts.slice(1), select, where, ["At", "v"]).to_pydict() == {"At": ["7"], "v": ['{"at": 7}']}


def test_an_expression_that_fails_is_named_by_the_rows_that_where_lets_through() -> None:
    texts = pa.RecordBatch.from_pylist([{"v": "no JSON"}, {"v": "7"}])
    with pytest.raises(ExpressionError, match=r"^expression 'CAST\(v AS BOOLEAN\) AS b': "):
        project(texts, ["json(v) AS j", "CAST(v AS BOOLEAN) AS b"], "json_valid(v)")
