"""Times that SQL and Arrow do not both have are refused by name in expressions, and all others stay what they are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.stages import Flow, manifest

from streamtopology.jobs.columnar.expressions import ExpressionError, output_schema, project, query
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS

INTERVAL = pa.month_day_nano_interval()
ONE = pa.record_batch({"x": [1]})


def interval(months: int, days: int, nanoseconds: int) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array([None, pa.MonthDayNano([months, days, nanoseconds])], INTERVAL)})


@pytest.mark.parametrize("kind", [pa.duration("ns"), pa.list_(pa.duration("ns")), pa.struct({"a": pa.duration("ns")})])
@pytest.mark.parametrize(
    ("select", "where"), [(["v"], None), (["*"], None), (["x", "v IS NULL AS n"], None), ([], "v IS NULL")]
)
def test_nanoseconds_that_sql_cuts_off_are_refused_before_the_start(
    kind: pa.DataType, select: list[str], where: str | None
) -> None:
    schema = pa.schema([("x", pa.int64()), ("v", kind)])
    with pytest.raises(ExpressionError, match=r"'v' is .*, and SQL's intervals have microseconds; declare pa.duration\('us'\)"):
        output_schema(schema, select, where)
    assert output_schema(schema, ["x"]).names == ["x"]


@pytest.mark.parametrize(("select", "where"), [(["v"], None), (["v AS w"], None), ([], "v > INTERVAL 1 DAY")])
def test_interval_with_nanoseconds_is_refused_by_name(select: list[str], where: str | None) -> None:
    with pytest.raises(ExpressionError, match="an interval in 'v' has nanoseconds"):
        project(interval(1, 2, 3001), select, where)
    assert project(interval(1, 2, 3000), ["v"]).to_pylist() == interval(1, 2, 3000).to_pylist()


@pytest.mark.parametrize(
    "value",
    ["'-infinity'::DATE", "'infinity'::DATE", "'infinity'::TIMESTAMP", "'-infinity'::TIMESTAMPTZ", "['infinity'::DATE]",
     "{'a': '-infinity'::TIMESTAMP}", "MAP {1: 'infinity'::DATE}", "[NULL, ['infinity'::TIMESTAMP_S]]"],
)  # fmt: skip
def test_infinite_time_is_refused_by_name(value: str) -> None:
    with pytest.raises(ExpressionError, match=r"a (date|timestamp).* in 'y' is infinite, which only SQL has"):
        project(ONE, [f"{value} AS y"])
    with pytest.raises(ExpressionError, match=r"in 'y' is infinite"):
        query({"input": pa.table({"x": [1]})}, f"SELECT {value} AS y FROM input")


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ("INTERVAL 9000000000000 SECOND", None),
        ("-INTERVAL 9000000000000 SECOND", None),
        ("INTERVAL 9000000000 SECOND", pa.MonthDayNano([0, 0, 9 * 10**18])),
        ("INTERVAL 200000 YEAR", pa.MonthDayNano([2_400_000, 0, 0])),
        ("NULL::INTERVAL", None),
    ],
)
def test_interval_is_kept_or_refused(value: str, right: Any) -> None:
    if right is None and "NULL" not in value:
        with pytest.raises(ExpressionError, match="more than 292 years in its hours, which Arrow has not"):
            project(ONE, [f'{value} AS "y y"'])
    else:
        assert project(ONE, [f'{value} AS "y y"']).to_pylist() == [{"y y": right}]


def test_infinite_date_of_a_select_is_a_sentence_of_the_run(tmp_path: Path) -> None:
    made = manifest(
        [{"name": "days", "inputs": ["s"], "grouping": {"policy": "shuffle"}, "run": "map",
          "with": {"select": ["k", "CASE WHEN k = 7 THEN '-infinity'::DATE ELSE DATE '2020-01-01' END AS d"]}}],
        {"s": "k BIGINT"}, onBadTuple="deadLetter",
    )  # fmt: skip
    flow = Flow(tmp_path, made)
    flow.batch(s=pa.table({"k": pa.array([1, 7], pa.int64())}))
    assert flow.published("days").to_pylist() == [{"k": 1, "d": dt.date(2020, 1, 1)}]
    (letter,) = flow.published(DEAD_LETTERS).to_pylist()
    assert "a date32[day] in 'd' is infinite" in letter["reason"]
