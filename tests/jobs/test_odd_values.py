"""Ordinary data has odd values now and then: each of these once ended a run or gave a wrong result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.stages import Flow, manifest

from streamtopology.jobs.columnar.python_values import python_rows, python_values
from streamtopology.jobs.connectors.sinks.json_rows import json_rows
from streamtopology.topology import parse

# As days since 1970.
YEAR_12921 = 4_000_000


def one_operator(ddl: str, key: str, run: str, **options: Any) -> dict[str, Any]:
    grouping = {"policy": "mixed", "key": key}
    return manifest([{"name": "o", "inputs": ["s"], "grouping": grouping, "run": run, "with": options}], {"s": ddl})


def dates(*days: int | None) -> pa.Array:
    return pa.array(days, pa.date32())


def test_dates_that_python_does_not_know_are_keys_like_any_other(tmp_path: Path) -> None:
    flow = Flow(tmp_path, one_operator("d DATE", "d", "count"))
    flow.batch(s=pa.table({"d": dates(*[YEAR_12921] * 5, 0, None)}))
    found = flow.published("o")
    counts = dict(zip(found.column("d").cast(pa.int32()).to_pylist(), found.column("count").to_pylist(), strict=True))
    assert counts == {YEAR_12921: 5, 0: 1, None: 1}


def test_tuple_with_a_date_that_python_does_not_know_can_be_set_aside(tmp_path: Path) -> None:
    given = one_operator("d DATE, s STRING", "d", "top-k", by="n", id="s", idBytes=1)
    given["spec"]["sources"][0]["schema"] += ", n BIGINT"
    given["spec"]["onBadTuple"] = "deadLetter"
    flow = Flow(tmp_path, given)
    flow.batch(s=pa.table({"d": dates(YEAR_12921, 0), "s": ["too long", "a"], "n": [1, 1]}))
    assert '"d": "12921-08-18"' in flow.published("").column("tuple")[0].as_py()
    assert flow.published("o").num_rows == 1


def test_times_that_python_does_not_know_are_iso_8601_texts_in_json() -> None:
    nested = pa.array([[YEAR_12921]], pa.list_(pa.date32()))
    assert json_rows(pa.record_batch([nested], names=["d"])).to_pylist() == ['{"d":["12921-08-18"]}']
    moments = pa.array([0, 3 * 10**17, None], pa.timestamp("us", "UTC"))
    assert python_values(moments)[1:] == ["11476-08-15T05:20:00.000000Z", None]
    pairs = pa.array([[("a", YEAR_12921)]], pa.map_(pa.string(), pa.date32()))
    rows = pa.record_batch([pairs, pa.array([{"x": YEAR_12921}], pa.struct([("x", pa.date32())]))], names=["m", "s"])
    assert python_rows(rows) == [{"m": [("a", "12921-08-18")], "s": {"x": "12921-08-18"}}]


@pytest.mark.parametrize(
    ("ids", "looked_up", "found"),
    [
        (pa.array([1, 2], pa.int8()), pa.array([1, 1 << 40, 257], pa.int64()), ["one", None, None]),
        (pa.array([1.5, 0.0]), pa.array([-0.0, 1.5, None], pa.float64()), ["two", "one", None]),
    ],
)
def test_lookup_finds_what_is_equal_and_nothing_else(
    tmp_path: Path, ids: pa.Array, looked_up: pa.Array, found: list[str]
) -> None:
    pq.write_table(pa.table({"id": ids, "name": ["one", "two"]}), tmp_path / "names.parquet")
    ddl = f"k {'BIGINT' if pa.types.is_integer(ids.type) else 'DOUBLE'}, row BIGINT"
    flow = Flow(tmp_path, one_operator(ddl, "k", "enrich", lookup={"file": "names.parquet", "on": "k", "key": "id"}))
    flow.batch(s=pa.table({"k": looked_up, "row": np.arange(len(looked_up))}))
    assert flow.published("o").sort_by("row").column("name").to_pylist() == found


def test_ids_of_top_k_that_end_with_a_zero_byte_stay_what_they_are(tmp_path: Path) -> None:
    flow = Flow(tmp_path, one_operator("k BIGINT, n BIGINT, s STRING", "k", "top-k", by="n", id="s", idBytes=4))
    rows = {"k": [1, 1, 1, 1], "n": [4, 3, 2, 1], "s": ["a", "a\0", "a\0\0", "abcd"]}
    flow.batch(s=pa.table(rows))
    assert flow.published("o").column("s").to_pylist() == [rows["s"]]


def test_column_with_a_quote_in_its_name_is_selected(tmp_path: Path) -> None:
    given: Mapping[str, Any] = one_operator('`q"` BIGINT', 'q"', "count")
    given["spec"]["sources"][0]["select"] = ['"q"""']
    assert parse(dict(given)).sources[0].select == ('"q"""',)
    flow = Flow(tmp_path, given)
    flow.batch(s=pa.table({'q"': [7]}))
    assert flow.published("o").to_pylist() == [{'q"': 7, "count": 1}]
