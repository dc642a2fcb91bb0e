"""Copies of checkpoints, rollbacks, and reports of damaged ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.stages import Flow, counted, counting, counts, manifest

from streamtopology.jobs.admin.checkpoints import check, clone, findings_text, rollback
from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.own_command import on_manifest

ARGUMENTS = on_manifest(Path("my job.yaml"), Path("my work"))
BATCHES = [[1, 2, 3], [1, 1], [2, 5], [7, 7, 1]]


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    flow = Flow(tmp_path, counting())
    for keys in BATCHES:
        flow.batch(s=pa.table({"k": keys}))
    return flow


def test_going_back_reads_the_later_batches_again(flow: Flow) -> None:
    printed = rollback(flow.checkpoint.uri, 1)
    assert "2 later batches are read again, at least 5 rows of the sources; sinks keep what they have of them" in printed
    assert printed.endswith("of them")
    flow.start(counting())
    assert counts(flow) == counted(BATCHES[:2])
    assert flow.batch(s=pa.table({"k": BATCHES[2]})).attempt == 2
    flow.batch(s=pa.table({"k": BATCHES[3]}))
    assert counts(flow) == counted(BATCHES)


def test_rollback_over_a_batch_without_rows_asks_for_other_sinks(tmp_path: Path) -> None:
    """Batch 1 closed a window in a pause; without the pause it is a batch with rows, which sinks take for that one."""
    windows = {"time": "at", "size": "10s", "aggregates": {"n": "count()"}}
    operator = {"name": "w", "inputs": ["s"], "grouping": {"key": "k"}, "run": "window-aggregate", "with": windows}
    marks = {"s": {"column": "at", "delay": "0s"}}
    flow = Flow(tmp_path, manifest([operator], {"s": "k BIGINT, at BIGINT"}, watermarks=marks))
    flow.batch(s=pa.table({"k": [1, 1], "at": [1, 12]}))
    flow.silence()
    flow.batch(s=pa.table({"k": [1], "at": [23]}))
    assert (flow.last.batch, flow.published("w").num_rows) == (2, 1)
    printed = rollback(flow.checkpoint.uri, 0)
    assert "refuse batches up to 2 that are not the same again. Some may not be: batch 1 had no rows" in printed
    assert printed.endswith("Give parquet, json and kafka sinks other places before the next start")


@pytest.mark.parametrize("policy", ["auto", "partial-key"])
def test_rollback_of_divided_keys_asks_for_other_sinks(tmp_path: Path, policy: str) -> None:
    """A batch says of a key what is at its home: with other routing the last word may be another one."""
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": policy, "key": "k"}, "run": "count"}
    flow = Flow(tmp_path, manifest([operator], {"s": "k BIGINT"}))
    for keys in BATCHES:
        flow.batch(s=pa.table({"k": keys}))
    assert "Keys of 'n' may be at several instances" in rollback(flow.checkpoint.uri, 1)


def test_rollback_to_a_dropped_batch_is_refused_with_the_kept_ones(flow: Flow) -> None:
    for number in range(30):
        flow.batch(s=pa.table({"k": [number]}))
    flow.checkpoint.collect_garbage()
    with pytest.raises(CheckpointError, match=r"batch 2 is not kept in .*; kept are 31, 32, 33"):
        rollback(flow.checkpoint.uri, 2)
    assert "is at batch 33 already" in rollback(flow.checkpoint.uri, 33)


def test_a_source_that_spark_reads_cannot_go_back(flow: Flow) -> None:
    path = Path(flow.checkpoint.where(f"epochs/{flow.last.epoch}.json"))
    wire = json.loads(path.read_text())
    wire["manifest"]["spec"]["sources"][0].update(format="rate", options={})
    path.write_text(json.dumps(wire))
    with pytest.raises(CheckpointError, match=r"sources that Spark reads itself cannot be read again .*: s;"):
        rollback(flow.checkpoint.uri, 1)


def test_a_copy_lives_a_life_of_its_own(flow: Flow, tmp_path: Path) -> None:
    (Path(flow.checkpoint.uri) / "spark/offsets").mkdir(parents=True)
    (Path(flow.checkpoint.uri) / "spark/offsets/3").write_text("v1")
    (tmp_path / "other").mkdir()
    clone(flow.checkpoint.uri, str(tmp_path / "other" / "checkpoint"))
    assert (tmp_path / "other/checkpoint/spark/offsets/3").read_text() == "v1"
    other = Flow(tmp_path / "other", counting())
    assert other.checkpoint.run != flow.checkpoint.run
    assert counts(other) == counts(flow) == counted(BATCHES)
    other.batch(s=pa.table({"k": [9]}))
    flow.batch(s=pa.table({"k": [8]}))
    assert counts(other) == counted([*BATCHES, [9]])
    assert counts(flow) == counted([*BATCHES, [8]])
    with pytest.raises(CheckpointError, match="is not empty"):
        clone(flow.checkpoint.uri, other.checkpoint.uri)


def test_a_copy_may_be_for_another_topology(flow: Flow, tmp_path: Path) -> None:
    clone(flow.checkpoint.uri, str(tmp_path / "copy"), "another")
    assert Checkpoint.open(str(tmp_path / "copy"), "another").last_commit() == replace(flow.last, outputs={})


@pytest.mark.parametrize("harm", ["damaged", "gone"])
def test_damage_is_named_with_what_can_be_done(flow: Flow, harm: str) -> None:
    newest = max((path for ref in flow.last.state["n"].values() for path in ref.deltas), key=lambda p: p.split("/")[-1])
    assert newest.endswith("/3-1.delta")
    file = Path(flow.checkpoint.where(newest))
    if harm == "gone":
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    (found,) = check(flow.checkpoint.uri)
    assert (found.path, found.usable) == (newest, 2)
    assert f"{newest}" in findings_text(ARGUMENTS, [found])
    assert "`streamtopology state rollback 'my job.yaml' --work-dir 'my work' --to 2` goes back to it" in findings_text(
        ARGUMENTS, [found]
    )
    with pytest.raises(CheckpointError, match=r"batch 3 cannot be gone back to: state/n/\d/3-1\.delta"):
        rollback(flow.checkpoint.uri, 3)
    rollback(flow.checkpoint.uri, 2)
    assert check(flow.checkpoint.uri) == []
    flow.start(counting())
    flow.batch(s=pa.table({"k": BATCHES[3]}))
    assert counts(flow) == counted(BATCHES)


def test_check_reports_that_no_kept_commit_is_whole(flow: Flow) -> None:
    for path in flow.checkpoint.files("state"):
        Path(flow.checkpoint.where(path)).unlink()
    assert "no kept commit is whole: put the files back from a copy" in findings_text(ARGUMENTS, check(flow.checkpoint.uri))


def test_the_commands(flow: Flow, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = counting(checkpoint=flow.checkpoint.uri)
    given["spec"]["sources"][0]["options"] = {"path": str(tmp_path)}
    path = tmp_path / "flow.yaml"
    path.write_text(json.dumps(given))
    assert main(["state", "check", str(path)]) == 0
    assert main(["state", "clone", str(path), str(tmp_path / "copy")]) == 0
    assert main(["state", "rollback", str(path), "--to", "1"]) == 0
    assert main(["state", "rollback", str(path), "--to", "3"]) == 1
    output = capsys.readouterr()
    assert "undamaged" in output.out
    assert "is back at batch 1" in output.out
    assert "batch 3 is not kept" in output.err
