"""`run --fresh` deletes what its own topology has left, and only once the user agrees."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.stages import Flow, manifest

from streamtopology.jobs.admin.start_over import find_leftovers
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.connectors.sinks import Sink, Writer, open_sink
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.runtime.left_behind import newest_fed
from streamtopology.topology import Topology, parse


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

    def sink(name: str, checkpoint: Checkpoint) -> Sink:
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
