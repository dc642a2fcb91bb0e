"""`streamtopology simulate`: the manifest's operators under every policy, from a description and from a trace."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.image import imread
from rich.console import Console
from support.manifests import counting, files, manifest, memory_sink

from streamtopology.jobs.cli import main
from streamtopology.jobs.failures import WrongUse
from streamtopology.jobs.keys import KeyColumns
from streamtopology.jobs.simulating import Stream, simulate
from streamtopology.jobs.simulating.arrivals import NotInTrace, arrivals
from streamtopology.routing.hashing import hash_int64
from streamtopology.routing.topology import Operator, parse

SMALL = Stream(keys={"": 300}, zipf={"": 1.0}, rows=60_000, batches=9)


def given(*operators: dict[str, Any]) -> dict[str, Any]:
    return manifest("trips", [files(Path("unused"))], list(operators or (counting(),)), [memory_sink("all", "counts")])


def saved(folder: Path, *operators: dict[str, Any]) -> Path:
    path = folder / "trips.yaml"
    path.write_text(json.dumps(given(*operators)))
    return path


def operator(**changed: Any) -> Operator:
    return parse(given(counting(**changed))).operator("counts")


def told(file: Path, stream: Stream, report_dir: Path | None = None) -> str:
    screen = Console(file=io.StringIO(), width=200)
    assert simulate(file, stream, report_dir, screen) == 0
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_every_policy_gets_a_line_and_the_manifests_own_a_mark(tmp_path: Path):
    text = told(saved(tmp_path), SMALL)
    assert re.search(r"counts \(count by key\): 3 instances, 2.3 cores, 10 us a row, bound 230 k rows/s", text)
    lines = {match[2]: match[0] for match in re.finditer(r"^  ([* ]) ([\w-]+) +[\d.]+ k? .*$", text, re.MULTILINE)}
    assert {"shuffle", "fields", "partial-key", "mixed"} <= set(lines)
    assert lines["mixed"].startswith("  * ")
    assert lines["fields"].startswith("    ")
    assert "a policy that splits keys needs a merging half" in text
    assert "the manifest declares no cost per row: 10 us are taken" in text


def test_the_report_has_figures_and_a_picture(tmp_path: Path):
    told(saved(tmp_path), SMALL, tmp_path / "report")
    result = json.loads((tmp_path / "report" / "simulation.json").read_text())
    (counts,) = result["operators"]
    assert (result["topology"], counts["name"], counts["policy"], counts["instances"]) == ("trips", "counts", "mixed", 3)
    assert counts["bound"] == pytest.approx(2.3 / 10e-6)
    mixed = next(policy for policy in counts["policies"] if policy["policy"] == "mixed")
    fields = next(policy for policy in counts["policies"] if policy["policy"] == "fields")
    assert mixed["share_of_bound"] > fields["share_of_bound"]
    assert len(mixed["rows_per_second_of"]) == 9
    assert imread(tmp_path / "report" / "simulation.png").std() > 0
    assert "<svg" in (tmp_path / "report" / "simulation.svg").read_text()


def test_the_same_description_gives_the_same_figures(tmp_path: Path):
    file = saved(tmp_path)
    assert told(file, SMALL) == told(file, SMALL)


def test_operators_may_be_described_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = counting("others", of="rows", **{"with": {"costPerTuple": "4us"}})
    file = saved(tmp_path, counting(), other)
    options = ["--keys", "500", "--keys", "others=20", "--cost", "counts=2us", "--rows", "2000", "--batches", "3"]
    assert main(["simulate", str(file), *options]) == 0
    text = capsys.readouterr().out
    assert "counts (count by key): 3 instances, 2.3 cores, 2 us a row" in text
    assert "others (count by key): 3 instances, 2.3 cores, 4 us a row" in text


def test_a_described_stream_is_zipf():
    drawn = arrivals(operator(), Stream(keys={"counts": 50, "": 3}, zipf={"": 1.0}, rows=10_000, batches=2))
    values, counts = np.unique(drawn.hashes, return_counts=True)
    assert set(values.tolist()) == set(hash_int64(np.arange(50)).tolist())
    assert counts.max() / 20_000 == pytest.approx(1 / (1 / np.arange(1, 51)).sum(), rel=0.1)
    assert (drawn.batches, len(list(drawn)), drawn.seconds_per_row) == (2, 2, 10e-6)


def test_a_trace_is_hashed_as_the_data_plane_hashes_it_and_cut_into_batches(tmp_path: Path):
    table = pa.table({"key": ["a", None, "b", "a", "c"] * 40, "value": range(200)})
    pq.write_table(table, tmp_path / "trace.parquet")
    rows = arrivals(operator(), Stream(batches=4, trace=tmp_path / "trace.parquet"))
    expected = KeyColumns.from_arrow(table.combine_chunks().to_batches()[0], ["key"]).hashes
    assert np.array_equal(rows.hashes, expected)
    assert (rows.batches, rows.rows) == (4, 50)
    assert np.array_equal(np.concatenate([batch.hashes for batch in rows]), expected)
    few = arrivals(operator(), Stream(rows=60, batches=4, trace=tmp_path / "trace.parquet"))
    assert [len(batch.hashes) for batch in few] == [60, 60, 60]
    whole = arrivals(operator(), Stream(rows=1_000, trace=tmp_path / "trace.parquet"))
    assert [len(batch.hashes) for batch in whole] == [200]


def test_a_cost_that_depends_on_the_tuple_needs_a_trace(tmp_path: Path):
    enrich = {"run": "enrich", "with": {"cost": "2 + value", "costPerTuple": "1us"}}
    pq.write_table(pa.table({"key": [1, 2, 3], "value": [10, None, -20]}), tmp_path / "trace.parquet")
    traced = arrivals(operator(**enrich), Stream(trace=tmp_path / "trace.parquet"))
    assert np.allclose(traced.seconds, [13e-6, 1e-6, 1e-6])
    described = arrivals(operator(**enrich), SMALL)
    assert described.seconds == 1e-6
    assert "what a row costs depends on it (2 + value)" in described.notes[0]
    constant = arrivals(operator(run="enrich", **{"with": {"cost": "2 + 3"}}), SMALL)
    assert constant.seconds == pytest.approx(5e-6)
    assert constant.notes == ()


def test_an_operator_whose_key_is_not_in_the_trace_is_left_out(tmp_path: Path):
    pq.write_table(pa.table({"key": [1, 2, 3] * 100}), tmp_path / "trace.parquet")
    other = counting("others", of="rows", grouping={"policy": "mixed", "key": "value"})
    stream = Stream(batches=3, trace=tmp_path / "trace.parquet")
    text = told(saved(tmp_path, counting(), other), stream)
    assert "left out: others: its key 'value' is no column of the trace, which has key" in text
    assert "counts (count by key)" in text
    with pytest.raises(WrongUse, match="its key 'value'"):
        told(saved(tmp_path, counting(grouping={"policy": "mixed", "key": "value"})), stream)
    with pytest.raises(NotInTrace, match="no key to look for"):
        arrivals(operator(run="filter", grouping={"policy": "shuffle"}, **{"with": {"where": "true"}}), stream)


def test_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = str(saved(tmp_path))
    for options, said in (
        (["--keys", "cuonts=5"], "'trips' has no operator cuonts; it has counts"),
        (["--trace", "x.parquet", "--zipf", "1"], "--trace has keys of its own"),
        (["--trace", str(tmp_path / "no.parquet")], "no.parquet is no trace"),
        (["--trace", file], "is no trace"),
    ):
        assert main(["simulate", file, *options]) == 2
        assert said in capsys.readouterr().err
    for options in (["--keys", "0"], ["--zipf", "-1"], ["--zipf", "nan"], ["--cost", "5"], ["--cost", "0"], ["--keys", "=5"]):
        with pytest.raises(SystemExit) as ended:
            main(["simulate", file, *options])
        assert ended.value.code == 2
