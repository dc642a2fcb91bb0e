"""Copies of whole checkpoints: killed and continued at any step, and of a topology that runs on meanwhile."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support.processes import apart
from support.stages import Flow, counted, counting, counts

from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, LocalStore, SourceEnd
from streamtopology.jobs.checkpoint.copying import copy_checkpoint
from streamtopology.jobs.checkpoint.filesystem import Content, Pieces
from streamtopology.jobs.checkpoint.holds import LONGEST_SECONDS
from streamtopology.jobs.checkpoint.records import CopyHold
from streamtopology.jobs.cli.pods import snapshot
from streamtopology.jobs.driver.compaction import Compaction

if TYPE_CHECKING:  # the plugin is loaded by pytest, below
    from support.s3 import S3Server

pytest_plugins = ("support.s3",)

BATCHES = [[1, 2, 3], [1, 1], [2, 5], [7, 7, 1]]


def sweeping_often(checkpoint: Checkpoint) -> Compaction:
    return Compaction(checkpoint, most_deltas=2, commits_per_sweep=1)


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    flow = Flow(tmp_path, counting(), compaction=sweeping_often)
    flow.end = SourceEnd({"s": 1}, None)
    log = Path(flow.checkpoint.uri) / "files/s"
    log.mkdir(parents=True)
    (log / "000000000000.json").write_text("[]")
    for keys in BATCHES:
        flow.batch(s=pa.table({"k": keys}))
    return flow


class Dying(Exception):
    """The process is dead: whatever it tries from now on has no effect."""


class Watched(LocalStore):
    """A store that calls `before` each time before something is written; one call at a time."""

    def __init__(self, root: Path, before: Callable[[], None]) -> None:
        super().__init__(root)
        self._before = before
        self._lock = threading.Lock()

    def create_from(self, path: str, pieces: Callable[[], Pieces]) -> bool:
        with self._lock:
            self._before()
        return super().create_from(path, pieces)

    def write_new(self, path: str, data: Content) -> None:
        with self._lock:
            self._before()
        super().write_new(path, data)

    def delete(self, path: str) -> None:
        with self._lock:
            self._before()
        super().delete(path)


class Death:
    """Dies at the `nth` write, and at every later one."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Dying


def killed_at(nth: int, flow: Flow, target: Path, run: str | None = None) -> bool:
    """Copy, and die at the `nth` write. False if the copy was made before that."""
    death = Death(nth)
    source = Checkpoint.attached(Watched(Path(flow.checkpoint.uri), death))
    try:
        copy_checkpoint(source, Watched(target, death), "flow", run=run)
    except Dying:
        return True
    return False


def test_copy_that_is_killed_at_any_write_is_nothing_or_whole_and_can_be_continued(flow: Flow, tmp_path: Path) -> None:
    own = set(flow.checkpoint.files())
    nth = 0
    while killed_at(nth, flow, target := tmp_path / f"copy {nth}"):
        try:
            whole = Checkpoint.attach(str(target))
        except CheckpointError:
            if (target / "origin.json").exists():
                with pytest.raises(CheckpointError, match="is a copy of a checkpoint that was cut short"):
                    Checkpoint.open(str(target), "flow")
            made = copy_checkpoint(flow.checkpoint, LocalStore(target), "flow")
            assert (made.batch, made.epoch) == (3, flow.last.epoch)
            whole = Checkpoint.attach(str(target))
            assert set(flow.checkpoint.files()) <= own, "its hold is released, and nothing else was written"
        other = Flow(tmp_path / f"other {nth}", counting(), checkpoint=whole.uri)
        assert counts(other) == counted(BATCHES)
        nth += 1
    assert nth > 8


def test_copy_of_a_running_topology_is_of_one_version_which_is_kept_meanwhile(flow: Flow, tmp_path: Path) -> None:
    def a_batch_and_a_sweep() -> None:
        flow.batch(s=pa.table({"k": [1, 4]}))
        flow.checkpoint.collect_garbage()

    made = copy_checkpoint(flow.checkpoint, Watched(tmp_path / "copy", a_batch_and_a_sweep), "flow")
    assert flow.last.batch > made.batch + 5, "without the hold it would have been swept"
    copy = Flow(tmp_path / "other", counting(), checkpoint=str(tmp_path / "copy"))
    assert copy.last.batch == made.batch
    assert counts(copy) == counted([*BATCHES, *[[1, 4]] * (made.batch - 3)])
    flow.batch(s=pa.table({"k": [1]}))
    flow.checkpoint.collect_garbage()
    assert made.batch not in flow.checkpoint.commits(), "nothing holds it any more"


def test_copy_that_is_continued_later_is_of_the_version_that_it_holds(flow: Flow, tmp_path: Path) -> None:
    assert killed_at(4, flow, tmp_path / "copy")
    for _ in range(6):
        flow.batch(s=pa.table({"k": [8]}))
    flow.checkpoint.collect_garbage()
    assert copy_checkpoint(flow.checkpoint, LocalStore(tmp_path / "copy"), "flow").batch == 3
    assert counts(Flow(tmp_path / "other", counting(), checkpoint=str(tmp_path / "copy"))) == counted(BATCHES)


def test_hold_of_a_copy_that_nobody_continues_is_released_after_a_day(flow: Flow, tmp_path: Path) -> None:
    assert killed_at(4, flow, tmp_path / "copy")
    (hold,) = (Path(flow.checkpoint.uri) / "copies").iterdir()
    for _ in range(6):
        flow.batch(s=pa.table({"k": [8]}))
    assert 3 in flow.checkpoint.commits()
    written = hold.stat().st_mtime - LONGEST_SECONDS - 60
    os.utime(hold, (written, written))
    flow.checkpoint.collect_garbage()
    assert flow.checkpoint.commits() == [7, 8, 9]
    assert copy_checkpoint(flow.checkpoint, LocalStore(tmp_path / "copy"), "flow").batch == 9
    assert counts(Flow(tmp_path / "other", counting(), checkpoint=str(tmp_path / "copy"))) == counted([*BATCHES, *[[8]] * 6])


def test_clone_gives_sinks_nothing_that_the_original_gave_them_and_own_does(flow: Flow, tmp_path: Path) -> None:
    assert flow.last.outputs["n"]
    copy_checkpoint(flow.checkpoint, LocalStore(tmp_path / "clone"), "flow")
    clone = Checkpoint.attach(str(tmp_path / "clone"))
    assert clone.last_commit() == replace(flow.last, outputs={})
    assert clone.run != flow.checkpoint.run
    copy_checkpoint(flow.checkpoint, LocalStore(tmp_path / "own"), "flow", "Own")
    own = Checkpoint.attach(str(tmp_path / "own"))
    assert (own.last_commit(), own.run) == (flow.last, flow.checkpoint.run)


def test_own_is_refused_while_the_original_runs_and_taken_up_once_it_has_stopped(flow: Flow, tmp_path: Path) -> None:
    writes = itertools.count()

    def one_batch() -> None:
        if next(writes) == 3:
            flow.batch(s=pa.table({"k": [4]}))

    with pytest.raises(CheckpointError, match="has committed batches after 3, so its topology runs: stop it first"):
        copy_checkpoint(flow.checkpoint, Watched(tmp_path / "own", one_batch), "flow", "Own")
    assert copy_checkpoint(flow.checkpoint, LocalStore(tmp_path / "own"), "flow", "Own").batch == 4
    assert counts(Flow(tmp_path / "other", counting(), checkpoint=str(tmp_path / "own"))) == counted([*BATCHES, [4]])


def test_place_with_anything_else_is_refused(flow: Flow, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"full is not empty, notes\.txt is there: name a place for the copy"):
        copy_checkpoint(flow.checkpoint, LocalStore(tmp_path / "full"), "flow")
    assert killed_at(4, flow, tmp_path / "half")
    another = Flow(tmp_path / "another", counting())
    another.batch(s=pa.table({"k": [1]}))
    with pytest.raises(CheckpointError, match=r"holds part of another copy \(of .*checkpoint, Clone\): delete it"):
        copy_checkpoint(another.checkpoint, LocalStore(tmp_path / "half"), "flow")


def test_copy_does_not_mix_versions_of_before_and_after_a_rollback(flow: Flow, tmp_path: Path) -> None:
    assert killed_at(9, flow, tmp_path / "copy")
    flow.checkpoint.forget_commit(3)
    with pytest.raises(CheckpointError, match="part of a copy as of a later batch than 2"):
        copy_checkpoint(flow.checkpoint, LocalStore(tmp_path / "copy"), "flow")


def test_record_of_a_log_that_is_merged_while_it_is_copied_is_in_the_longer_one(flow: Flow, tmp_path: Path) -> None:
    log = Path(flow.checkpoint.uri) / "files/s"
    merged = log / "000000000000-000000000009.json"

    class Merging(LocalStore):
        def find(self, path: str) -> bytes | None:
            if path.startswith("files/") and not merged.exists():
                merged.write_text("[]")
                (log / "000000000000.json").unlink()
            return super().find(path)

    source = Checkpoint.attached(Merging(Path(flow.checkpoint.uri)))
    copy_checkpoint(source, LocalStore(tmp_path / "copy"), "flow")
    assert Checkpoint.attach(str(tmp_path / "copy")).files("files") == ["files/s/000000000000-000000000009.json"]


def run_snapshot(
    flow: Flow, copy: Path | str, report: Path, run: str = "1", drop: Sequence[tuple[str, Path]] = ()
) -> dict[str, Any]:
    """The report of the command that a snapshot's pod runs. CheckpointError: it has failed."""
    arguments = ["--checkpoint", flow.checkpoint.uri, "--to", str(copy), "--run", run, "--report", str(report)]
    arguments += [argument for old, place in drop for argument in ("--drop", old, str(place))]
    ran = CliRunner().invoke(snapshot, arguments, standalone_mode=False)
    if ran.exception is not None:
        raise ran.exception
    assert ran.return_value == 0
    return json.loads(report.read_text(encoding="utf-8"))


def test_command_of_a_snapshots_pod_copies_and_reports_batch_and_bytes(flow: Flow, tmp_path: Path) -> None:
    report, copy = tmp_path / "report", tmp_path / "copy"
    reported = run_snapshot(flow, copy, report)
    assert Checkpoint.attach(str(copy)).commits() == [reported["batch"]] == [flow.checkpoint.commits()[-1]]
    assert reported["bytes"] == sum(file.stat().st_size for file in copy.rglob("*") if file.is_file())


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_older_copies_are_deleted_by_their_identity_and_nothing_else_is(flow: Flow, tmp_path: Path) -> None:
    report, backups = tmp_path / "report", tmp_path / "backups"
    for run in ("1", "2", "3"):
        run_snapshot(flow, backups / run, report, run)
    (backups / "2/notes.txt").write_text("mine")
    (backups / "notes.txt").write_text("mine, too")
    kept = {name: content for name, content in files_of(backups).items() if name.partition("/")[0] not in ("1", "2")}
    checkpoint = files_of(Path(flow.checkpoint.uri))
    drop = [(run, backups / run) for run in ("1", "2", "gone")] + [("4", backups / "3"), ("5", Path(flow.checkpoint.uri))]
    for _ in range(2):  # the second time as a pod after one that has died
        reported = run_snapshot(flow, tmp_path / "copy", report, "now", drop)
        assert reported["dropped"] == [run for run, _ in drop]
        assert files_of(backups) == kept | {"2/notes.txt": b"mine"}
        assert not (backups / "1").exists()
        assert files_of(Path(flow.checkpoint.uri)) == checkpoint


def test_copy_that_is_not_whole_deletes_none(flow: Flow, tmp_path: Path) -> None:
    run_snapshot(flow, tmp_path / "old", tmp_path / "report", "1")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/notes.txt").write_text("mine")
    before = files_of(tmp_path / "old")
    with pytest.raises(CheckpointError, match="is not empty"):
        run_snapshot(flow, tmp_path / "taken", tmp_path / "report", "2", [("1", tmp_path / "old")])
    assert files_of(tmp_path / "old") == before


def test_snapshot_whose_pod_dies_after_the_copy_is_reported_by_the_next_pod(flow: Flow, tmp_path: Path) -> None:
    report, copy = tmp_path / "report", tmp_path / "copy"
    first = run_snapshot(flow, copy, report)
    flow.checkpoint.holds.take(CopyHold(str(copy), first["batch"]))  # it died before the release
    flow.batch(s=pa.table({"k": [1]}))
    files = {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    assert run_snapshot(flow, copy, report) == first
    assert {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()} == files
    assert flow.checkpoint.holds.of(str(copy)) is None
    with pytest.raises(CheckpointError, match="is not empty"):
        run_snapshot(flow, copy, report, run="2")


def test_snapshot_that_is_killed_at_any_write_and_tried_again_is_whole(flow: Flow, tmp_path: Path) -> None:
    nth = 0
    while killed_at(nth, flow, target := tmp_path / f"copy {nth}", run="1"):
        flow.batch(s=pa.table({"k": [1]}))
        reported = run_snapshot(flow, target, tmp_path / "report")
        assert Checkpoint.attach(str(target)).commits() == [reported["batch"]]
        other = Flow(tmp_path / f"other {nth}", counting(), checkpoint=str(target))
        assert counts(other) == counted([*BATCHES, *[[1]] * (reported["batch"] - len(BATCHES) + 1)])
        nth += 1
    assert nth > 8


def test_two_copies_to_one_place_at_once_are_of_one_version(flow: Flow, tmp_path: Path) -> None:
    def another_pod_copies() -> None:
        nonlocal others
        others += 1
        if others == 5:
            flow.batch(s=pa.table({"k": [1]}))
            reports.append(run_snapshot(flow, tmp_path / "copy", tmp_path / "report"))

    others, reports = 0, list[dict[str, int]]()
    made = copy_checkpoint(flow.checkpoint, Watched(tmp_path / "copy", another_pod_copies), "flow", run="1")
    assert [report["batch"] for report in reports] == [made.batch]
    assert Checkpoint.attach(str(tmp_path / "copy")).commits() == [made.batch]
    assert counts(Flow(tmp_path / "other", counting(), checkpoint=str(tmp_path / "copy"))) == counted(BATCHES)


@pytest.mark.parametrize("place", ["", "inside", "state", "linked/inside"])
def test_place_in_the_checkpoint_is_refused_by_the_copy_itself(flow: Flow, tmp_path: Path, place: str) -> None:
    (tmp_path / "linked").symlink_to(flow.checkpoint.uri)
    target = tmp_path / place if place.startswith("linked") else Path(flow.checkpoint.uri) / place
    with pytest.raises(CheckpointError, match="itself, or in or around it"):
        copy_checkpoint(flow.checkpoint, LocalStore(target), "flow")


@apart
def test_snapshot_in_a_bucket_is_made_once_and_can_be_run_on(flow: Flow, tmp_path: Path, s3_server: S3Server) -> None:
    place = s3_server.uri()
    first = run_snapshot(flow, place, tmp_path / "report")
    flow.batch(s=pa.table({"k": [1]}))
    assert run_snapshot(flow, place, tmp_path / "report") == first
    with pytest.raises(CheckpointError, match="is not empty"):
        run_snapshot(flow, place, tmp_path / "report", run="2")
    assert counts(Flow(tmp_path / "other", counting(), checkpoint=place)) == counted(BATCHES)
