"""The names that the objects of a JSON file have."""

from __future__ import annotations

import json
from contextlib import closing
from typing import cast

from streamtopology.jobs.connectors.sources.compressed import open_decompressed

_LINES = 100
_BYTES = 1 << 20


def names_in_json(path: str) -> set[str]:
    """The names in the first objects of a file of JSON lines; what is no object has none. Raises OSError."""
    with closing(open_decompressed(path, path)) as file:
        lines = file.read(_BYTES).split(b"\n")
    return {name for line in lines[:_LINES] for name in _names(line)}


def _names(line: bytes) -> list[str]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(cast("dict[str, object]", found)) if isinstance(found, dict) else []
