"""Pieces of an OpenAPI schema as the API server takes them: one function for each kind of field the manifest has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamtopology.topology.limits import HIGHEST_PRICE
from streamtopology.topology.quantities import LONGEST_QUANTITY

Schema = dict[str, object]


def text(description: str, longest: int | None = None, **more: object) -> Schema:
    """A text that is not empty."""
    length = {} if longest is None else {"maxLength": longest}
    return {"type": "string", "description": description, "minLength": 1, **length, **more}


def choice(description: str, allowed: Sequence[str], default: str | None = None) -> Schema:
    return {"type": "string", "description": description, "enum": list(allowed), **_default(default)}


def whole(description: str, least: int | None = None, most: int | None = None, default: int | None = None) -> Schema:
    bounds = {name: value for name, value in (("minimum", least), ("maximum", most)) if value is not None}
    kind: Schema = {"type": "integer", "format": "int64", "description": description}
    return kind | bounds | _default(default)


def fraction(description: str, default: float) -> Schema:
    """A number above 0 and at most 1."""
    bounds = {"minimum": 0, "exclusiveMinimum": True, "maximum": 1}
    return {"type": "number", "description": description, **bounds, "default": default}


def number(description: str) -> Schema:
    return {"type": "number", "description": description}


def price(description: str) -> Schema:
    """A number above 0."""
    bounds = {"minimum": 0, "exclusiveMinimum": True, "maximum": HIGHEST_PRICE}
    return {"type": "number", "description": description, **bounds}


def flag(description: str, default: bool | None = None) -> Schema:
    return {"type": "boolean", "description": description, **_default(default)}


def quantity(description: str, default: str | None = None) -> Schema:
    """A quantity as a pod takes it: a text or any number. Only an open schema allows a fraction; the policy judges it."""
    return anything(description, maxLength=LONGEST_QUANTITY) | _default(default)


def duration(description: str, rules: Sequence[Schema], default: str | None = None) -> Schema:
    """A duration: a text, or 0."""
    kind: Schema = {"x-kubernetes-int-or-string": True, "description": description, "maxLength": 40}
    return kind | _default(default) | {"x-kubernetes-validations": list(rules)}


def mapping(
    description: str,
    fields: Mapping[str, Schema],
    required: Sequence[str] = (),
    rules: Sequence[Schema] = (),
    defaulted: bool = False,
) -> Schema:
    """Fields by name. `defaulted`: left out, it is the defaults of its fields."""
    kind: Schema = {"type": "object", "description": description, "properties": dict(fields)}
    if required:
        kind["required"] = list(required)
    if rules:
        kind["x-kubernetes-validations"] = list(rules)
    if defaulted:
        kind["default"] = {name: field["default"] for name, field in fields.items() if "default" in field}
    return kind


def named_items(description: str, item: Schema, least: int, most: int) -> Schema:
    """A list whose items differ in `name`; server-side apply merges it by that."""
    keys: Schema = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    return {"type": "array", "description": description, "items": item, "minItems": least, "maxItems": most, **keys}


def texts_by_name(description: str) -> Schema:
    return {"type": "object", "description": description, "additionalProperties": {"type": "string"}}


def options(description: str) -> Schema:
    """A mapping whose values are texts, numbers or true and false: a union, which only an open schema allows."""
    return {"type": "object", "description": description, "additionalProperties": anything()}


def free(description: str) -> Schema:
    """A mapping of whatever JSON can say."""
    return {"type": "object", "description": description, **anything()}


def anything(description: str | None = None, **checks: object) -> Schema:
    """A value of more than one kind: the API server keeps it as it is and its rules do not see it."""
    described = {} if description is None else {"description": description}
    return {**described, "x-kubernetes-preserve-unknown-fields": True, **checks}


def _default(value: object) -> Schema:
    return {} if value is None else {"default": value}
