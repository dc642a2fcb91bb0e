"""Objects of the API server with one optional field null, empty or missing: by its own types, not by what we read.

Which fields are optional comes from outside: the models of the client library, which are made from Kubernetes' OpenAPI, and
the schema of our resource definitions. What identifies an object is there in every answer.
"""

from __future__ import annotations

import copy
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

Object = dict[str, Any]
Place = tuple[str | int, ...]

STATES = ("null", "empty", "missing")
_CRDS = Path(__file__).parents[2] / "crds"
_IDENTITY = ("metadata", "name", "namespace", "uid", "resourceVersion", "generation", "apiVersion", "kind")


def variants(body: Object, places: Iterator[Place], states: Sequence[str] = STATES) -> Iterator[tuple[str, Object]]:
    """A name and a body for each change: each optional place in each of these states, one at a time."""
    for place in places:
        for state in states:
            changed = copy.deepcopy(body)
            *way, last = place
            holder: Any = changed
            for step in way:
                holder = holder[step]
            if state == "missing":
                del holder[last]
            else:
                holder[last] = None if state == "null" else type(holder[last])()
            yield f"{'.'.join(map(str, place))} {state}", changed


def of_kubernetes(model: type[BaseModel], body: Object, at: Place = ()) -> Iterator[Place]:
    """The places of optional fields in an object of a kind of Kubernetes."""
    named: Any = model
    fields = {camel: model.model_fields.get(name) for name, camel in named.attribute_map.items()}  # None: `from`, a word
    for name, value in body.items():
        field = fields[name]
        if (field is None or not field.is_required()) and name not in _IDENTITY:
            yield (*at, name)
        inner = _model_in(field.annotation) if field is not None else None
        for place, each in _objects(value, (*at, name)):
            if inner is not None:
                yield from of_kubernetes(inner, each, place)
            elif isinstance(value, dict):
                yield from ((*place, key) for key in each)  # labels, annotations, data, limits


def of_ours(definition: str, body: Object) -> Iterator[Place]:
    """The places of optional fields in the status of a StreamTopology or of a snapshot, and in its metadata."""
    crd: Any = yaml.safe_load((_CRDS / f"{definition}.streamtopology.dev.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    yield ("status",)
    yield from _by_schema(schema["properties"]["status"], body["status"], ("status",))
    yield from (("metadata", name) for name in body["metadata"] if name not in _IDENTITY)


def _by_schema(schema: Mapping[str, Any], value: Any, at: Place) -> Iterator[Place]:
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _by_schema(schema["items"], each, (*at, number))
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in schema.get("required", ()):
                yield (*at, name)
            inner = schema.get("properties", {}).get(name)
            if inner is not None:
                yield from _by_schema(inner, each, (*at, name))


def _objects(value: Any, at: Place) -> Iterator[tuple[Place, Object]]:
    if isinstance(value, dict):
        yield at, value
    elif isinstance(value, list):
        yield from (((*at, number), each) for number, each in enumerate(value) if isinstance(each, dict))


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    return next((found for each in typing.get_args(annotation) if (found := _model_in(each)) is not None), None)
