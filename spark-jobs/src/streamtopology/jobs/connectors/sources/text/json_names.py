"""The names that the objects of a JSON file have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import cast

import pyarrow as pa

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.text.text_stream import TextStream

_LINES = 100


def names_in_json(path: str, spec: SourceSpec) -> set[str]:
    """The names in the first objects of a file of JSON lines; what is no object has none. Raises OSError and SourceError."""
    return {name for found in _objects(path, spec) for name in found}


def fields_of_another_case(path: str, spec: SourceSpec, declared: pa.Schema) -> Iterator[tuple[str, str]]:
    """Fields of structs (`a.b`) that the first objects of a file have by a name that differs in case only, with that name.

    Raises OSError and SourceError.
    """
    rows = list(_objects(path, spec)) if any(map(pa.types.is_nested, declared.types)) else []
    for field in declared:
        yield from _misspelt(field.name, field.type, [row.get(field.name) for row in rows])


def _misspelt(place: str, kind: pa.DataType, values: Sequence[object]) -> Iterator[tuple[str, str]]:
    if pa.types.is_list(kind):
        items = [item for value in values if isinstance(value, list) for item in value]
        yield from _misspelt(place, kind.value_type, items)
        return
    found = [cast("dict[str, object]", value) for value in values if isinstance(value, dict)]
    if pa.types.is_map(kind):
        yield from _misspelt(place, kind.item_type, [item for value in found for item in value.values()])
    elif pa.types.is_struct(kind):
        names = sorted({name for value in found for name in value})
        for field in kind:
            alike = [name for name in names if name.lower() == field.name.lower()]
            if alike and field.name not in alike:
                yield f"{place}.{field.name}", f"{place}.{alike[0]}"
            yield from _misspelt(f"{place}.{field.name}", field.type, [value.get(field.name) for value in found])


def _objects(path: str, spec: SourceSpec) -> Iterator[dict[str, object]]:
    with closing(TextStream(path, spec, path)) as stream:
        lines = stream.next_bytes().split(b"\n")
    for line in lines[:_LINES]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield cast("dict[str, object]", found)
