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
from support.histories import Clock
from support.manifests import counting, files, manifest, memory_sink

from streamtopology.jobs.cli.main import main
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.simulate.advice import recommendation
from streamtopology.lab.simulate.arrivals import NotInTrace, arrivals
from streamtopology.lab.simulate.comparison import Compared, Result, Site
from streamtopology.lab.simulate.progress import ProgressLines
from streamtopology.lab.simulate.runner import Stream, simulate
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.topology import OperatorSpec, parse

SMALL = Stream(keys={"": 300}, zipf={"": 1.0}, rows=60_000, batches=9)


def given(*operators: dict[str, Any]) -> dict[str, Any]:
    return manifest("trips", [files(Path("unused"))], list(operators or (counting(),)), [memory_sink("all", "counts")])


def saved(folder: Path, *operators: dict[str, Any]) -> Path:
    path = folder / "trips.yaml"
    path.write_text(json.dumps(given(*operators)))
    return path


def operator(**changed: Any) -> OperatorSpec:
    return parse(given(counting(**changed))).operator("counts")


def printed(file: Path, stream: Stream, report_dir: Path | None = None) -> str:
    screen = Console(file=io.StringIO(), width=200)
    assert simulate(file, stream, report_dir, screen) == 0
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_every_policy_gets_a_line_and_the_manifests_own_a_mark(tmp_path: Path):
    text = printed(saved(tmp_path), SMALL)
    assert re.search(r"counts \(count by key\): 3 instances, 2.3 cores, 10 us a row, bound 230 k rows/s", text)
    lines = {match[2]: match[0] for match in re.finditer(r"^  ([* ]) ([\w-]+) +[\d.]+ k? .*$", text, re.MULTILINE)}
    assert {"shuffle", "fields", "partial-key", "mixed"} <= set(lines)
    assert lines["mixed"].startswith("  * ")
    assert lines["fields"].startswith("    ")
    assert "operator 1 of 1, counts: its rows go through every policy" in text
    assert "the manifest declares no cost per row: 10 us are taken" in text


def result(policy: str, share: float, **changed: Any) -> Result:
    figures = {"imbalance_before": None, "imbalance_after": 0.02, "keys_moved": 0, "bytes_moved": 0, "entries": 0}
    figures |= {"copies": 1.0, "merging": 0.0, "rows_per_second_of": (), "rerouted_at": (), **changed}
    return Result(policy, rows_per_second=1000 * share, share_of_bound=share, **figures)


def advice(own: str, *results: Result) -> str:
    site = Site("counts", 4, (1.0,), own, combinable=True)
    return recommendation(Compared(operator(), site, 1e-5, 1000.0, results, {}, ()))


def test_a_sentence_names_the_policy_to_use_and_why():
    fields, mixed = result("fields", 0.5), result("mixed", 0.95)
    split = result("shuffle", 0.97, copies=3.0, merging=0.1)
    assert advice("fields", split, mixed, fields) == (
        "use mixed because it has 1.90x the rows/s of the manifest's fields (50 % of the bound): 95 % of the bound, "
        "imbalance 2 %, each key at one instance"
    )
    assert advice("mixed", split, mixed, fields).startswith("keep mixed because no other policy is more than 3 % faster: 95 %")
    assert advice("fields", split, fields).endswith("although merging the parts of its keys takes 10 % of the time")
    assert advice("locality", fields).endswith("the manifest's locality is not simulated")


def test_a_long_simulation_prints_a_line_every_ten_seconds():
    screen, clock = Console(file=io.StringIO(), width=200), Clock()
    lines = ProgressLines(screen, 2, clock)
    lines.begin("tail")
    for done in range(1, 26):
        clock.now += 1.0
        lines.advance(done, 30)
    assert isinstance(screen.file, io.StringIO)
    assert screen.file.getvalue().splitlines() == [
        "operator 1 of 2, tail: its rows go through every policy",
        "operator 1 of 2, tail: 10 of 30 batches",
        "operator 1 of 2, tail: 20 of 30 batches",
    ]


def test_the_report_has_figures_and_a_picture(tmp_path: Path):
    printed(saved(tmp_path), SMALL, tmp_path / "report")
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
    assert printed(file, SMALL) == printed(file, SMALL)


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
    text = printed(saved(tmp_path, counting(), other), stream)
    assert "left out: others: its key 'value' is no column of the trace, which has key" in text
    assert "counts (count by key)" in text
    with pytest.raises(WrongUse, match="its key 'value'"):
        printed(saved(tmp_path, counting(grouping={"policy": "mixed", "key": "value"})), stream)
    with pytest.raises(NotInTrace, match="no key to look for"):
        arrivals(operator(run="filter", grouping={"policy": "shuffle"}, **{"with": {"where": "true"}}), stream)


def test_key_that_the_select_of_the_source_makes_is_made_from_the_trace(tmp_path: Path):
    table = pa.table({"the key": [1, 2, 3, None] * 50, "fare": [1.0, -1.0] * 100})
    pq.write_table(table, tmp_path / "trace.parquet")
    made = given(counting())
    made["spec"]["sources"][0] |= {"schema": "`the key` BIGINT, fare DOUBLE", "where": "fare > 0"}
    made["spec"]["sources"][0]["select"] = ['"the key" AS key', "fare * 2 AS value"]
    topology = parse(made)
    rows = arrivals(topology.operator("counts"), Stream(batches=4, trace=tmp_path / "trace.parquet"), topology.sources)
    assert (len(rows.hashes), len(set(rows.hashes.tolist()))) == (100, 2)


def test_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = str(saved(tmp_path))
    for options, message in (
        (["--keys", "cuonts=5"], "'trips' has no operator cuonts; it has counts"),
        (["--trace", "x.parquet", "--zipf", "1"], "--trace has keys of its own"),
        (["--trace", str(tmp_path / "no.parquet")], "no.parquet is no trace"),
        (["--trace", file], "is no trace"),
    ):
        assert main(["simulate", file, *options]) == 2
        assert message in capsys.readouterr().err
    for options in (["--keys", "0"], ["--zipf", "-1"], ["--zipf", "nan"], ["--cost", "5"], ["--cost", "0"], ["--keys", "=5"]):
        assert main(["simulate", file, *options]) == 2
        assert f"Invalid value for '{options[0]}'" in capsys.readouterr().err
