"""The names that the objects of a JSON file have."""

from __future__ import annotations

import json
from contextlib import closing
from typing import cast

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.text_stream import TextStream

_LINES = 100


def names_in_json(path: str, spec: SourceSpec) -> set[str]:
    """The names in the first objects of a file of JSON lines; what is no object has none. Raises OSError and SourceError."""
    with closing(TextStream(path, spec, path)) as stream:
        lines = stream.next_bytes().split(b"\n")
    return {name for line in lines[:_LINES] for name in _names(line)}


def _names(line: bytes) -> list[str]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(cast("dict[str, object]", found)) if isinstance(found, dict) else []
