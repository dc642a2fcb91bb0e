"""Bodies of requests and answers as plain dicts. In an answer, a field that is null is a field that is not there.

Go writes null for an empty list or map unless its type says `omitempty`, which leaves the field out. So a list of metadata
without any object has `"items": null`. Readers after this module need one word for both: `.get(name, default)`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from streamtopology.k8s.names import Kind
from streamtopology.k8s.resources.objects import Object
from streamtopology.topology import API_VERSION

# Control characters, line separators and marks, which JSON takes as they are.
_UNSAFE_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


@dataclass(frozen=True)
class ListPart:
    """A part of a list. `version`: the resource version of the whole list, from which a watch continues; `after`: the token
    of the next part, "" in the last one."""

    items: list[Object]
    version: str
    after: str


def decoded(payload: bytes) -> Object:
    """The object in the body of an answer. ValueError: there is none, as where a proxy answers in a form of its own."""
    body = json.loads(payload)
    if isinstance(body, dict):
        return without_nulls(cast(Object, body))
    raise ValueError(f"not an object of the API server's: {payload[:100]!r}")


def without_nulls(body: Mapping[str, Any]) -> Object:
    """The object without fields that are null, at any depth.

    The `spec` of our own kinds stays as its user wrote it: a null in it may be an option's value.
    """
    is_ours = body.get("apiVersion") == API_VERSION
    return {
        name: value if is_ours and name == "spec" else _without_nulls(value)
        for name, value in body.items()
        if value is not None
    }


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return without_nulls(cast(Object, value))
    if isinstance(value, list):
        return [_without_nulls(each) for each in cast("list[Any]", value) if each is not None]
    return value


def yaml_of(body: Object) -> bytes:
    """The object as JSON that is also YAML, as which the API server reads an apply.

    YAML takes no escape for half of an emoji, so texts are written as they are. It escapes what it would refuse or fold.
    """
    text = json.dumps(body, ensure_ascii=False)
    return _UNSAFE_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def part_of(answer: Object, kind: Kind) -> ListPart:
    """The part of a list of `kind` in an answer; its items name their kind, which the API server leaves out of a list."""
    metadata: Object = answer.get("metadata", {})
    items = [{**item, "apiVersion": kind.api_version, "kind": kind.kind} for item in answer.get("items", ())]
    return ListPart(items, str(metadata.get("resourceVersion", "")), str(metadata.get("continue", "")))


def version_number(version: str) -> int:
    """A resource version as a number for comparison; 0, before all others, where there is none."""
    return int(version or 0)
