"""`validate` names what would stop a run on this machine or in this data, with the remedy that helps."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.manifests import counting, files, manifest, memory_sink

from streamtopology.jobs.cli.main import main
from streamtopology.jobs.connectors.sinks.writable import unwritable_folders
from streamtopology.jobs.runtime.preflight.checks import memory_doubts
from streamtopology.topology import Topology, parse


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current folder with `data/a.parquet`: key, value and area, a DOUBLE."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    price = pa.array([Decimal("1.50")], pa.decimal128(12, 2))
    pq.write_table(pa.table({"key": [1], "value": [1], "area": [1.5], "price": price}), "data/a.parquet")


def validated(capsys: pytest.CaptureFixture[str], given: dict[str, Any], code: int) -> list[str]:
    """The findings of `validate`, in its order."""
    Path("made.yaml").write_text(yaml.safe_dump(given))
    assert main(["validate", "made.yaml"]) == code
    lines = capsys.readouterr().err.replace(os.getcwd(), "/here").splitlines()
    return [line.strip() for line in lines if line.startswith("  ") and "spec.executors" not in line]


def reading(schema: str = "key BIGINT", **source: Any) -> dict[str, Any]:
    options = {"path": "data"} | source.pop("options", {})
    read = files(Path("data"), schema) | {"options": options} | source
    return manifest("made", [read], [counting()], [memory_sink("made", "counts")])


def writing(path: str, **more: Any) -> Topology:
    sink: dict[str, Any] = {"name": "out", "input": "counts", "format": "parquet", "options": {"path": path}}
    return parse(manifest("made", [files(Path("data"))], [counting()], [sink], **more))


def refusals(topology: Topology) -> list[str]:
    return [str(problem) for problem in unwritable_folders(topology)]


def test_header_that_is_read_as_a_row_is_named_with_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    Path("csv").mkdir()
    Path("csv/a.csv").write_text("city;key;fare\nUlm;7;3.5\n")
    options = {"path": "csv", "sep": ";"}
    sentence = (
        "spec.sources[0].options.header: source 'rows': the first line of /here/csv/a.csv is the names of its columns, and "
        "would be read as a row; set options.header: true"
    )
    given = reading("city STRING, key BIGINT", format="csv", options=options)
    assert validated(capsys, given, code=2) == [sentence]
    texts = reading("city STRING, key STRING, fare STRING", format="csv", options=options)
    assert validated(capsys, texts, code=0) == [sentence]
    right = reading("city STRING, key BIGINT", format="csv", options=options | {"header": True})
    assert validated(capsys, right, code=0) == []
    no_header = reading("town STRING, key STRING, fare STRING", format="csv", options=options)
    assert validated(capsys, no_header, code=0) == []


@pytest.mark.parametrize("first", ["0.csv", "z.csv"])
def test_folder_of_two_kinds_of_files_is_refused_with_the_filter(first: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("data", first).write_text("key,value\n1,2\n")
    too = f"spec.sources[0].options.path: source 'rows': reads /here/data/{first}, too, which is no parquet file"
    remedy = "set options.pathGlobFilter: '*.parquet' to read only files of one kind"
    assert validated(capsys, reading(), code=2) == [f"{too}; {remedy}"]
    assert validated(capsys, reading(options={"pathGlobFilter": "*.parquet"}), code=0) == []
    by_pattern = validated(capsys, reading(options={"path": "data/*"}), code=2)
    assert by_pattern == [f"{too}; name files of one kind in option path"]
    other_way = validated(capsys, reading(format="csv", options={"header": True}), code=2)
    assert other_way == [
        "spec.sources[0].options.path: source 'rows': reads /here/data/a.parquet, too, which is no csv file; "
        "set options.pathGlobFilter: '*.csv' to read only files of one kind"
    ]


def test_folder_of_csv_and_json_files_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mixed").mkdir()
    Path("mixed/a.json").write_text('{"key": 1}\n')
    Path("mixed/b.csv").write_text("key\n1\n")
    (found,) = validated(capsys, reading(format="csv", options={"path": "mixed", "header": True}), code=0)
    assert "reads /here/mixed/a.json, too, which is no csv file; set options.pathGlobFilter: '*.csv'" in found


def test_column_of_another_type_is_named_even_if_nothing_uses_it(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = "key BIGINT, area FLOAT, price DECIMAL(10, 2)"
    found = validated(capsys, reading(wrong), code=2)
    assert [("holds double but is declared float; declare it DOUBLE" in line) for line in found] == [True, False]
    unused = validated(capsys, reading(wrong, select=["key"]), code=0)
    assert [line.rpartition("; ")[2] for line in unused] == ["nothing uses it yet"] * 2


def test_unused_column_of_another_type_hides_no_milliseconds(capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"key": [1], "area": [1.5], "ms": [1_767_225_600_000]}), "data/a.parquet")
    given = reading("key BIGINT, area FLOAT, ms BIGINT", select=["key", "ms"], watermark={"column": "ms", "delay": "10s"})
    found = validated(capsys, given, code=2)
    assert [line.partition(": ")[0] for line in found] == ["spec.sources[0].schema", "spec.sources[0].watermark.column"]


@pytest.mark.parametrize(("schema", "source"), [("key BIGNT", {}), ("key BIGINT", {"select": ["nosuchfunction(key) AS key"]})])
def test_checks_that_wait_for_a_source_are_announced(
    schema: str, source: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    *found, last = validated(capsys, reading(schema, **source), code=2)
    assert len(found) == 1
    assert last == "columns of 'rows' that are used further down are checked once these are corrected"


def test_misspelt_type_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    assert validated(capsys, reading("key BIGNT"), code=2)[0].endswith("; did you mean 'BIGINT'?")


def test_sink_below_a_file_or_where_nothing_can_be_made_is_refused() -> None:
    Path("way").touch()
    assert refusals(writing("out/counts")) == []
    assert [path.name for path in Path().iterdir() if path.name not in ("data", "way")] == []
    here = Path.cwd()
    assert refusals(writing("way/counts")) == [
        f"spec.sinks[0].options.path: sink 'out': cannot write to {here}/way/counts: {here}/way is a file; "
        "name a folder that this user may write to"
    ]
    (refusal,) = refusals(writing("/proc/out"))
    assert "cannot write to /proc/out: /proc takes no new folder (" in refusal


def test_sink_on_a_volume_of_the_pods_is_left_to_them() -> None:
    Path("way").touch()
    mounted = {"volumes": [{"name": "x"}], "volumeMounts": [{"name": "x", "mountPath": "/proc/no-such-mount"}]}
    assert refusals(writing("/proc/no-such-mount/out", driver={"pod": mounted})) == []
    assert len(refusals(writing("/proc/no-such-mount/out"))) == 1


def test_memory_that_this_machine_does_not_have_is_doubted() -> None:
    classes = [{"name": "large", "replicas": 2, "memory": "3Gi"}, {"name": "small", "memory": "1Gi"}]
    topology = writing("out", executors=classes)
    paths = {gib: [doubt.path for doubt in memory_doubts(topology, gib * 2**30)] for gib in (8, 6, 2)}
    assert paths == {8: [], 6: ["spec.executors"], 2: ["spec.executors[0].memory"]}
    (doubt,) = memory_doubts(topology, 6 * 2**30)
    assert doubt.message.startswith("found 7Gi of memory in all, this machine has 6Gi: here executors that use it")
