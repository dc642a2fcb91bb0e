"""An operator that leaves out all that it gets is named, and so is the likely reason; numbers of another unit are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.manifests import counting, manifest, memory_sink

from streamtopology.jobs.driver.lateness import Lateness
from streamtopology.jobs.plan.results import InstanceResult, Results, SourceResult
from streamtopology.jobs.plan.span import Span
from streamtopology.jobs.runtime.preflight.checks import examine
from streamtopology.routing.load.load_report import LoadReport, SourceReport

MILLIS = 1767225600000


def results(late: int, of: int, event_time: float | None) -> Results:
    """A batch in which two instances of `hourly` got `of` rows together."""
    span = Span("", 0.0, 0.0)
    reports = [LoadReport("hourly", instance, 0, of // 2, 0.0, 0.0, 0, 0, late_rows=late // 2) for instance in (0, 1)]
    times = {} if event_time is None else {"rides": {"": event_time}}
    return Results(
        [InstanceResult(report, None, {}, None, span) for report in reports],
        [SourceResult(SourceReport(0, of, 0.0, 0.0), span, event_times=times)],
    )


def test_an_operator_that_keeps_nothing_is_named_once_until_it_keeps_a_row():
    lateness = Lateness()
    assert lateness.texts(0, results(8, 10, 5.0)) == []
    (text,) = lateness.texts(1, results(10, 10, 5.0))
    assert text.startswith("operator 'hourly' leaves out all 10 rows of batch 1: their windows were closed before they came")
    assert lateness.texts(2, results(10, 10, 5.0)) == []
    assert lateness.texts(3, results(0, 0, None)) == []
    assert lateness.texts(4, results(2, 10, 5.0)) == []
    assert len(lateness.texts(5, results(10, 10, 5.0))) == 1


def test_rows_without_any_event_time_are_called_so():
    (text,) = Lateness().texts(0, results(10, 10, None))
    assert "no row of the sources has an event time" in text
    assert "epoch_ms(...)" in text


@pytest.mark.parametrize(
    ("value", "select", "finding"),
    [
        (MILLIS, ['"Zeit (ms)" AS zeit'], "; they look like milliseconds: select 'epoch_ms(\"Zeit (ms)\") AS zeit'"),
        (
            MILLIS * 1000,
            ['"Zeit (ms)" AS zeit'],
            "; they look like microseconds: select 'make_timestamp(",
        ),
        (float(MILLIS), ['"Zeit (ms)" AS zeit'], "select 'epoch_ms(CAST(\"Zeit (ms)\" AS BIGINT)) AS zeit'"),
        (10**18 * 9, ['"Zeit (ms)" AS zeit'], "so all rows would be late"),
        (MILLIS, ['epoch_ms("Zeit (ms)") AS zeit'], None),
        (MILLIS // 1000, ['"Zeit (ms)" AS zeit'], None),
        (None, ['"Zeit (ms)" AS zeit'], None),
    ],
)
@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_numbers_that_are_no_epoch_seconds_are_refused(
    value: Any, select: list[str], finding: str | None, format: str, tmp_path: Path
) -> None:
    table = pa.table({"Zeit (ms)": pa.array([None, value, value], pa.float64() if isinstance(value, float) else pa.int64())})
    (tmp_path / "rows").mkdir()
    if format == "parquet":
        pq.write_table(table, tmp_path / "rows" / "a.parquet")
    else:
        lines = ["" if each is None else repr(each) for each in table.column(0).to_pylist()]
        (tmp_path / "rows" / "a.csv").write_text("\n".join(["Zeit (ms)", *lines, ""]))
    source = {
        "name": "rides",
        "format": format,
        "schema": f"`Zeit (ms)` {'DOUBLE' if isinstance(value, float) else 'BIGINT'}",
        "options": {"path": str(tmp_path / "rows"), **({} if format == "parquet" else {"header": True})},
        "select": [*select, "1 AS key"],
        "watermark": {"column": "zeit", "delay": "10s"},
    }
    topology = manifest("zeit", [source], [counting(of="rides")], [memory_sink("zeit", "counts")])
    (tmp_path / "zeit.yaml").write_text(yaml.safe_dump(topology))
    found = [f"{problem.path}: {problem.message}" for problem in examine(tmp_path / "zeit.yaml").problems]
    assert len(found) == (finding is not None), found
    for text in found:
        assert text.startswith("spec.sources[0].watermark.column")
        assert finding is not None
        assert finding in text
