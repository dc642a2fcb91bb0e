"""The beginning of a checkpoint: a copy of another, nothing where that is asked for, and never nothing by mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.stages import Flow, counted, counting, counts, manifest

from streamtopology.jobs.admin.checkpoints import clone
from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, open_store
from streamtopology.jobs.errors import TopologyFailed, WrongUse
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.runtime.begun import begun_checkpoint
from streamtopology.jobs.runtime.first_plan import first_plan
from streamtopology.jobs.runtime.preflight.checks import source_schemas
from streamtopology.topology import parse

BATCHES = [[1, 2, 3], [1, 1], [2, 5]]
COUNT = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}


def begun(given: dict[str, Any], uri: Path, former: str = "") -> tuple[Checkpoint, list[str]]:
    """The checkpoint with which a run of the manifest begins at `uri`, and what the run says of it."""
    topology = parse(given)

    def plan_on(source: Checkpoint) -> ExecutionPlan:
        return first_plan(topology, source_schemas(topology, {}), uri.parent, source, lambda text: None)

    printed: list[str] = []
    return begun_checkpoint(topology, str(uri), former, plan_on, printed.append), printed


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    (tmp_path / "first").mkdir()
    flow = Flow(tmp_path / "first", counting())
    for keys in BATCHES:
        flow.batch(s=pa.table({"k": keys}))
    return flow


def test_empty_checkpoint_begins_with_the_state_of_another_once(flow: Flow, tmp_path: Path) -> None:
    given = counting(restore={"from": flow.checkpoint.uri})
    checkpoint, printed = begun(given, tmp_path / "second")
    assert "is a copy (Clone) of" in printed[-1]
    assert "as of batch 2" in printed[-1]
    second = Flow(tmp_path, given, checkpoint=checkpoint.uri)
    assert counts(second) == counted(BATCHES)
    second.batch(s=pa.table({"k": [9]}))
    flow.batch(s=pa.table({"k": [8]}))
    again, printed = begun(given, tmp_path / "second")
    assert (again.run, printed) == (checkpoint.run, [])
    assert counts(second) == counted([*BATCHES, [9]])
    assert counts(flow) == counted([*BATCHES, [8]])


def test_changed_checkpoint_begins_with_nothing_only_when_asked_to(flow: Flow, tmp_path: Path) -> None:
    second = tmp_path / "second"
    with pytest.raises(WrongUse) as refused:
        begun(counting(), second, former=flow.checkpoint.uri)
    assert str(refused.value) == (
        f"spec.checkpoint has changed from {flow.checkpoint.uri} to {second}, which is empty: the topology would start over. "
        f"Put the former one back; or say with spec.restore.from what it begins with: {flow.checkpoint.uri} for a copy, Empty "
        "for nothing"
    )
    assert not second.exists()
    checkpoint, _ = begun(counting(restore={"from": "Empty"}), second, former=flow.checkpoint.uri)
    assert checkpoint.last_commit() is None


def test_changed_checkpoint_that_holds_batches_is_continued(flow: Flow, tmp_path: Path) -> None:
    clone(flow.checkpoint.uri, str(tmp_path / "second"))
    checkpoint, _ = begun(counting(), tmp_path / "second", former=flow.checkpoint.uri)
    last = checkpoint.last_commit()
    assert last is not None
    assert last.batch == 2
    begun(counting(), Path(flow.checkpoint.uri), former=f"file://{flow.checkpoint.uri}")


def test_a_first_checkpoint_and_the_same_one_again_begin_with_nothing(tmp_path: Path) -> None:
    assert begun(counting(), tmp_path / "first")[0].last_commit() is None
    assert begun(counting(), tmp_path / "first", former=str(tmp_path / "first"))[0].last_commit() is None


@pytest.mark.parametrize(
    ("operator", "why"),
    [
        ({"name": "other"}, "operator 'n' is no longer in the manifest"),
        ({"run": "quantiles", "with": {"column": "k", "min": 0, "max": 9}}, "spec.restore: the state in .* does not fit"),
    ],
)
def test_state_that_does_not_fit_is_refused_before_anything_is_copied(
    flow: Flow, tmp_path: Path, operator: dict[str, Any], why: str
) -> None:
    given = manifest([COUNT | operator], {"s": "k BIGINT"}, restore={"from": flow.checkpoint.uri})
    with pytest.raises(TopologyFailed, match=why):
        begun(given, tmp_path / "second")
    assert open_store(str(tmp_path / "second")).list("") == []


def test_missing_checkpoint_to_restore_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no checkpoint at .*gone"):
        begun(counting(restore={"from": str(tmp_path / "gone")}), tmp_path / "second")
    Checkpoint.open(str(tmp_path / "without"), "flow")
    with pytest.raises(CheckpointError, match="without has no committed batch yet"):
        begun(counting(restore={"from": str(tmp_path / "without")}), tmp_path / "second")


def test_topology_is_rolled_back_by_restoring_an_earlier_copy(flow: Flow, tmp_path: Path) -> None:
    before = tmp_path / "before the change"
    clone(flow.checkpoint.uri, str(before))
    flow.batch(s=pa.table({"k": [666]}))
    given = counting(restore={"from": str(before)})
    checkpoint, _ = begun(given, tmp_path / "second", former=flow.checkpoint.uri)
    second = Flow(tmp_path, given, checkpoint=checkpoint.uri)
    second.batch(s=pa.table({"k": [6]}))
    assert counts(second) == counted([*BATCHES, [6]])
    third, _ = begun(given, tmp_path / "third", former=checkpoint.uri)
    assert counts(Flow(tmp_path, given, checkpoint=third.uri)) == counted(BATCHES), "a copy can be restored again"


def test_own_keeps_the_identity_of_the_original(flow: Flow, tmp_path: Path) -> None:
    checkpoint, _ = begun(counting(restore={"from": flow.checkpoint.uri, "mode": "Own"}), tmp_path / "second")
    assert checkpoint.run == flow.checkpoint.run
