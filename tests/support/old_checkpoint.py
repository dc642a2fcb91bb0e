"""A checkpoint with everything in it that a checkpoint can have, kept in the repository for later versions to read.

    PYTHONPATH=tests python -m support.old_checkpoint FOLDER

made tests/jobs/checkpoints/state-3-record-2 (records and most state files of format 2, a snapshot of format 3; state moves
in portions). When a
format changes, make another folder beside it; those that are there are never made again.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamtopology.jobs.checkpoint import Checkpoint, StateRef
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.rerouting.precopy_job import migrate
from streamtopology.jobs.state import Field, KeyedState, KeyedStateSchema, RowState, RowStateSchema
from streamtopology.routing.table.hashing import hash_int64
from support.stages import SLOTS, Flow, manifest, random_table

KEYS = 20
BATCHES = [[key for key in range(KEYS) if (key * number) % 7 < 3] for number in range(1, 12)]
TUPLES = RowStateSchema({"a": pa.schema({"k": pa.string(), "at": pa.int64()})}, key=("k",), time="at")
KEPT_ROWS = {"k": ["x", "y", None], "at": [1_000_000, 2_000_000, 3_000_000]}
MANY = KeyedStateSchema((Field("count", np.dtype("i8")),), pa.schema({"k": pa.string()}))
PARTS = {f"key {number}": number for number in range(100)}
COUNTS = Counter(key for batch in BATCHES for key in batch)


def counting() -> dict[str, object]:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    return manifest([operator], {"s": "k BIGINT"}, migration={"portion": 6000})


def short_chains(checkpoint: Checkpoint) -> Compaction:
    return Compaction(checkpoint, most_deltas=3)


def make(folder: Path) -> None:
    """Batches with re-routings, snapshots, and at the end an epoch whose state is pre-copied and not yet taken."""
    with tempfile.TemporaryDirectory() as scratch:
        flow = Flow(Path(scratch), counting(), base_dir=Path(), checkpoint=str(folder), compaction=short_chains)
        for number, keys in enumerate(BATCHES):
            if number in (3, 7):
                flow.router.reroute({"n": random_table(np.random.default_rng(number), SLOTS, hash_int64(np.arange(KEYS)))})
            if number == len(BATCHES) - 1:
                table = random_table(np.random.default_rng(99), SLOTS, hash_int64(np.arange(KEYS)))
                migrate(flow.checkpoint, flow.router.prepare({"n": table}), lambda text: None)
            flow.batch(s=pa.table({"k": keys}))
        flow.driver.compaction.close()
        state = RowState(TUPLES)
        state.append("a", pa.record_batch(KEPT_ROWS, schema=TUPLES.inputs["a"]))
        state.expire(0.5)
        flow.checkpoint.write_delta("rows", 0, 0, 1, state.delta())
        write_in_parts(flow.checkpoint)


def write_in_parts(checkpoint: Checkpoint) -> None:
    """A snapshot in parts, as of large state: `PARTS`."""
    state = KeyedState(MANY)
    keys = KeyColumns.from_arrow(pa.record_batch({"k": list(PARTS)}), ["k"])
    state.column("count")[state.slots(keys)] = list(PARTS.values())
    delta = StateRef(None, (checkpoint.write_delta("parts", 0, 0, 1, state.delta()),), 1, 1)
    checkpoint.compact("parts", 0, delta, MANY, part_bytes=state.nbytes // 4)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
