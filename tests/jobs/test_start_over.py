"""`run --fresh` deletes what its own topology has left, and only once the user agrees."""

from __future__ import annotations

import io
import json
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import obstore
import pyarrow as pa
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from support.depth import deep
from support.stages import Flow, manifest

from streamtopology.jobs.admin.start_over import find_leftovers
from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, layout, open_store
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.connectors.sinks import BatchSink, Writer, open_sink
from streamtopology.jobs.connectors.sinks.writable import rows_of_others
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.jobs.runtime.topology_run import newest_fed
from streamtopology.lab.faults.bucket import ENVIRONMENT, Bucket
from streamtopology.topology import ManifestError, Topology, parse


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    wanted = manifest([operator], {"s": "k BIGINT"})
    sink = {"name": "n", "input": "n", "format": "parquet", "options": {"path": str(tmp_path / "out")}}
    return {**wanted, "spec": {**wanted["spec"], "sinks": [sink], "checkpoint": str(tmp_path / "checkpoint")}}


@pytest.fixture
def topology(given: dict[str, Any], tmp_path: Path) -> Topology:
    """Two batches of it have run, into a folder that holds a file of the user's, too."""
    topology = parse(dict(given))

    def sink(name: str, checkpoint: Checkpoint) -> BatchSink:
        return open_sink(topology.sinks[0], Writer("flow", checkpoint.run))

    flow = Flow(tmp_path, given, sink=sink)
    for keys in ([1, 2], [1]):
        flow.batch(s=pa.table({"k": keys}))
    (tmp_path / "out" / "notes.txt").write_text("mine")
    return topology


def test_fresh_deletes_checkpoint_and_output_and_nothing_else(topology: Topology, tmp_path: Path) -> None:
    leftovers = find_leftovers(topology, tmp_path)
    assert leftovers is not None
    assert f"output in {tmp_path / 'out'}: 2 batches" in leftovers.text()
    assert "as of batch 1" in leftovers.text()
    leftovers.delete()
    assert not (tmp_path / "checkpoint").exists()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]
    assert find_leftovers(topology, tmp_path) is None


def test_output_of_another_checkpoint_is_kept(topology: Topology, tmp_path: Path) -> None:
    owner = tmp_path / "out" / "_manifest" / "owner.json"
    owner.write_text(json.dumps({"topology": "flow", "run": "another"}))
    leftovers = find_leftovers(topology, tmp_path)
    assert leftovers is not None
    leftovers.delete()
    assert owner.exists()


def test_checkpoint_of_another_topology_is_refused(topology: Topology, given: dict[str, Any], tmp_path: Path) -> None:
    other = parse({**given, "metadata": {"name": "other"}})
    with pytest.raises(WrongUse, match="is that of topology 'flow', not of 'other'"):
        find_leftovers(other, tmp_path)


def test_fresh_asks_first_and_deletes_nothing_without_a_yes(
    topology: Topology, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(json.dumps(given))
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _="": "n")
    assert main(["run", str(path), "--fresh"]) == 2
    assert "nothing was deleted; without --fresh the run continues from the checkpoint" in capsys.readouterr().err
    assert (tmp_path / "checkpoint" / "header.json").exists()


def test_state_list_names_size_and_batch_of_each_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    Checkpoint.open(str(tmp_path / "build" / "small" / "checkpoint"), "small")
    assert main(["state", "list", "--work-dir", str(tmp_path / "build")]) == 0
    shown = capsys.readouterr().out
    assert " B  small  without any batch  " in shown
    assert "to delete one: streamtopology state delete FILE" in shown
    assert main(["state", "list", "--work-dir", str(tmp_path / "none")]) == 0
    assert "no checkpoints in" in capsys.readouterr().out


def test_state_delete_leaves_no_checkpoint(
    topology: Topology, given: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(json.dumps(given))
    assert main(["state", "delete", str(path), "--yes"]) == 0
    assert capsys.readouterr().out == "deleted; the next run starts over\n"
    assert find_leftovers(topology, tmp_path) is None
    assert main(["state", "delete", str(path), "--yes"]) == 0
    assert capsys.readouterr().out == "topology 'flow' has no checkpoint\n"


def test_newest_batch_with_rows_is_not_the_empty_one_after_it(
    topology: Topology, given: dict[str, Any], tmp_path: Path
) -> None:
    flow = Flow(tmp_path, given)
    flow.batch(s=pa.table({"k": pa.array([], pa.int64())}))
    checkpoint = Checkpoint.attach(str(tmp_path / "checkpoint"))
    assert (checkpoint.commits()[-1], newest_fed(checkpoint)) == (2, 1)


def test_fresh_without_a_terminal_names_the_option_that_agrees(
    topology: Topology, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(json.dumps(given))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["run", str(path), "--fresh"]) == 2
    assert "nobody is there to answer; --yes answers in advance" in capsys.readouterr().err
    assert (tmp_path / "checkpoint" / "header.json").exists()


# --- what is not ours ---

NAMES = st.text("abz09.-_", min_size=1, max_size=12).filter(lambda name: name.strip("."))
# The path of a file that anybody may have put anywhere, folder after folder.
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
OUR_FOLDERS = ("", "state", "state/n/0", "spark", "spark/offsets", "commits", "dead-letters", "other", "files/s", "outputs/n")
# The files of a checkpoint that has everything a checkpoint can have.
OURS = ZipFile(Path(__file__).parent / "formats/checkpoint-1.zip")
PREFIX = "checkpoint/"


def test_names_of_the_kept_checkpoint_are_ours() -> None:
    names = [name.removeprefix(PREFIX) for name in OURS.namelist() if name.startswith(PREFIX)]
    assert names
    assert all(map(layout.is_ours, names))


def test_drafts_and_checksums_are_ours_and_like_names_are_not() -> None:
    some_uuid = "01234567-0123-0123-0123-0123456789ab"
    ours = [
        f".header.json.{'a' * 32}.partial",
        f"commits/.7.json.{'0' * 32}.partial",
        "files/s/.000000000000.json.123",
        "files/s/initial.json",
        "outputs/sources.dead/1-1-0.arrow",
        "publications/3-1.complete",
        "publications/out/3.failed",
        "spark/.metadata.crc",
        "spark/sources/0/12.compact",
        f"spark/offsets/.7.{some_uuid}.tmp",
        f"spark/offsets/..7.{some_uuid}.tmp.crc",
    ]
    others = [
        "notes.txt",
        "state/2024-notes.txt",
        "commits/7.json.bak",
        "spark/.7",
        "header.json/x",
        "files/s/.note.1",
        ".partial",
    ]
    assert all(map(layout.is_ours, ours))
    assert not any(map(layout.is_ours, others))


@deep(gate=15, long=60)
@drawn(st.dictionaries(st.tuples(st.sampled_from(OUR_FOLDERS), PATHS), st.binary(max_size=9), max_size=6))
@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_deletion_leaves_all_files_of_others_and_none_of_ours(place: str, others: dict[tuple[str, str], bytes]) -> None:
    bucket = Bucket(lambda operation, path: None, lambda path, data: None)
    with ExitStack() as undo:
        folder = Path(undo.enter_context(TemporaryDirectory()))
        if place == "bucket":
            patch = undo.enter_context(pytest.MonkeyPatch.context())
            for name, value in ENVIRONMENT.items():
                patch.setenv(name, value)
            for name, function in bucket.functions().items():
                patch.setattr(obstore, name, function)
        uri = "s3://bucket/flow" if place == "bucket" else str(folder / "checkpoint")
        store = open_store(uri)
        for name in OURS.namelist():
            if name.startswith(PREFIX):
                store.create(name.removeprefix(PREFIX), OURS.read(name))
        kept: dict[str, bytes] = {}
        for (below, name), content in others.items():
            path = f"{below}/{name}".lstrip("/")
            with suppress(CheckpointError):  # a file of that name is a folder here
                if not layout.is_ours(path) and store.create(path, content):
                    kept[path] = content
        topology = parse(counting(uri))
        leftovers = find_leftovers(topology, folder)
        assert leftovers is not None
        assert ("not ours" in leftovers.text()) == bool(kept)
        leftovers.delete()
        assert {path: store.read(path) for path in store.list("")} == kept
        assert place == "bucket" or kept or not (folder / "checkpoint").exists()
        assert find_leftovers(topology, folder) is None


def counting(uri: str) -> dict[str, Any]:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    wanted = manifest([operator], {"s": "k BIGINT"})
    return {**wanted, "spec": {**wanted["spec"], "checkpoint": uri}}


def test_deletion_names_what_it_leaves_and_fresh_refuses_it(
    topology: Topology, given: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(json.dumps(given))
    for name in ("notes.txt", "other/thesis.tex", "state/n/mine"):
        (tmp_path / "checkpoint" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkpoint" / name).write_text("mine")
    assert main(["run", str(path), "--fresh", "--yes"]) == 2
    assert "also holds what is not ours, notes.txt, other/, state/n/mine" in capsys.readouterr().err
    assert find_leftovers(topology, tmp_path) is not None
    assert main(["state", "delete", str(path), "--yes"]) == 0
    assert "deleted, but for what is not ours in" in capsys.readouterr().out
    left = [each.name for each in (tmp_path / "checkpoint").rglob("*") if each.is_file()]
    assert sorted(left) == ["mine", "notes.txt", "thesis.tex"]


def test_folder_that_a_link_leads_to_stays(given: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "checkpoint").symlink_to(tmp_path / "disk")
    Checkpoint.open(str(tmp_path / "checkpoint"), "flow")
    leftovers = find_leftovers(parse(dict(given)), tmp_path)
    assert leftovers is not None
    leftovers.delete()
    assert (tmp_path / "checkpoint").is_symlink()
    assert list((tmp_path / "disk").iterdir()) == []


def test_files_of_others_outlive_the_sweeps_of_a_run(given: dict[str, Any], tmp_path: Path) -> None:
    flow, mine = Flow(tmp_path, given), []
    for name in ("state/0-notes.txt", "commits/mine.json", "epochs/mine", "batches/x", "copies/notes.txt", "migrations/1/mine"):
        mine.append(Path(flow.checkpoint.uri) / name)
        mine[-1].parent.mkdir(parents=True, exist_ok=True)
        mine[-1].write_text("mine")
    for number in range(6):
        flow.batch(s=pa.table({"k": [number]}))
    flow.checkpoint.precopies.release(1)
    flow.checkpoint.collect_garbage()
    assert {path.read_text() for path in mine} == {"mine"}


# --- where a checkpoint begins ---


@pytest.mark.parametrize("name", ["lost+found/x", ".snapshot/daily/notes.txt", ".gitkeep", f".header.json.{'0' * 32}.partial"])
def test_checkpoint_begins_next_to_what_is_nobodys(tmp_path: Path, name: str) -> None:
    (tmp_path / "checkpoint" / name).parent.mkdir(parents=True)
    (tmp_path / "checkpoint" / name).write_text("")
    (tmp_path / "checkpoint" / "empty").mkdir()
    assert Checkpoint.open(str(tmp_path / "checkpoint"), "flow").commits() == []
    assert (tmp_path / "checkpoint" / name).exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("notes.txt", "is no checkpoint, and not empty: it holds notes.txt. A checkpoint begins in an empty folder"),
        ("commits/1.json", "has files of a checkpoint, but no header.json: it holds commits/1.json"),
    ],
)
def test_checkpoint_does_not_begin_among_files(given: dict[str, Any], tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "checkpoint" / name).parent.mkdir(parents=True)
    (tmp_path / "checkpoint" / name).write_text("mine")
    with pytest.raises(CheckpointError, match=sentence):
        Checkpoint.open(str(tmp_path / "checkpoint"), "flow")
    with pytest.raises(ManifestError, match=f"spec.checkpoint.*{sentence}"):
        check_before_start(parse(dict(given)), tmp_path)


@pytest.mark.parametrize("file", ["checkpoint", "above"])
def test_file_in_the_place_of_a_checkpoint_is_refused(given: dict[str, Any], tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("mine")
    place = tmp_path / ("checkpoint" if file == "checkpoint" else "above/checkpoint")
    topology = parse({**given, "spec": {**given["spec"], "checkpoint": str(place)}})
    with pytest.raises(ManifestError, match=f"spec.checkpoint: checkpoint {place}: {tmp_path / file} is a file; name a folder"):
        check_before_start(topology, tmp_path)


@pytest.mark.parametrize(("name", "doubts"), [("theirs.parquet", 1), ("notes.txt", 0), ("_draft.parquet", 0)])
def test_rows_of_others_in_a_new_sinks_folder_are_a_warning(
    given: dict[str, Any], tmp_path: Path, name: str, doubts: int
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine")
    found = [doubt.message for doubt in rows_of_others(parse(dict(given)))]
    assert len(found) == doubts
    assert all(f"has files that this topology has not written, such as {name}" in sentence for sentence in found)
