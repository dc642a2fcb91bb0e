"""From committed outputs to the sinks: after the commit record, never before, and as often as a restart asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord
from streamtopology.jobs.crashpoints import passing
from streamtopology.jobs.sinks import Sink
from streamtopology.jobs.sinks.base import staged_table
from streamtopology.jobs.sinks.folder import json_lines

DEAD_LETTERS = ""  # the name under which a commit record lists tuples that were set aside; no sink can be called that
DEAD_LETTER = pa.schema(
    [
        pa.field("operator", pa.string()),  # NULL: a source's row, before any operator
        pa.field("instance", pa.int64()),
        pa.field("input", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("tuple", pa.string()),  # as JSON
    ]
)
FOLDER = "dead-letters"


class DeadLetters:
    """Tuples that were set aside, as JSON lines in the checkpoint, wherever that is: `dead-letters/batch-000000012.jsonl`."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def publish(self, batch: int, files: Sequence[Path]) -> None:
        table = staged_table(files)
        if table is not None and table.num_rows:
            self._checkpoint.keep(f"{FOLDER}/batch-{batch:09d}.jsonl", b"".join(json_lines(table)))

    def close(self) -> None:
        pass


class Publisher:
    """Publishes the files that a commit names. Each sink makes a batch visible once, however often it is asked."""

    def __init__(self, checkpoint: Checkpoint, sinks: Mapping[str, Sink]) -> None:
        self._checkpoint = checkpoint
        self._sinks = dict(sinks)

    def publish(self, commit: CommitRecord) -> None:
        for name, sink in self._sinks.items():
            with self._checkpoint.at_hand(commit.outputs.get(name, ())) as staged:
                passing("sink.publishing")
                sink.publish(commit.batch, staged)
                passing("sink.published")

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()
