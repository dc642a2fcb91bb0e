"""Mistakes that are refused before the start."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.manifests import counting, files, manifest, memory_sink

from streamtopology.contract.environment import HIDE_KEYS
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.connectors.folder_overlap import overlap_problems
from streamtopology.jobs.local.control_socket import ControlServer, Refused, claim
from streamtopology.jobs.local.run import as_baseline, open_run
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.jobs.runtime.topology_run import RunOptions, new_history
from streamtopology.topology import Doubt, ManifestError, Problem, parse


def test_a_second_run_is_refused_before_cluster_and_checkpoint_are_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, work_dir = tmp_path / "checkpoint", tmp_path / "work"
    given = manifest("twice", [files(tmp_path)], [counting()], [memory_sink("twice", "counts")], checkpoint=str(checkpoint))
    file = tmp_path / "twice.yaml"
    file.write_text(yaml.safe_dump(given))
    refusal = "topology 'twice' runs here already; stop it first: streamtopology stop twice"
    with ControlServer("twice", {}):
        assert main(["run", str(file), "--work-dir", str(work_dir)]) == 1
        assert refusal in capsys.readouterr().err
        topology = parse(given)
        with pytest.raises(Refused, match=refusal):  # both were started at once, and the other has been faster
            open_run(cast(Any, None), topology, tmp_path, new_history(topology), RunOptions(work_dir=work_dir))
    assert not checkpoint.exists()
    assert not work_dir.exists()


def test_wrong_switch_for_keys_is_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(HIDE_KEYS, "yes")
    file = tmp_path / "shy.yaml"
    file.write_text(yaml.safe_dump(manifest("shy", [files(tmp_path)], [counting()], [memory_sink("shy", "counts")])))
    assert main(["run", str(file), "--work-dir", str(tmp_path / "work")]) == 2
    assert capsys.readouterr().err.endswith("STREAMTOPOLOGY_HIDE_KEYS='yes': expected true or false\n")
    assert not (tmp_path / "work").exists()


def test_manifest_that_the_image_runs_to_compile_kernels_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that is no more has once ended the build of both images."""
    root = Path(__file__).parents[2]
    trades = str(root / "examples" / "data" / "trades")
    text = (root / "images" / "kernels.yaml").read_text().replace("/build/trades", trades)
    (tmp_path / "kernels.yaml").write_text(text)
    assert main(["validate", str(tmp_path / "kernels.yaml")]) == 0, capsys.readouterr().err


def test_a_name_is_claimed_before_spark_starts_and_free_again_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = tmp_path / "early.yaml"
    file.write_text(yaml.safe_dump(manifest("early", [files(tmp_path)], [counting()], [memory_sink("early", "counts")])))
    with claim("early"):
        assert main(["run", str(file), "--work-dir", str(tmp_path / "work")]) == 1
    assert f"topology 'early' is being started here by process {os.getpid()}; wait until it runs" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()
    with claim("early"):
        pass


def test_a_selected_column_that_is_a_word_of_sql_is_named_with_its_quoted_form(tmp_path: Path) -> None:
    source = files(tmp_path, "key BIGINT, at TIMESTAMP") | {"select": ["key", "at"]}
    given = manifest("quoted", [source], [counting()], [memory_sink("quoted", "counts")])
    with pytest.raises(ManifestError, match=r"spec\.sources\[0\]\.select\[1\]: .*did you mean '\"at\"'"):
        check_before_start(parse(given), tmp_path)


@pytest.mark.parametrize("command", ["run", "validate", "apply", "simulate"])
def test_a_manifest_that_cannot_be_read_is_wrong_use(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, why in (("nosuch.yaml", "No such file or directory"), (str(tmp_path), "Is a directory")):
        assert main([command, path]) == 2
        assert capsys.readouterr().err == f"streamtopology: cannot read {path}: {why}\n"


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--duration", "abc", "a duration such as 10us"),
        ("--duration", "90", "a number alone has no unit"),
        ("--port", "70000", "'70000' is not a port: a number from 1 to 65535, or 0 for any free one"),
        ("--port", "-1", "'-1' is not a port"),
        ("--port", "http", "'http' is not a port"),
    ],
)
def test_an_option_that_cannot_be_is_wrong_use(option: str, value: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "any.yaml", f"{option}={value}"]) == 2
    assert why in capsys.readouterr().err


def test_a_port_that_is_taken_is_refused_before_cluster_and_checkpoint_are_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = manifest("served", [files(tmp_path)], [counting()], [memory_sink("served", "counts")])
    file, work_dir = tmp_path / "served.yaml", tmp_path / "work"
    file.write_text(yaml.safe_dump(given))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["run", str(file), "--work-dir", str(work_dir), "--port", str(port)]) == 1
    reported = capsys.readouterr().err
    assert f"cannot serve on 127.0.0.1:{port}: the port is taken; choose another one" in reported
    assert not work_dir.exists()


def chain(folder: Path, first: dict[str, object], second: dict[str, object]) -> dict[str, object]:
    """Two operators by `locality`, one after the other."""
    one = counting("first", policy="locality", **first)
    return manifest(
        "chain",
        [files(folder)],
        [one, counting("second", of="first", policy="locality", **second)],
        [memory_sink("chain", "second")],
    )


def test_locality_wants_key_columns_passed_on_and_one_parallelism(tmp_path: Path) -> None:
    check_before_start(parse(chain(tmp_path, {"with": {"emit": "tuples"}}, {})), tmp_path)
    unequal = chain(tmp_path, {"with": {"emit": "tuples"}, "parallelism": 2}, {"parallelism": 3})
    with pytest.raises(
        ManifestError, match=r"'first' and 'second' are planned together .* the same parallelism; found 2 and 3"
    ):
        check_before_start(parse(unequal), tmp_path)
    keyed = {"grouping": {"policy": "locality", "key": "value"}}
    mapped = chain(tmp_path, {"run": "map", "with": {"select": ["value"]}}, keyed)
    with pytest.raises(ManifestError, match=r"operator 'first': it does not pass its key column 'key' on.*emit it"):
        check_before_start(parse(mapped), tmp_path)


def overlaps(read: str, written: str, capsys: pytest.CaptureFixture[str], command: str = "validate") -> list[str]:
    """The lines that `command` prints of a sink in the folder `written`, with a source that reads `read`."""
    sink: dict[str, Any] = {"name": "out", "input": "counts", "format": "parquet", "options": {"path": written}}
    Path("loop.yaml").write_text(yaml.safe_dump(manifest("loop", [files(Path(read))], [counting()], [sink])))
    code = main([command, "loop.yaml"])
    lines = [line.strip() for line in capsys.readouterr().err.splitlines() if "that source" in line]
    assert code == (2 if lines or command == "run" else 0)
    return lines


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current folder with `data/day=1/a.parquet` and `data/a.parquet`."""
    monkeypatch.chdir(tmp_path)
    Path("data/day=1").mkdir(parents=True)
    for path in ("data/a.parquet", "data/day=1/a.parquet"):
        pq.write_table(pa.table({"key": [1], "value": [1]}), path)


@pytest.mark.parametrize(
    ("read", "written", "relation"),
    [
        ("data", "data", "is"),
        ("data", "./x/../data/", "is"),
        ("data", "data/out", "lies in"),
        ("data/day=1", "data", "contains"),
        ("data/*.parquet", "data", "is"),
        ("data/*/*.parquet", "data/out", "is"),
        ("data/*/*.parquet", "data", "contains"),
        ("data/day=*", "data/day=2/out", "lies in"),
        ("data/a.parquet", "data", "is"),
        ("data", "link", "is"),
        ("data", "data-out", None),
        ("data", "out", None),
        ("data/a.parquet", "data/out", None),
        ("data/*.parquet", "data/out", None),
        ("data/day=*", "data/out", None),
        ("data/day=1", "data/day=2", None),
        ("{data,more}", "data", "is"),
        ("{more,data/day=*}", "data/day=2/out", "lies in"),
        ("link/day=1", "data/day=1/", "is"),
    ],
)
@pytest.mark.usefixtures("data")
def test_sink_in_the_folder_of_a_source_is_a_problem(
    read: str, written: str, relation: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("link").symlink_to("data")
    expected = f"sink 'out': {written} {relation} the folder that source 'rows' reads"
    assert [expected in line for line in overlaps(read, written, capsys)] == ([] if relation is None else [True])


@pytest.mark.usefixtures("data")
def test_sink_in_the_folder_of_a_source_is_refused_by_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert overlaps("data", "data", capsys, "run") == [
        "spec.sinks[0].options.path: sink 'out': data is the folder that source 'rows' reads: the sink's files would become "
        "input; give the sink a folder of its own, apart from it"
    ]


@pytest.mark.parametrize(
    ("read", "link", "target", "relation"),
    [
        ("data", "data/day=2", "out", "is by a link"),
        ("data/day=*", "data/day=2", "out", "is by a link"),
        ("data", "data/day=1/hour=1", ".", "lies in by a link"),
        ("data", "data/day=2", "out/batches", "contains by a link"),
        ("data", "data/more", "out", None),
        ("data", "data/_hidden", "out", None),
        ("data/*.parquet", "data/day=2", "out", None),
        ("data", "data/day=2", "other", None),
        ("data", "data/day=2", "data", None),
    ],
)
@pytest.mark.usefixtures("data")
def test_sink_that_a_source_reads_by_a_link_is_a_problem(
    read: str, link: str, target: str, relation: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in "out/batches", "other":
        Path(folder).mkdir(parents=True)
    Path(link).symlink_to(Path(target).resolve())
    expected = f"sink 'out': out {relation} the folder that source 'rows' reads"
    assert [expected in line for line in overlaps(read, "out", capsys)] == ([] if relation is None else [True])


def meeting(capsys: pytest.CaptureFixture[str], *sinks: dict[str, Any], code: int = 2, **spec: Any) -> list[str]:
    """The lines that `validate` prints about the places of a topology with these options of sinks."""
    given = [
        {"name": f"out{number}", "input": "counts", "format": "kafka" if "topic" in options else "parquet", "options": options}
        for number, options in enumerate(sinks)
    ]
    source = spec.pop("source", files(Path("data")))
    Path("meet.yaml").write_text(yaml.safe_dump(manifest("meet", [source], [counting()], given, **spec)))
    assert main(["validate", "meet.yaml"]) == code
    places = ("the folder", "topic", "the checkpoint")
    return [line.strip() for line in capsys.readouterr().err.splitlines() if any(place in line for place in places)]


@pytest.mark.parametrize("other", ["./out", "out/", "x/../out", "link", "file:out"])
@pytest.mark.usefixtures("data")
def test_two_sinks_in_one_folder_are_a_problem(other: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("link").symlink_to("out")
    other = other.replace("file:", f"file://{Path.cwd()}/")
    (line,) = meeting(capsys, {"path": "out"}, {"path": other})
    assert f"sink 'out1': {other} is the folder of sink 'out0'" in line
    assert meeting(capsys, {"path": "out"}, {"path": "out2"}, code=0) == []


@pytest.mark.usefixtures("data")
def test_two_sinks_at_one_place_of_a_bucket_are_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = meeting(capsys, {"path": "s3://b/out"}, {"path": "s3://b/out/"})
    assert "sink 'out1': s3://b/out/ is the folder of sink 'out0'" in line
    assert meeting(capsys, {"path": "s3://b/out"}, {"path": "s3://b/out2"}, code=0) == []


@pytest.mark.parametrize(
    ("sink", "checkpoint", "relation"),
    [
        ("ck", "ck", "is"),
        ("ck/out", "./ck/", "lies in"),
        ("out", "out/ck", "contains"),
        ("ck2", "ck", None),
        ("s3://b/ck/out/", "s3://b/ck", "lies in"),
        ("s3://b/ck2", "s3://b/ck", None),
        ("s3://c/ck", "s3://b/ck", None),
        ("ck", "s3://b/ck", None),
    ],
)
@pytest.mark.usefixtures("data")
def test_sink_in_the_checkpoint_is_a_problem(
    sink: str, checkpoint: str, relation: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = meeting(capsys, {"path": sink}, checkpoint=checkpoint, code=2 if relation else 0)
    assert [f"{sink} {relation} the checkpoint {checkpoint}" in line for line in lines] == ([True] if relation else [])


@pytest.mark.usefixtures("data")
def test_checkpoint_that_a_source_would_read_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    out, everywhere = {"path": "out"}, files(Path("data"), recursiveFileLookup=True)
    assert meeting(capsys, out, checkpoint="data/ck", code=0) == []
    (line,) = meeting(capsys, out, checkpoint="data/ck", source=everywhere)
    assert "source 'rows': the checkpoint data/ck lies in the folder that it reads: its own state and dead letters" in line
    assert len(meeting(capsys, out, checkpoint="data/day=1", source=files(Path("data/*")))) == 1
    Path("data/day=3").symlink_to(Path("ck").resolve())
    Path("ck").mkdir()
    (line,) = meeting(capsys, out, checkpoint="ck")
    assert "the checkpoint ck is by a link the folder that it reads" in line


@pytest.mark.parametrize("place", ["data\0", "file://data", "file:data"])
@pytest.mark.usefixtures("data")
def test_place_that_is_no_path_is_named_by_validate(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    sink: dict[str, Any] = {"name": "out", "input": "counts", "format": "parquet", "options": {"path": place}}
    Path("t.yaml").write_text(
        yaml.safe_dump(manifest("t", [files(Path("data")) | {"options": {"path": place}}], [counting()], [sink]))
    )
    assert main(["validate", "t.yaml"]) == 2
    printed = capsys.readouterr().err
    assert "spec.sources[0].options.path" in printed
    assert "spec.sinks[0].options.path" in printed


@pytest.mark.parametrize(
    "topics", [{"subscribe": "a, words"}, {"subscribePattern": "w.*s"}], ids=["by their names", "by a pattern"]
)
def test_topics_that_meet_are_named(topics: dict[str, str]) -> None:
    servers = {"kafka.bootstrap.servers": "one:9092, two:9092"}
    source = {"name": "rows", "format": "kafka", "options": {"kafka.bootstrap.servers": "TWO:9092", **topics}}
    sinks = [
        {"name": name, "input": "m", "format": "kafka", "options": {"topic": "words", **options}}
        for name, options in (("x", servers), ("y", {"kafka.bootstrap.servers": "three:9092"}), ("z", servers))
    ]
    operator = {"name": "m", "inputs": ["rows"], "run": "map", "with": {"select": ["value"]}}
    found = list(overlap_problems(parse(manifest("loop", [source], [operator], sinks))))
    assert [(finding.path[11:], type(finding)) for finding in found] == [
        ("0].options.topic", Problem),
        ("2].options.topic", Problem),
        ("2].options.topic", Doubt),
    ]


def test_baseline_writes_next_to_the_run_and_not_into_its_folders(tmp_path: Path) -> None:
    sink = {"name": "out", "input": "counts", "format": "json", "options": {"path": f"{tmp_path}/out/"}}
    given = parse(manifest("twice", [files(tmp_path)], [counting()], [sink], checkpoint="s3://bucket/checkpoint/"))
    baseline = as_baseline(given, "fields")
    assert baseline.sinks[0].options["path"] == f"{tmp_path}/out-fields"
    assert baseline.checkpoint == "s3://bucket/checkpoint-fields"
