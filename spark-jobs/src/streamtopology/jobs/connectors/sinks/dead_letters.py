"""The sink of tuples that were set aside, as JSON lines in the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.connectors.sinks.base import staged_table
from streamtopology.jobs.connectors.sinks.folder import json_lines

DEAD_LETTERS = ""  # the name under which a commit record lists tuples that were set aside; no sink can have it
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
    """Writes `dead-letters/batch-000000012.jsonl`. `keep` stores bytes under a name in the checkpoint."""

    def __init__(self, keep: Callable[[str, bytes], object]) -> None:
        self._keep = keep

    def publish(self, batch: int, files: Sequence[Path]) -> None:
        table = staged_table(files)
        if table is not None and table.num_rows:
            self._keep(f"{FOLDER}/batch-{batch:09d}.jsonl", b"".join(json_lines(table)))

    def close(self) -> None:
        pass
