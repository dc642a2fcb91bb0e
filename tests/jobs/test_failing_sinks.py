"""A sink that cannot take a committed batch: the run stops with the ways out, and each of them loses nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import yaml
from support.connectors import stage
from support.stages import Flow, manifest

from streamtopology import topology
from streamtopology.jobs.checkpoint import Checkpoint, SourceEnd
from streamtopology.jobs.checkpoint.copying import copy_checkpoint
from streamtopology.jobs.checkpoint.open_store import open_store
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.connectors.sinks import BatchSink, SinkError, Writer, open_sink
from streamtopology.jobs.connectors.sinks.base import staged_table
from streamtopology.jobs.driver.publisher import Publisher
from streamtopology.topology import parse


class Killed(BaseException):
    """The end of a process at once."""


class Fickle:
    """A sink that takes nothing while something is in its way."""

    def __init__(self) -> None:
        self.in_the_way: BaseException | None = None
        self.batches: dict[int, list[int]] = {}

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        if self.in_the_way:
            raise self.in_the_way
        table = staged_table(files)
        self.batches.setdefault(batch, [] if table is None else sorted(table["v"].to_pylist()))

    def close(self) -> None:
        pass


def manifest_of(folder: Path, *sinks: str) -> dict[str, Any]:
    passing = {"name": "all", "inputs": ["s"], "run": "filter", "with": {"where": "true"}}
    given = [{"name": name, "input": "all", "format": "parquet", "options": {"path": str(folder / name)}} for name in sinks]
    return manifest([passing], {"s": "v BIGINT"}, sinks=given, checkpoint=str(folder / "checkpoint"))


def rows_of(*values: int) -> pa.Table:
    return pa.table({"v": pa.array(values, pa.int64())})


def write_file(folder: Path, *sinks: str) -> None:
    """The manifest of the commands, which has a name of its own: commands of one name exclude each other on a machine."""
    made = manifest_of(folder, *sinks)
    made["metadata"]["name"] = "failing-sinks"
    (folder / "t.yaml").write_text(yaml.safe_dump(made))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_file(tmp_path, "a", "b")
    return tmp_path


def flow_with(folder: Path, sinks: Mapping[str, Fickle]) -> Flow:
    return Flow(folder, manifest_of(folder, *sinks), sink=lambda name, checkpoint: sinks[name])


def killed_at_batch_1(folder: Path) -> tuple[Flow, dict[str, Fickle]]:
    """A flow whose driver is killed after the commit of batch 1, before sink `a` has it."""
    sinks = {"a": Fickle(), "b": Fickle()}
    flow = flow_with(folder, sinks)
    flow.batch(s=rows_of(1))
    sinks["a"].in_the_way = Killed()
    with pytest.raises(Killed):
        flow.batch(s=rows_of(2, 3))
    return flow, sinks


def stopped_at_batch_1(folder: Path, why: Exception) -> tuple[Flow, dict[str, Fickle], str]:
    """A flow whose sink `a` has not taken batch 1, and the error that it stopped with."""
    sinks = {"a": Fickle(), "b": Fickle()}
    flow = flow_with(folder, sinks)
    flow.batch(s=rows_of(1))
    sinks["a"].in_the_way = why
    with pytest.raises(SinkError) as failed:
        flow.batch(s=rows_of(2, 3))
    return flow, sinks, str(failed.value)


def exported(folder: Path) -> list[int]:
    (file,) = folder.iterdir()
    assert file.name == "failing-sinks-a-batch-000000001.parquet"
    return sorted(pq.read_table(file)["v"].to_pylist())


@pytest.mark.parametrize(
    "why", [SinkError("sink 'a': no"), OSError(28, "No space left on device", "/x"), pa.ArrowInvalid("no"), ValueError("no")]
)
def test_sink_that_fails_names_batch_and_ways_out(folder: Path, why: Exception) -> None:
    _, sinks, message = stopped_at_batch_1(folder, why)
    assert message.startswith("sink 'a'")
    assert str(why) in message
    assert "Batch 1 is committed" in message
    assert "streamtopology state export-batch MANIFEST --sink a --to FOLDER" in message
    assert sinks["b"].batches == {0: [1], 1: [2, 3]}, "the other sinks have the batch"


def test_sink_that_is_mended_gets_the_batch_at_the_next_start(folder: Path) -> None:
    flow, sinks, _ = stopped_at_batch_1(folder, OSError("away"))
    with pytest.raises(SinkError, match="Batch 1 is committed"):
        flow.start(manifest_of(folder, "a", "b"))
    sinks["a"].in_the_way = None
    flow.start(manifest_of(folder, "a", "b"))
    flow.batch(s=rows_of(4))
    assert sinks["a"].batches == sinks["b"].batches == {0: [1], 1: [2, 3], 2: [4]}


def test_exported_batch_is_in_the_folder_and_not_in_the_sink(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow, sinks, _ = stopped_at_batch_1(folder, OSError("never"))
    assert main(["state", "export-batch", "t.yaml", "--sink", "a", "--to", "left/out"]) == 0
    assert "sink 'a': 2 rows of batch 1 are in " in capsys.readouterr().out
    assert exported(folder / "left/out") == [2, 3]
    flow.start(manifest_of(folder, "a", "b"))
    sinks["a"].in_the_way = None
    flow.start(manifest_of(folder, "a", "b"))
    flow.batch(s=rows_of(4))
    assert sinks["a"].batches == {0: [1], 2: [4]}
    assert sinks["b"].batches == {0: [1], 1: [2, 3], 2: [4]}


def test_batch_is_exported_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped_at_batch_1(folder, OSError("never"))
    assert main(["state", "export-batch", "t.yaml", "--sink", "a", "--to", "out"]) == 0
    assert main(["state", "export-batch", "t.yaml", "--sink", "a", "--to", "elsewhere"]) == 2
    assert "was exported for sink 'a' already, to" in capsys.readouterr().err
    assert not (folder / "elsewhere").exists()


def test_export_refuses_unknown_sinks_and_batches_that_the_sink_has(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow, _, _ = stopped_at_batch_1(folder, OSError("never"))
    assert main(["state", "export-batch", "t.yaml", "--sink", "c", "--to", "out"]) == 2
    assert "there is no sink 'c'; there are: a, b" in capsys.readouterr().err
    with flow.checkpoint.at_hand(flow.last.outputs["b"]) as files:
        open_sink(flow.topology.sinks[1], Writer("flow", flow.checkpoint.run)).publish(1, files)
    assert main(["state", "export-batch", "t.yaml", "--sink", "b", "--to", "out"]) == 2
    assert "sink 'b' has batch 1 already" in capsys.readouterr().err
    assert main(["state", "export-batch", "t.yaml", "--sink", "a", "--to", "t.yaml/x"]) == 2
    assert "cannot write to" in capsys.readouterr().err


def test_rows_that_parquet_cannot_hold_are_exported_as_arrow(folder: Path) -> None:
    """The sink that took them may have been of another format."""
    flow, _, _ = stopped_at_batch_1(folder, OSError("never"))
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([7])])
    rows = pa.RecordBatch.from_arrays([union], ["u"])
    for staged in flow.last.outputs["a"]:
        (folder / "checkpoint" / staged).unlink()
        stage(folder / "checkpoint" / staged, rows.schema, [rows])
    assert main(["state", "export-batch", "t.yaml", "--sink", "a", "--to", "out"]) == 0
    with pa.ipc.open_stream((folder / "out/failing-sinks-a-batch-000000001.arrow").read_bytes()) as reader:
        assert set(reader.read_all()["u"].to_pylist()) == {7}


def test_sink_with_a_waiting_batch_cannot_leave_the_manifest(folder: Path) -> None:
    flow, sinks, _ = stopped_at_batch_1(folder, OSError("never"))
    with pytest.raises(SinkError, match=r"sink 'a' is not in the manifest any more, and batch 1 .* MANIFEST --sink a"):
        flow.start(manifest_of(folder, "b"))
    write_file(folder, "b")
    assert main(["state", "export-batch", "t.yaml", "--sink", "a", "--to", "out"]) == 0
    flow.start(manifest_of(folder, "b"))
    flow.batch(s=rows_of(4))
    assert exported(folder / "out") == [2, 3]
    assert sinks["b"].batches == {0: [1], 1: [2, 3], 2: [4]}


def test_sink_that_has_its_batch_again_may_leave(folder: Path) -> None:
    flow, sinks, _ = stopped_at_batch_1(folder, OSError("for now"))
    sinks["a"].in_the_way = None
    flow.start(manifest_of(folder, "a", "b"))
    flow.start(manifest_of(folder, "b"))
    assert not flow.checkpoint.publications.known()


def test_sink_that_leaves_after_a_kill_gets_its_last_batch(folder: Path) -> None:
    flow, sinks = killed_at_batch_1(folder)
    sinks["a"].in_the_way = None
    flow.start(manifest_of(folder, "b"))
    flow.batch(s=rows_of(4))
    assert sinks["a"].batches == {0: [1], 1: [2, 3]}
    assert sinks["b"].batches == {0: [1], 1: [2, 3], 2: [4]}


def test_sink_that_leaves_after_a_kill_and_cannot_take_its_last_batch_is_named(folder: Path) -> None:
    flow, sinks = killed_at_batch_1(folder)
    sinks["a"].in_the_way = OSError("away")
    with pytest.raises(SinkError, match=r"sink 'a' is not in the manifest any more, and batch 1 .* cannot take a batch: away"):
        flow.start(manifest_of(folder, "b"))
    write_file(folder, "b")
    assert main(["state", "export-batch", "t.yaml", "--sink", "a", "--to", "out"]) == 0
    flow.start(manifest_of(folder, "b"))
    assert exported(folder / "out") == [2, 3]


def test_sink_that_leaves_after_an_end_in_order_is_not_asked_again(folder: Path) -> None:
    sinks = {"a": Fickle(), "b": Fickle()}
    flow = flow_with(folder, sinks)
    flow.batch(s=rows_of(1))
    flow.driver.publisher.close()
    sinks["a"].in_the_way = OSError("taken down")
    flow.start(manifest_of(folder, "b"))
    flow.batch(s=rows_of(2))
    flow.driver.publisher.close()
    assert sinks["b"].batches == {0: [1], 1: [2]}
    assert flow.checkpoint.publications.known() == {f"publications/{n}-1.complete" for n in (0, 1)}


def test_end_of_a_run_that_could_not_publish_is_not_complete(folder: Path) -> None:
    flow, _, _ = stopped_at_batch_1(folder, OSError("never"))
    flow.driver.publisher.close()
    assert flow.checkpoint.publications.known() == {"publications/a/1.failed"}


def test_dead_letters_of_a_killed_run_are_kept_whatever_the_next_manifest(folder: Path) -> None:
    given = manifest_of(folder, "a")
    given["spec"]["operators"][0]["with"]["where"] = "CASE WHEN v < 2 THEN true ELSE error(v::TEXT) END"
    strict = parse(given)
    given["spec"]["onBadTuple"] = "deadLetter"
    flow = Flow(folder, given)
    flow.batch(s=rows_of(1, 2))
    Publisher.of(flow.checkpoint, strict, Path()).publish_again(flow.last, flow.topology)
    (letters,) = (folder / "checkpoint/dead-letters").iterdir()
    assert json.loads(json.loads(letters.read_text())["tuple"]) == {"v": 2}


def test_watermark_is_set_after_the_newest_batch_has_reached_a_sink_that_left(folder: Path) -> None:
    flow, _ = killed_at_batch_1(folder)
    write_file(folder, "b")
    assert main(["state", "watermark", "t.yaml", "--set", "1970-01-01T00:00:14Z"]) == 0
    assert sorted(ds.dataset(folder / "a", format="parquet").to_table()["v"].to_pylist()) == [2, 3]
    assert flow.checkpoint.last_commit() is not None


def test_notes_go_with_the_commits_that_they_are_about(folder: Path) -> None:
    flow, sinks, _ = stopped_at_batch_1(folder, OSError("never"))
    flow.checkpoint.publications.exported("a", 1, "there")
    sinks["a"].in_the_way = None
    flow.start(manifest_of(folder, "a", "b"))
    for value in range(5):
        flow.batch(s=rows_of(value))
    flow.checkpoint.collect_garbage()
    assert not flow.checkpoint.publications.known()
    assert sorted(sinks["a"].batches) == [0, 2, 3, 4, 5, 6]


def moved_to(folder: Path, **paths: str) -> dict[str, Any]:
    """A manifest with sinks in these folders."""
    made = manifest_of(folder, *paths)
    for sink in made["spec"]["sinks"]:
        sink["options"]["path"] = paths[sink["name"]]
    return made


def real(folder: Path, flow: Flow, **paths: str) -> Publisher:
    """The publisher of a new process, to folders."""
    return Publisher.of(flow.checkpoint, parse(moved_to(folder, **paths)), folder)


def test_waiting_batch_goes_to_the_new_place_of_its_sink(folder: Path) -> None:
    flow, _, _ = stopped_at_batch_1(folder, OSError("never"))
    real(folder, flow, a="new/a", b="new/b").publish(flow.last)
    assert sorted(ds.dataset("new/a", format="parquet").to_table()["v"].to_pylist()) == [2, 3]


def rows_in(place: str) -> list[int]:
    return sorted(ds.dataset(place, format="parquet").to_table()["v"].to_pylist())


@pytest.mark.parametrize("ends_in_order", [True, False])
def test_sink_with_another_place_begins_there_with_the_next_batch(folder: Path, ends_in_order: bool) -> None:
    """Readers of both folders counted the last batch twice."""
    flow = flow_with(folder, {"a": Fickle()})
    flow.batch(s=rows_of(1))
    first = real(folder, flow, a="november")
    former = parse(moved_to(folder, a="november"))
    first.publish(flow.last)
    if ends_in_order:
        first.close()
        shutil.rmtree("november/_manifest")  # the note in the checkpoint is enough
    second = real(folder, flow, a="december")
    second.publish_again(flow.last, former)
    flow.batch(s=rows_of(2))
    second.publish(flow.last)
    assert (rows_in("november"), rows_in("december")) == ([1], [2])


def test_folder_that_is_moved_away_between_two_runs_has_its_last_batch_alone(folder: Path) -> None:
    flow = flow_with(folder, {"a": Fickle()})
    flow.batch(s=rows_of(1))
    first = real(folder, flow, a="out")
    first.publish(flow.last)
    first.close()
    Path("out").rename("november")
    second = real(folder, flow, a="out")
    second.publish_again(flow.last, parse(moved_to(folder, a="out")))
    flow.batch(s=rows_of(2))
    second.publish(flow.last)
    assert (rows_in("november"), rows_in("out")) == ([1], [2])


def test_sink_that_gets_another_place_after_a_kill_gets_its_last_batch_there(folder: Path) -> None:
    flow, _ = killed_at_batch_1(folder)
    real(folder, flow, a="december", b="b").publish_again(flow.last, parse(moved_to(folder, a="november")))
    assert rows_in("december") == [2, 3]


def test_batch_that_the_former_place_has_otherwise_goes_to_the_new_one(folder: Path) -> None:
    """A restored checkpoint: the folder has batch 0 of another life, refuses this one, and is given another path."""
    flow = flow_with(folder, {"a": Fickle()})
    flow.batch(s=rows_of(1))
    now = replace(flow.last, end=SourceEnd({"s": 1}, None))
    real(folder, flow, a="november").publish(replace(now, end=SourceEnd({"s": 2}, None)))
    with pytest.raises(SinkError, match=r"november has another batch 0.*give the sink another place"):
        real(folder, flow, a="november").publish(now)
    real(folder, flow, a="december").publish_again(now, parse(moved_to(folder, a="november")))
    assert rows_in("december") == [1]


def test_sink_that_cannot_be_opened_is_named(folder: Path) -> None:
    flow, _, _ = stopped_at_batch_1(folder, OSError("never"))
    (folder / "file").write_text("")
    with pytest.raises(SinkError, match=r"sink 'a' cannot be opened: .*Not a directory: '.*file"):
        real(folder, flow, a="file/a", b="b")


def test_notes_go_with_the_copy_that_continues_the_original(folder: Path) -> None:
    flow, _, _ = stopped_at_batch_1(folder, OSError("never"))
    flow.checkpoint.publications.exported("a", 1, "there")
    copy_checkpoint(flow.checkpoint, open_store(str(folder / "own")), "flow", "Own")
    assert Checkpoint.attach(str(folder / "own")).publications.exported_to("a", 1) == "there"
    copy_checkpoint(flow.checkpoint, open_store(str(folder / "clone")), "flow", "Clone")
    assert Checkpoint.attach(str(folder / "clone")).publications.exported_to("a", 1) is None


# --- sinks in folders


def folder_sink(path: Path, file_per_task: str = "false") -> BatchSink:
    options = {"path": str(path), "filePerTask": file_per_task}
    return open_sink(topology.Sink("out", "all", "parquet", options), Writer("flow", "run"))


def staged(folder: Path, *values: int) -> list[Path]:
    path = folder / f"{values[0]}.arrow"
    stage(path, rows_of().schema, rows_of(*values).to_batches())
    return [path]


@pytest.mark.parametrize("file_per_task", ["false", "true"])
def test_folder_that_was_deleted_is_made_again(folder: Path, file_per_task: str) -> None:
    sink = folder_sink(folder / "out", file_per_task)
    sink.publish(0, staged(folder, 1))
    shutil.rmtree(folder / "out")
    sink.publish(1, staged(folder, 2))
    assert ds.dataset("out", format="parquet").to_table()["v"].to_pylist() == [2]
    assert json.loads((folder / "out/_manifest/owner.json").read_text())["sink"] == "out"


@pytest.mark.parametrize(("before", "after"), [("false", "true"), ("true", "false")])
def test_batch_that_was_placed_before_an_edit_is_there_once(folder: Path, before: str, after: str) -> None:
    """A driver is killed between a batch's move into place and its entry, and filePerTask is changed."""
    folder_sink(folder / "out", before).publish(0, staged(folder, 1))
    folder_sink(folder / "out", before).publish(1, staged(folder, 2, 3))
    (folder / "out/_manifest/000000001.json").unlink()
    folder_sink(folder / "out", after).publish(1, staged(folder, 2, 3))
    assert rows_in("out") == [1, 2, 3]


@pytest.mark.parametrize("file_per_task", ["false", "true"])
def test_pattern_of_a_reader_fits_no_draft(folder: Path, monkeypatch: pytest.MonkeyPatch, file_per_task: str) -> None:
    """A reader looks at each moment at which a draft is synced, which is when it is complete."""
    from streamtopology.jobs.connectors.sinks import folder as module

    sink = folder_sink(folder / "out", file_per_task)
    sink.publish(0, staged(folder, 1))
    seen: list[int] = []
    sync: Callable[[Path], None] = module.sync

    def look(path: Path) -> None:
        ((count,),) = duckdb.connect().execute("SELECT count(*) FROM 'out/**/*.parquet'").fetchall()
        seen.append(count)
        sync(path)

    monkeypatch.setattr(module, "sync", look)
    sink.publish(1, staged(folder, 2))
    assert seen == [1, 2], "the draft is synced, then the manifest's entry"


@pytest.mark.parametrize("file_per_task", ["false", "true"])
def test_drafts_of_a_dead_process_are_removed(folder: Path, file_per_task: str) -> None:
    folder_sink(folder / "out").close()
    (folder / "out/.batch-000000007.draft").write_bytes(b"half")
    for name, part in ((".batch-000000008.draft", "part-00000.draft"), (".batch-000000009.former", "part-00000.parquet")):
        (folder / "out" / name).mkdir()
        (folder / "out" / name / part).write_bytes(b"half")
    folder_sink(folder / "out", file_per_task).close()
    assert [path.name for path in (folder / "out").iterdir()] == ["_manifest"]
