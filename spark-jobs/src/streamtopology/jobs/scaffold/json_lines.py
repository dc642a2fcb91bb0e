"""Files and messages of JSON objects, one a line: their fields, and the types of these."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.scaffold.files import first_bytes, text_of
from streamtopology.jobs.scaffold.text_types import type_of_json

_SAMPLE_BYTES = 2 << 20
_MOST_ROWS = 20_000

Object = dict[str, Any]


def json_columns(paths: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Name and Spark type of each field in the first lines of `paths`, and a sentence for each that is left out."""
    objects = [found for path in paths for found in _objects(path)]
    if not objects:
        raise WrongUse(f"{paths[0]} has no JSON object")
    columns, notes = fields_of(objects)
    return [(name, _struct_of(name, objects) or type_) for name, type_ in columns], notes


def _struct_of(name: str, objects: Sequence[Object]) -> str | None:
    """The type of a field that is an object, of its plain fields; None if it is none, or has none."""
    inner = [value for found in objects if isinstance(value := found.get(name), dict)]
    plain = [
        (field, type_) for field, type_ in fields_of(inner)[0] if not any(isinstance(one.get(field), dict) for one in inner)
    ]
    named = [f"`{field.replace('`', '``')}`: {type_}" for field, type_ in plain]
    return f"STRUCT<{', '.join(named)}>" if named else None


def fields_of(objects: Sequence[Object]) -> tuple[list[tuple[str, str]], list[str]]:
    """Name and Spark type of each field of `objects`, and a sentence for each that is left out.

    >>> fields_of([{"a": 1, "b": {"c": 2}, "d": [3]}, {"a": 2.5}])
    ([('a', 'DOUBLE'), ('b', 'STRING')], ["left out: field 'd', an array or of several types"])
    """
    names = dict.fromkeys(name for found in objects for name in found)
    columns, notes, seen = list[tuple[str, str]](), list[str](), set[str]()
    for name in names:
        type_ = type_of_json(found.get(name) for found in objects)
        if type_ is None:
            notes.append(f"left out: field {name!r}, an array or of several types")
        elif not name.strip() or name.lower() in seen:
            notes.append(f"left out: field {name!r}, a name that another field has (upper and lower case are the same)")
        else:
            columns.append((name, type_))
            seen.add(name.lower())
    return columns, notes


def parsed(lines: Iterable[str]) -> list[Object] | None:
    """The objects of `lines`, empty ones apart; None if one of them is no JSON object."""
    try:
        values = [json.loads(line) for line in lines if line.strip()]
    except (ValueError, RecursionError):
        return None
    return values if all(isinstance(value, dict) for value in values) else None


def _objects(path: str) -> list[Object]:
    data = first_bytes(path, _SAMPLE_BYTES)
    text = text_of(data if len(data) < _SAMPLE_BYTES else data[: data.rfind(b"\n") + 1] or data, path)
    objects = parsed(text.split("\n")[:_MOST_ROWS])
    if objects is None:
        raise WrongUse(
            f"{path} is not one JSON object a line; `jq -c '.[]' {path}` makes that of an array, `jq -c . {path}` of objects "
            "over several lines"
        )
    return objects
