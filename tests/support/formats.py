"""One fixture of each form that outlives a process, as 0.1.0 writes it: tests/jobs/formats.

    PYTHONPATH=tests python -m support.formats FOLDER

makes them again, the same bytes each time. Those of a version that was released are never made again: a later one reads them,
or refuses them in a sentence and gets its own in addition.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamtopology import topology
from streamtopology.contract.reasons import EpochCause, EpochReason
from streamtopology.jobs.checkpoint import Checkpoint, SourceEnd, StateRef
from streamtopology.jobs.checkpoint.local_store import LocalStore
from streamtopology.jobs.checkpoint.records import Header, to_bytes
from streamtopology.jobs.checkpoint.retention import HEADER
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.connectors.sinks import Writer, open_sink
from streamtopology.jobs.connectors.sinks.base import BatchSink
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.pods.routing_configmap import PlannedEpoch, RoutingMap
from streamtopology.jobs.rerouting.precopy_job import migrate
from streamtopology.jobs.state import Field, KeyedState, KeyedStateSchema, RowState, RowStateSchema
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable
from support.config_maps import config_map
from support.page_histories import flights, played, served
from support.stages import SLOTS, Flow, manifest, random_table

KEYS = 20
RUN = "0" * 32
EPOCH = Epoch(2, {"tail": Route("mixed", RoutingTable.uniform([0, 1]), (0, 1))}, (), EpochReason(EpochCause.FIRST))
ROUTING = RoutingMap(flights(), 3, PlannedEpoch(EPOCH, 3, "ready"), "/data/checkpoint")
BATCHES = [[key for key in range(KEYS) if (key * number) % 7 < 3] for number in range(1, 7)]
TUPLES = RowStateSchema({"a": pa.schema({"k": pa.string(), "at": pa.int64()})}, key=("k",), time="at")
KEPT_ROWS = {"k": ["x", "y", None], "at": [1_000_000, 2_000_000, 3_000_000]}
MANY = KeyedStateSchema((Field("count", np.dtype("i8")),), pa.schema({"k": pa.string()}))
PARTS = {f"key {number}": number for number in range(100)}
COUNTS = Counter(key for batch in BATCHES for key in batch)


def counting(**spec: object) -> dict[str, object]:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    return manifest([operator], {"s": "k BIGINT"}, migration={"portion": 6000}, **spec)


def short_chains(checkpoint: Checkpoint) -> Compaction:
    return Compaction(checkpoint, most_deltas=2)


def make(folder: Path) -> None:
    """All fixtures."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, "made")
        make_checkpoint(made / "checkpoint")
        make_output(made)
        with zipfile.ZipFile(folder / "checkpoint-1.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(path for path in made.rglob("*") if path.is_file()):
                archive.writestr(zipfile.ZipInfo(str(path.relative_to(made))), path.read_bytes(), zipfile.ZIP_DEFLATED)
    _, record = played(4, reroute_at=2, topology=flights())
    (folder / "page-1.json").write_text(json.dumps({**served(record), "idle_seconds": 1.5}) + "\n")
    written = config_map(ROUTING)
    content = {"data": dict(written.data), "binaryData": dict(written.binary_data)}
    (folder / "configmap-1.json").write_text(json.dumps(content, indent=1) + "\n")


def make_checkpoint(folder: Path) -> None:
    """Batches with re-routings, snapshots, and at the end an epoch whose state is pre-copied and not yet taken."""
    LocalStore(folder).create(HEADER, to_bytes(Header("flow", RUN)))
    with tempfile.TemporaryDirectory() as scratch:
        flow = Flow(Path(scratch), counting(), base_dir=Path(), checkpoint=str(folder), compaction=short_chains)
        for number, keys in enumerate(BATCHES):
            if number == 2:
                flow.router.reroute({"n": random_table(np.random.default_rng(number), SLOTS, hash_int64(np.arange(KEYS)))})
            if number == len(BATCHES) - 1:
                table = random_table(np.random.default_rng(99), SLOTS, hash_int64(np.arange(KEYS)))
                migrate(flow.checkpoint, flow.router.prepare({"n": table}), lambda text: None)
            flow.end = SourceEnd({"s": number}, None)
            flow.batch(s=pa.table({"k": keys}))
        flow.driver.compaction.close()
        state = RowState(TUPLES)
        state.append("a", pa.record_batch(KEPT_ROWS, schema=TUPLES.inputs["a"]))
        state.expire(0.5)
        flow.checkpoint.write_delta("rows", 0, 0, 1, state.delta())
        write_in_parts(flow.checkpoint)


def make_output(made: Path) -> None:
    """The output of a sink as of the newest commit, with its manifest."""
    checkpoint = Checkpoint.attach(str(made / "checkpoint"))
    last = checkpoint.last_commit()
    assert last is not None
    with checkpoint.at_hand(last.outputs["n"]) as files:
        output_sink(made / "out").publish(last.batch, files, last.end_digest)


def output_sink(folder: Path) -> BatchSink:
    return open_sink(topology.Sink("n", "n", "json", {"path": str(folder)}), Writer("flow", RUN))


def write_in_parts(checkpoint: Checkpoint) -> None:
    """A snapshot in parts, as of large state: `PARTS`."""
    state = KeyedState(MANY)
    keys = KeyColumns.from_arrow(pa.record_batch({"k": list(PARTS)}), ["k"])
    state.column("count")[state.slots(keys)] = list(PARTS.values())
    delta = StateRef(None, (checkpoint.write_delta("parts", 0, 0, 1, state.delta()),), 1, 1)
    checkpoint.compact(delta, MANY, part_bytes=500)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
