"""A source reads the files that Spark reads at its path, knows them again after a move, and says how many it sees."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.connectors import read
from support.manifests import counting, files, manifest, memory_sink
from support.streams import Stream, spec

from streamtopology.jobs.cli.main import main
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec, local_path, pattern_of_place
from streamtopology.jobs.connectors.sources.files.listing import list_files
from streamtopology.jobs.connectors.sources.files.survey import nothing_to_read
from streamtopology.jobs.connectors.sources.path_patterns import alternatives, fits_name, literal
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.topology import Source

_TREE = (
    "a.json", "b.json", ".a.json", "_b.json", "_SUCCESS", "c.json._COPYING_", "dt=1/a.json", "dt=2/hour=3/a.json",
    "_dt=4/a.json", "dt=1/_temporary/a.json", "_manifest/0.json", ".git/a.json", "batch-000000001/part-0.json",
)  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tree(root: str, names: tuple[str, ...] = _TREE) -> None:
    for name in names:
        (Path(root) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(root) / name).write_text('{"key": 1}\n')


def put(path: str, **columns: list[Any]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def listed(path: str, **options: str) -> set[str]:
    source = SourceSpec.of(Source("s", "json", "key BIGINT", {"path": path, **options}))
    return {os.path.relpath(found, os.path.realpath("in")) for found in list_files(source)}


# --- listing


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("in", {"a.json", "b.json", "dt=1/a.json", "dt=2/hour=3/a.json", "_dt=4/a.json"}),
        ("in/", {"a.json", "b.json", "dt=1/a.json", "dt=2/hour=3/a.json", "_dt=4/a.json"}),
        ("in/*", {"a.json", "b.json", "dt=1/a.json", "dt=2/hour=3/a.json", "_dt=4/a.json", "batch-000000001/part-0.json"}),
        ("in/*/*.json", {"dt=1/a.json", "_dt=4/a.json", "batch-000000001/part-0.json"}),
        ("in/*.json", {"a.json", "b.json"}),
        ("in/[!b].json", {"a.json"}),
        ("in/{a,dt=1/a}.json", {"a.json", "dt=1/a.json"}),
        ("in/dt={1,2/hour=3}", {"dt=1/a.json", "dt=2/hour=3/a.json"}),
        ("{in/a,in/b}.json", {"a.json", "b.json"}),
        ("in/?.json", {"a.json", "b.json"}),
        ("in/a.json", {"a.json"}),
        ("in/_b.json", {"_b.json"}),
        ("in/_manifest", {"_manifest/0.json"}),
        ("in/no*", set()),
        ("{in,./in}/*.json", {"a.json", "b.json"}),
        ("in/{a,../in/./a}.json", {"a.json"}),
        ("./{in/dt=2/../,in//}a.json", {"a.json"}),
    ],
)
def test_path_names_the_files_that_hadoop_finds(path: str, found: set[str]) -> None:
    tree("in")
    assert listed(path) == found


def test_recursive_lookup_reads_all_but_hidden_names() -> None:
    tree("in")
    deep = {name for name in _TREE if not any(part[0] in "._" and "=" not in part for part in name.split("/"))}
    assert listed("in", recursiveFileLookup="true") == deep - {"c.json._COPYING_"}
    Path("in/dt=1/back").symlink_to(Path("in").absolute())
    assert listed("in", recursiveFileLookup="true") == deep - {"c.json._COPYING_"}


def test_filter_of_names_is_a_hadoop_pattern() -> None:
    tree("in")
    assert listed("in", pathGlobFilter="{b,c}.js[!x]n") == {"b.json"}


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [  # as org.apache.hadoop.fs.GlobFilter of Hadoop 3.4 answers
        ("{ab,c{de,fh}}", ["ab", "cde", "cfh"], ["a", "c", "x"]),
        ("[!a]*", ["b", "^a", "]"], ["a", "ab"]),
        ("[]]", ["]"], ["a"]),
        (r"a\[1\]", ["a[1]"], ["a1"]),
        (r"{a,\{x\}}", ["a", "{x}"], ["x"]),
        ("[a,b]", ["a", "b", ","], ["a,b"]),
        ("a,b", ["a,b"], ["a", "b"]),
        ("a+(b)$", ["a+(b)$"], ["aab"]),
        ("[é-日]", ["é", "日"], ["a"]),
    ],
)
def test_patterns_fit_as_in_hadoop(pattern: str, fits: list[str], others: list[str]) -> None:
    assert [name for name in fits + others if fits_name(pattern, name)] == fits


@pytest.mark.parametrize("pattern", ["in/{a,b", "in/[ab", "in/[z-a]", "in\\"])
def test_open_pattern_is_refused_with_its_escape(pattern: str) -> None:
    with pytest.raises(SourceError, match="backslash"):
        [fits_name(part, "x") for part in alternatives(pattern)]


def test_path_is_no_pattern_whatever_folder_the_job_runs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("job [1] {a}*").mkdir()
    monkeypatch.chdir("job [1] {a}*")
    tree("in")
    assert listed("in/*.json") == {"a.json", "b.json"} == listed(f"{literal(os.getcwd())}/in/*.json")


# --- partition columns


def rows(path: str, schema: str, example: str, format_: str = "parquet", **options: str) -> list[dict[str, Any]]:
    source = SourceSpec.of(Source("s", format_, schema, {"path": path, **options}))
    found = [Descriptor("s", source.format, file, 0, 0, _end(file), 0) for file in list_files(source) if example in file]
    return [row for descriptor in found for batch in read(descriptor, source) for row in batch.to_pylist()]


def _end(file: str) -> int:
    return pq.read_metadata(file).num_rows if file.endswith("parquet") else os.path.getsize(file)


def test_partition_columns_are_those_of_duckdb() -> None:
    for day, hour in (("2024-01-31", "07"), ("2024-02-01", "08")):
        put(f"in/dt={day}/hour={hour}/city=K%C3%B6ln%2FS/a.parquet", k=[1, 2])
    ours = rows("in", "hour INT, k BIGINT, dt DATE", "")
    theirs = duckdb.sql("select hour::INT as hour, k, dt::DATE as dt from read_parquet('in/*/*/*/*', hive_partitioning = true)")
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs.to_arrow_table().to_pylist()))


def test_partition_value_wins_over_the_file_and_null_is_hives() -> None:
    put("in/dt=7/a.parquet", k=[1], dt=[3])
    put("in/dt=__HIVE_DEFAULT_PARTITION__/b.parquet", k=[2])
    assert rows("in", "k BIGINT, dt BIGINT", "") == [{"k": 1, "dt": 7}, {"k": 2, "dt": None}]
    assert rows("in/dt=7/*", "k BIGINT, dt BIGINT", "") == [{"k": 1, "dt": 3}]
    assert rows("in/dt=7/*", "k BIGINT, dt BIGINT", "", basePath="in") == [{"k": 1, "dt": 7}]
    assert rows("in", "dt BIGINT", "a.parquet") == [{"dt": 7}]


@pytest.mark.parametrize(("format_", "text"), [("csv", "1,x\n"), ("json", '{"k": 1, "v": "x"}\n')])
def test_partition_columns_come_with_text_formats(format_: str, text: str) -> None:
    Path("in/dt=2024-01-01 07%3A30%3A00").mkdir(parents=True)
    Path(f"in/dt=2024-01-01 07%3A30%3A00/a.{format_}").write_text(text)
    (row,) = rows("in", "dt TIMESTAMP_NTZ, k INT, v STRING", "", format_)
    assert (str(row["dt"]), row["k"], row["v"]) == ("2024-01-01 07:30:00", 1, "x")


def test_partition_value_of_another_type_names_file_and_column() -> None:
    put("in/dt=today/a.parquet", k=[1])
    with pytest.raises(SchemaMismatchError, match=r"dt=today/a.parquet: column 'dt' is declared date32.* 'today'; declare it"):
        rows("in", "k BIGINT, dt DATE", "")


# --- spellings


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%41b", "a b", "ä", "[a]", "{a,b}", "#"])
def test_file_uri_names_the_folder_that_its_path_names(name: str) -> None:
    tree(f"in/{name}", ("a.json",))
    path = os.path.realpath(f"in/{name}")
    assert listed(literal(path)) == {f"{name}/a.json"}
    encoded = literal(path.replace("%", "%25"))
    assert (
        listed(f"file:{encoded}") == listed(f"file://{encoded}") == listed(f"FILE://localhost{encoded}") == {f"{name}/a.json"}
    )
    assert local_path(f"file://{path.replace('%', '%25')}") == path


def test_encoded_characters_of_a_uri_are_no_pattern() -> None:
    tree("in", ("a.json", "*.json", "[b].json"))
    assert listed(f"file://{os.path.realpath('in')}/%2A.json") == {"*.json"}
    assert listed(f"file://{os.path.realpath('in')}/%5Bb%5D.json") == {"[b].json"}


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("file://in", r"names a machine, 'in': write file:///in, or a plain path"),
        ("file://server/data/in", r"names a machine, 'server'"),
        ("file:in", r"has no absolute path"),
        ("file:", r"has no absolute path"),
        ("S3A://bucket/in", r"only local paths"),
        ("in/\0", r"has a NUL character"),
    ],
)
def test_path_that_names_no_folder_here_is_refused(path: str, why: str) -> None:
    for spelt in local_path, pattern_of_place:
        with pytest.raises(SourceError, match=why):
            spelt(path)


def test_name_that_is_no_utf8_is_named() -> None:
    tree("in")
    Path(os.fsdecode(b"in/\xff.json")).write_text("{}")
    with pytest.raises(SourceError, match=r"in/.*udcff.json': the name of the file is not in UTF-8; rename it"):
        listed("in")


@pytest.mark.parametrize(("kind", "text"), [("INT", "0x10"), ("BIGINT", "0xFFFFFFFFFFFFFFFF"), ("TINYINT", "0xFF")])
def test_hexadecimal_partition_value_is_refused(kind: str, text: str) -> None:
    put(f"in/dt={text}/a.parquet", k=[1])
    with pytest.raises(SchemaMismatchError, match=f"column 'dt' is declared int.* '{text}'; declare it STRING"):
        rows("in", f"k BIGINT, dt {kind}", "")


@pytest.mark.parametrize("header", ["false", "true"])
@pytest.mark.parametrize(
    ("format_", "text", "count"),
    [
        ("parquet", "", 3),
        ("csv", 'k,v\n"x\ny",2\n\n3,4', 3),
        ("json", '{"k": 1}\n\n{}\n{"k": 2, "dt": "x"}\n', 3),
    ],
)
def test_files_whose_folders_give_all_columns_have_their_rows(format_: str, text: str, count: int, header: str) -> None:
    """As in Spark: a row for each of the file."""
    options = {"header": header} if format_ == "csv" else {}
    put("in/dt=7/h=1/a.parquet", k=[1, 2, 3], v=["a", None, "b"])
    if format_ != "parquet":
        os.remove("in/dt=7/h=1/a.parquet")
        Path(f"in/dt=7/h=1/a.{format_}").write_text(text)
    count -= options.get("header") == "true"
    assert rows("in", "dt BIGINT, h STRING", "", format_, **options) == [{"dt": 7, "h": "1"}] * count
    assert rows("in", "h STRING", "", format_, **options) == [{"h": "1"}] * count
    found = check(Source("s", format_, "dt BIGINT", {"path": "in", **options})).findings
    assert [finding.message for finding in found] == []


def test_part_of_a_row_group_has_its_own_rows_only() -> None:
    put("in/dt=7/a.parquet", k=[1, 2, 3])
    source = SourceSpec.of(Source("s", "parquet", "dt INT", {"path": "in"}))
    (file,) = list_files(source)
    parts = [Descriptor("s", "parquet", file, 0, 0, 2, 2), Descriptor("s", "parquet", file, 0, 2, 3, 1)]
    assert [sum(batch.num_rows for batch in read(part, source)) for part in parts] == [2, 1]


# --- identity of files


def names(stream: Stream, start: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    descriptors, end = stream.read(start)
    return [Path(descriptor.path).name for descriptor in descriptors], end


@pytest.mark.parametrize("move", [os.rename, shutil.copytree])
def test_job_that_moved_with_its_files_reads_only_new_ones(move: Any) -> None:
    put("one/in/a.parquet", key=[1])
    put("one/in/dt=1/a.parquet", key=[2])
    first = Stream(Path("one/log"), spec(Path("one/in")))
    read_first, end = names(first, {})
    assert len(read_first) == 2
    move("one", "two")
    shutil.rmtree("one", ignore_errors=True)
    put("two/in/b.parquet", key=[1])
    moved = Stream(Path("two/log"), spec(Path("two/in")))
    assert names(moved, end)[0] == ["b.parquet"]
    assert {os.path.exists(found.path) for found in moved.replay({}, end)} == {True}


def test_folder_of_other_files_with_the_same_names_is_read() -> None:
    put("monday/a.parquet", key=[1])
    put("tuesday/a.parquet", key=[2])
    first = Stream(Path("log"), spec(Path("monday")))
    _, end = names(first, {})
    assert names(Stream(Path("log"), spec(Path("tuesday"))), end)[0] == ["a.parquet"]


def test_same_bytes_in_another_folder_are_neither_read_twice_nor_passed_over() -> None:
    put("monday/a.parquet", key=[1])
    first = Stream(Path("log"), spec(Path("monday")))
    _, end = names(first, {})
    put("tuesday/a.parquet", key=[1])
    os.utime("tuesday/a.parquet", (1, 1))
    tuesday = Stream(Path("log"), spec(Path("tuesday")))
    for _ in range(2):
        with pytest.raises(SourceError, match=r"tuesday/a.parquet is byte for byte /.*/monday/a.parquet.* rename it"):
            names(tuesday, end)
    os.rename("tuesday/a.parquet", "tuesday/b.parquet")
    assert names(tuesday, end)[0] == ["b.parquet"]


def test_copy_with_its_times_or_under_a_link_is_known() -> None:
    put("monday/a.parquet", key=[1])
    first = Stream(Path("log"), spec(Path("monday")))
    _, end = names(first, {})
    shutil.copytree("monday", "copied")
    os.symlink("monday", "linked")
    for folder in "copied", "linked":
        assert names(Stream(Path("log"), spec(Path(folder))), end)[0] == []


def test_former_file_that_has_other_rows_by_now_makes_a_move() -> None:
    put("monday/a.parquet", key=[1])
    first = Stream(Path("log"), spec(Path("monday")))
    _, end = names(first, {})
    os.rename("monday", "tuesday")
    put("monday/a.parquet", key=[2])
    assert names(Stream(Path("log"), spec(Path("tuesday"))), end)[0] == []


# --- `validate`


def validated(capsys: pytest.CaptureFixture[str], **source: Any) -> tuple[int, str, str]:
    given = files(Path("in"), "key BIGINT") | source
    Path("t.yaml").write_text(yaml.safe_dump(manifest("t", [given], [counting()], [memory_sink("m", "counts")])))
    code = main(["validate", "t.yaml"])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_validate_says_how_many_files_and_rows_a_source_sees(capsys: pytest.CaptureFixture[str]) -> None:
    put("in/a.parquet", key=[1, 2])
    put("in/dt=1/a.parquet", key=[3])
    assert "source 'rows' sees 2 files, 3 rows" in validated(capsys)[1]
    tree("text", ("a.json", "b.json"))
    assert "source 'rows' sees 2 files, about 2 rows" in validated(capsys, format="json", options={"path": "text"})[1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"path": "in/*.csv"}, "no file matches"),
        ({"path": "in", "pathGlobFilter": "*.csv"}, "(there is a.parquet); correct it, or leave it out"),
        ({"path": "folders"}, "set options.recursiveFileLookup: true"),
        ({"path": "empty"}, "has no files: correct option path"),
        ({"path": "in[1]"}, "a backslash before each"),
    ],
)
def test_source_that_matches_nothing_is_a_warning(
    options: dict[str, str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put("in/a.parquet", key=[1])
    put("in[1]/a.parquet", key=[1])
    put("folders/2024/a.parquet", key=[1])
    Path("empty").mkdir()
    code, out, err = validated(capsys, options=options)
    assert code == 0
    assert sentence in err
    assert "sees 0 files, no rows" in out


def test_a_run_says_what_becomes_of_a_source_without_files() -> None:
    Path("empty").mkdir()
    empty = SourceSpec.of(Source("s", "parquet", "key BIGINT", {"path": "empty"}))
    assert next(nothing_to_read([empty], waits=True)).startswith("source 's' waits: folder ")
    assert next(nothing_to_read([empty], waits=False)).startswith("source 's' ends without rows: folder ")


def test_folders_next_to_files_that_are_not_read_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    put("in/a.parquet", key=[1])
    put("in/2023/a.parquet", key=[1])
    code, _, err = validated(capsys)
    assert (code, "the files in its folders (2023) are not read; set options.recursiveFileLookup" in err) == (0, True)
    assert "not read" not in validated(capsys, options={"path": "in", "recursiveFileLookup": True})[2]


def test_open_pattern_is_refused_by_validate(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = validated(capsys, options={"path": "in/{a,b"})
    assert code == 2
    assert "has an open {; close it, or write a backslash" in err
