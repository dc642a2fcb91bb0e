"""A checkpoint with everything in it that a checkpoint can have, kept in the repository for later versions to read.

    PYTHONPATH=tests python -m support.old_checkpoint FOLDER

made tests/jobs/checkpoints/state-2-record-2 (state files and records of format 2; state moves in portions). When a
format changes, make another folder beside it; those that are there are never made again.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamtopology.jobs import upkeep
from streamtopology.jobs.migrate import migrate
from streamtopology.jobs.state import RowState, RowStateSchema
from streamtopology.routing.hashing import hash_int64
from support.stages import SLOTS, Flow, manifest, random_table

KEYS = 20
BATCHES = [[key for key in range(KEYS) if (key * number) % 7 < 3] for number in range(1, 12)]
TUPLES = RowStateSchema({"a": pa.schema({"k": pa.string(), "at": pa.int64()})}, key=("k",), time="at")
KEPT_ROWS = {"k": ["x", "y", None], "at": [1_000_000, 2_000_000, 3_000_000]}
COUNTS = Counter(key for batch in BATCHES for key in batch)


def counting() -> dict[str, object]:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    return manifest([operator], {"s": "k BIGINT"}, migration={"portion": 6000})


def make(folder: Path) -> None:
    """Batches with re-routings, snapshots, and at the end an epoch whose state is copied ahead and not yet taken."""
    upkeep.MOST_DELTAS = 3
    with tempfile.TemporaryDirectory() as scratch:
        flow = Flow(Path(scratch), counting(), base_dir=Path(), checkpoint=str(folder))
        for number, keys in enumerate(BATCHES):
            if number in (3, 7):
                flow.router.reroute({"n": random_table(np.random.default_rng(number), SLOTS, hash_int64(np.arange(KEYS)))})
            if number == len(BATCHES) - 1:
                table = random_table(np.random.default_rng(99), SLOTS, hash_int64(np.arange(KEYS)))
                migrate(flow.checkpoint, flow.router.prepare({"n": table}), lambda text: None)
            flow.batch(s=pa.table({"k": keys}))
        flow.driver.upkeep.close()
        state = RowState(TUPLES)
        state.append("a", pa.record_batch(KEPT_ROWS, schema=TUPLES.inputs["a"]))
        state.expire(0.5)
        flow.checkpoint.write_delta("rows", 0, 0, 1, state.delta())


if __name__ == "__main__":
    make(Path(sys.argv[1]))
