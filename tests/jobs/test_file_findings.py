"""Files that do not hold what a manifest declares: one finding for each mistake, with the remedy that helps."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.manifests import counting, files, manifest
from support.streams import rows_of, spec

from streamtopology.jobs.connectors.sinks.writable import unwritable_folders
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError
from streamtopology.jobs.connectors.sources.files.file_log import FileLog
from streamtopology.jobs.connectors.sources.files.stream import FileStream
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.topology import Source, parse


def findings(folder: Path, format_: str, schema: str, **options: str) -> list[tuple[str, str]]:
    found = check(Source("s", format_, schema, {"path": str(folder)} | options)).findings
    return [(finding.path, finding.message) for finding in found]


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_misfit_of_a_csv_without_header_is_one_finding(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "x,1,2\ny,z,3\n")
    (found,) = findings(tmp_path, "csv", "a INT, b STRING, c INT")
    assert "row 1: column 'a' is declared int32 but holds 'x'" in found[1]
    both = findings(tmp_path, "csv", "a INT, b INT, c INT")
    assert [message.split("but holds ")[1].split(":")[0] for _, message in both] == ["'x'", "'z'"]


def test_header_of_a_file_in_a_partition_folder_is_one_finding(tmp_path: Path) -> None:
    put(tmp_path / "dt=1/a.csv", "a,b\n1,x\n")
    (found,) = findings(tmp_path, "csv", "a INT, b STRING, dt INT")
    assert found[0] == "options.header"


@pytest.mark.parametrize("digits", [38, 39, 100, 240])
def test_decimal_of_a_folder_has_all_its_digits_or_is_refused(tmp_path: Path, digits: int) -> None:
    put(tmp_path / f"d={'9' * digits}/a.csv", "1\n")
    part = Descriptor("s", "csv", str(tmp_path / f"d={'9' * digits}/a.csv"), 0, 0, 2, 1)
    source = spec(tmp_path, "csv", "v INT, d DECIMAL(38, 0)")
    if digits == 38:
        assert str(rows_of([part], source)[0]["d"]) == "9" * 38
        return
    with pytest.raises(SchemaMismatchError, match=r"column 'd' is declared decimal128\(38, 0\) but its folder says '999"):
        rows_of([part], source)
    assert "but its folder says '999" in findings(tmp_path, "csv", "v INT, d DECIMAL(38, 0)")[0][1]


@pytest.mark.parametrize(
    ("format_", "text", "schema"),
    [
        ("csv", "1,x\n,y\n", "a INT NOT NULL, b STRING"),
        ("json", '{"a": null}\n', "a INT NOT NULL"),
        ("json", '{"a": {"x": null}}\n', "a STRUCT<x: INT NOT NULL>"),
        ("json", '{"a": {"1": {}}}\n', "a MAP<STRING, STRUCT<x: INT NOT NULL>>"),
    ],
)
def test_null_that_is_refused_says_how_it_would_be_allowed(tmp_path: Path, format_: str, text: str, schema: str) -> None:
    put(tmp_path / f"a.{format_}", text)
    ((path, message),) = findings(tmp_path, format_, schema)
    assert (path, message.endswith("; write a value, or declare it without NOT NULL")) == ("schema", True)


@pytest.mark.parametrize(("value", "declared", "fitting"), [("Infinity", "INT", "DOUBLE"), ("x", "INT", "STRING")])
def test_type_that_is_named_in_place_of_another_fits(tmp_path: Path, value: str, declared: str, fitting: str) -> None:
    put(tmp_path / "csv/a.csv", f"{value},1\n")
    ((_, message),) = findings(tmp_path / "csv", "csv", f"a {declared}, b INT")
    assert message.endswith(f"; correct the schema, or name a type that it fits, such as {fitting}")
    assert findings(tmp_path / "csv", "csv", f"a {fitting}, b INT") == []


def test_json_that_does_not_fit_is_a_finding_of_the_schema(tmp_path: Path) -> None:
    put(tmp_path / "json/a.json", '{"a": "x"}\n')
    ((path, message),) = findings(tmp_path / "json", "json", "a INT")
    assert (path, message.partition("a.json: ")[2]) == (
        "schema", "line 1: column 'a' is declared int32 but holds the string 'x'; correct the schema"
    )  # fmt: skip


@pytest.mark.parametrize("null", ["a,b", 'N"A', "x\ny", "x\r\ny", '"', ","])
@pytest.mark.parametrize("escape", ['"', "\\"])
def test_null_value_of_any_characters_is_null_in_quotes(tmp_path: Path, null: str, escape: str) -> None:
    quoted = '"' + null.replace('"', escape + '"') + '"'
    put(tmp_path / "a.csv", f'1,{quoted},{quoted}\n{quoted},"{null[:-1].replace(chr(34), escape + chr(34))}",z\n')
    part, options = Descriptor("s", "csv", str(tmp_path / "a.csv"), 0, 0, 1, 1), {"nullValue": null, "escape": escape}
    found = rows_of([part], spec(tmp_path, "csv", "a INT, b STRING, c BINARY", **options))
    assert found == [{"a": 1, "b": None, "c": None}, {"a": None, "b": null[:-1] or None, "c": b"z"}]


@pytest.mark.parametrize("kind", ["INT", "STRING", "BINARY"])
def test_null_value_of_the_only_column_is_a_row(tmp_path: Path, kind: str) -> None:
    put(tmp_path / "a.csv", '"a,b"\n1\n"a,b"\n')
    part = Descriptor("s", "csv", str(tmp_path / "a.csv"), 0, 0, 1, 1)
    found = rows_of([part], spec(tmp_path, "csv", f"v {kind}", nullValue="a,b"))
    assert [row["v"] for row in found] == [None, {"INT": 1, "STRING": "1", "BINARY": b"1"}[kind], None]


def test_fields_of_json_in_another_case_are_found(tmp_path: Path) -> None:
    put(tmp_path / "a.json", '{"a": {"B": 1, "c": 2}, "l": [{"X": 1}], "m": {"k": {"Y": 1}}}\n')
    found = findings(tmp_path, "json", "a STRUCT<b: INT, c: INT>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<y: INT>>")
    assert [message.split("has no ")[1].split(";")[0] for _, message in found] == [
        "field 'a.b' but 'a.B'",
        "field 'l.x' but 'l.X'",
        "field 'm.y' but 'm.Y'",
    ]
    assert findings(tmp_path, "json", "a STRUCT<B: INT, d: INT>, l ARRAY<STRUCT<X: INT>>") == []


@pytest.mark.parametrize(("format_", "text"), [("csv", "1\n"), ("json", '{"v": 1}\n')])
@pytest.mark.parametrize("outside", ["a", "dt=1/a", "hr=1/a"])
def test_file_outside_of_partition_folders_is_refused(tmp_path: Path, format_: str, text: str, outside: str) -> None:
    folder = tmp_path / "in"
    put(folder / f"dt=1/x=2/a.{format_}", text)
    put(folder / f"{outside}.{format_}", text)
    schema = "v INT, dt INT, x INT"
    ((path, message),) = findings(folder, format_, schema)
    assert path == "options.path"
    assert "is in no folder that gives column '" in message
    stream = FileStream(spec(folder, format_, schema), FileLog(tmp_path / "log"))
    with pytest.raises(SourceError, match="is in no folder that gives column"):
        stream.advance(0)
    assert not [text for _, text in findings(folder, format_, "v INT") if "in no folder" in text]


def test_parquet_file_outside_may_have_the_column_itself(tmp_path: Path) -> None:
    put(tmp_path / "in/dt=1/a", "")
    (tmp_path / "in/dt=1/a").unlink()
    pq.write_table(pa.table({"v": pa.array([1], pa.int32())}), tmp_path / "in/dt=1/a.parquet")
    pq.write_table(pa.table({"v": pa.array([2], pa.int32()), "dt": pa.array([7], pa.int32())}), tmp_path / "in/b.parquet")
    source = spec(tmp_path / "in", schema="v INT, dt INT")
    stream = FileStream(source, FileLog(tmp_path / "log"))
    assert sorted(row["dt"] for row in rows_of(list(stream.between(0, stream.advance(0))), source)) == [1, 7]
    assert findings(tmp_path / "in", "parquet", "v INT, dt INT") == []


def test_validate_names_the_topology_that_owns_a_folder_of_a_sink(tmp_path: Path) -> None:
    sink = {"name": "o", "input": "counts", "format": "json", "options": {"path": str(tmp_path / "out")}}
    topology = parse(manifest("mine", [files(tmp_path / "in")], [counting()], [sink]))
    for owner, sentence in (("other", "holds the output of topology 'other'; this is 'mine': name another"), ("mine", None)):
        put(tmp_path / "out/_manifest/owner.json", f'{{"topology": "{owner}", "run": "r", "sink": "o"}}')
        found = list(unwritable_folders(topology))
        assert [problem.path for problem in found] == (["spec.sinks[0].options.path"] if sentence else [])
        assert all(sentence is not None and sentence in problem.message for problem in found)
