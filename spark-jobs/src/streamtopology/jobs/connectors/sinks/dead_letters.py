"""The sink of tuples that were set aside, as JSON lines in the checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

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


def letters(rows: Iterable[Mapping[str, object]]) -> pa.RecordBatch:
    """Tuples that were set aside, as rows. Reasons are of users' code: what is no text in UTF-8 is escaped."""
    clean = [{name: _as_utf8(value) if isinstance(value, str) else value for name, value in row.items()} for row in rows]
    return pa.RecordBatch.from_pylist(clean, DEAD_LETTER)


def tuple_as_json(row: Mapping[str, Any]) -> str:
    """A tuple as JSON; NaN and infinities, which JSON does not have, are strings as in sinks."""
    try:
        return json.dumps(row, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(row), default=str)


def _as_utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def file_of(batch: int) -> str:
    """The file of a batch's dead letters in the checkpoint."""
    return f"{FOLDER}/batch-{batch:09d}.jsonl"


class DeadLetters:
    """Writes `dead-letters/batch-000000012.jsonl`. `keep` stores bytes under a name in the checkpoint."""

    def __init__(self, keep: Callable[[str, bytes], object]) -> None:
        self._keep = keep

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        table = staged_table(files)
        if table is not None and table.num_rows:
            self._keep(file_of(batch), b"".join(json_lines(table)))

    def close(self) -> None:
        pass
