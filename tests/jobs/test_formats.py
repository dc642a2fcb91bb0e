"""One fixture of each form that outlives a process, see support/formats.py: a later version reads it, or refuses it."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections import Counter
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pytest
import yaml
from support import formats
from support.stages import Flow

from streamtopology.contract.page import read_page
from streamtopology.jobs.admin.start_over import find_leftovers, held_text
from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, StateRef
from streamtopology.jobs.connectors.sinks.base import SinkError
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.pods.routing_configmap import RoutingMap
from streamtopology.jobs.runtime.preflight.checks import examine
from streamtopology.jobs.state import RowState
from streamtopology.topology import parse

KEPT = Path(__file__).parent / "formats"
BEFORE = (
    r"header\.json was written by a version of StreamTopology before 0\.1\.0: "
    r"this one cannot read it; start over with .*--fresh"
)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A folder with `checkpoint`, and `out` of its sink, as 0.1.0 left them."""
    shutil.unpack_archive(KEPT / "checkpoint-1.zip", tmp_path)
    return tmp_path


def test_checkpoint_is_read_and_gone_on_from(kept: Path) -> None:
    flow = Flow(kept, formats.counting())
    newest = len(formats.BATCHES) - 1
    assert [record.batch for record in map(flow.checkpoint.read_commit, flow.checkpoint.commits())] == list(range(newest + 1))
    assert [record.attempt for record in flow.checkpoint.batch_records(newest)] == [1]
    assert (flow.last.epoch, flow.last.rows_in, flow.last.end.positions) == (2, len(formats.BATCHES[-1]), {"s": newest})
    assert {row["k"]: row["count"] for row in flow.state("n")} == formats.COUNTS

    (lease,) = flow.checkpoint.precopies.leases()
    assert (lease.epoch, lease.batch, lease.follows) == (3, newest - 1, 2)
    copied = flow.checkpoint.precopies.copied(3)
    assert copied is not None
    assert sum(part.keys for part in copied.parts) > 0
    flow.router.plan = ExecutionPlan.from_json(flow.checkpoint.read_epoch(3))
    flow.batch(s=pa.table({"k": [1, 2, 3]}))
    assert flow.last.epoch == 3
    assert {row["k"]: row["count"] for row in flow.state("n")} == formats.COUNTS + Counter([1, 2, 3])


def test_kept_rows_are_read(kept: Path) -> None:
    state = RowState(formats.TUPLES)
    (rows,) = Checkpoint.attach(str(kept / "checkpoint")).read_parts("state/rows/0/0-1.delta")
    state.apply(rows)
    assert state.rows("a").to_pydict() == formats.KEPT_ROWS


def test_snapshot_in_parts_is_read(kept: Path) -> None:
    checkpoint = Checkpoint.attach(str(kept / "checkpoint"))
    path = "state/parts/0/0-1.snapshot"
    assert len(list(checkpoint.read_parts(path))) > 1
    rows = checkpoint.load_state(StateRef(path, (), 1, 1), formats.MANY).snapshot()
    assert dict(zip(rows["k"].to_pylist(), rows["count"].to_pylist(), strict=True)) == formats.PARTS


def test_output_is_gone_on_with_and_another_batch_of_its_number_refused(kept: Path) -> None:
    last = Checkpoint.attach(str(kept / "checkpoint")).last_commit()
    assert last is not None
    sink, before = formats.output_sink(kept / "out"), sorted((kept / "out").rglob("*"))
    sink.publish(last.batch, [], last.end_digest)
    assert sorted((kept / "out").rglob("*")) == before
    with pytest.raises(SinkError, match=f"batch {last.batch}"):
        sink.publish(last.batch, [], "elsewhere")


def test_page_of_a_report_is_read() -> None:
    page = json.loads((KEPT / "page-1.json").read_text())
    assert read_page(page).to_wire() == page


def test_config_map_with_its_epoch_is_read() -> None:
    given = json.loads((KEPT / "configmap-1.json").read_text())
    assert RoutingMap.read("flights-routing", given["data"], given["binaryData"]) == formats.ROUTING


def heads(folder: Path) -> dict[str, bytes]:
    """The beginning of each file, which has the number of its format."""
    with ZipFile(folder / "checkpoint-1.zip") as archive:
        found = {name: archive.read(name).split(b', "crc32"')[0][:14] for name in archive.namelist()}
    return found | {path.name: path.read_bytes()[:14] for path in folder.glob("*.json")}


def test_fixtures_are_those_of_this_version(tmp_path: Path) -> None:
    """Else nothing would show tomorrow's version the forms of today."""
    formats.make(tmp_path / "today")
    assert heads(tmp_path / "today") == heads(KEPT)


# --- before 0.1.0 ---


@pytest.fixture(params=[1, 2, 3])
def before(kept: Path, request: pytest.FixtureRequest) -> Path:
    """A checkpoint with the header of a version before, which counted formats, too."""
    header = kept / "checkpoint/header.json"
    body = header.read_text().splitlines()[1]
    header.write_text(f'{{"record": "Header", "format": {request.param}, "crc32": {zlib.crc32(body.encode())}}}\n{body}\n')
    return kept


def test_checkpoint_of_a_version_before_is_refused_in_a_sentence(before: Path) -> None:
    with pytest.raises(CheckpointError, match=BEFORE):
        Checkpoint.attach(str(before / "checkpoint"))
    (before / "t.yaml").write_text(yaml.safe_dump(formats.counting(checkpoint=str(before / "checkpoint"))))
    assert any(re.search(BEFORE, str(problem)) for problem in examine(before / "t.yaml").problems)


def test_checkpoint_of_a_version_before_is_found_and_deleted_to_start_over(before: Path) -> None:
    place = before / "flow" / "checkpoint"
    place.parent.mkdir()
    (before / "checkpoint").rename(place)
    assert f"flow  as of batch {len(formats.BATCHES) - 1}" in held_text(before)
    leftovers = find_leftovers(parse(formats.counting()), before)
    assert leftovers is not None
    leftovers.delete()
    assert not place.exists()
