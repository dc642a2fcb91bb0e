"""The fields of an object that we own, and what has become of them since we wrote them. Pure.

The API server keeps account of who wrote which field (`metadata.managedFields`). A field that somebody else has changed or
removed is no longer ours: a drift, which the next apply repairs. A field that is ours and has another value was changed on
its way by an admission webhook: the next apply would meet the same webhook, so that is reported and left.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from streamtopology.k8s import names
from streamtopology.k8s.decide.fields import items_at, mapping_at
from streamtopology.k8s.resources.objects import Object
from streamtopology.topology import parse_quantity

Json = Any
Place = tuple[str, ...]
# A set of fields as managedFields has it: `f:NAME` of an object, `k:KEYS` and `v:VALUE` of a list, all within each other.
Fields = dict[str, Any]

# Fields of an object, or of its metadata, that nobody owns and that never change.
_OURS_ALONE = ("apiVersion", "kind", "name", "namespace")


@dataclass(frozen=True)
class Differences:
    """Places of fields, as `spec.replicas`: `taken` by somebody else or removed, and `mutated` by admission with the value."""

    taken: tuple[str, ...] = ()
    mutated: tuple[str, ...] = ()


def own_values(body: Mapping[str, Any]) -> str:
    """The values of our fields as JSON. Lists of named things become objects by their keys, as managedFields has them."""
    fields: Fields = {}
    for entry in items_at(body["metadata"], "managedFields"):
        if entry.get("manager") == names.MANAGER and entry.get("subresource") != "status":
            _unite(fields, mapping_at(entry, "fieldsV1"))
    return json.dumps(_values(body, fields), separators=(",", ":")) if fields else "{}"


def differences(wanted: Mapping[str, Any], values: str) -> Differences:
    """Compare an object as we write it with the `values` of our fields in the present one."""
    body = {name: value for name, value in wanted.items() if name not in _OURS_ALONE}
    body["metadata"] = {name: value for name, value in wanted["metadata"].items() if name not in _OURS_ALONE}
    taken: list[str] = []
    mutated: list[str] = []
    for place, change in _differ(body, json.loads(values), ()):
        name = ".".join(place)
        if change is None:
            taken.append(name)
        else:
            mutated.append(f"{name}: {change}")
    return Differences(tuple(taken), tuple(mutated))


def pod_values(spec: Mapping[str, Any]) -> str:
    """What a pod has of what its template may ask for, as JSON."""
    return json.dumps(_of_pod(spec), separators=(",", ":"))


def pod_changes(wanted: Mapping[str, Any], values: str) -> tuple[str, ...]:
    """Compare a template's `spec` with the `values` of a pod that was made of it. A variable's value may be a secret."""
    ours = json.loads(values)
    return tuple(
        f"{place} is another" if place.startswith("env.") else f"{place}: {_short(value)} became {_short(ours.get(place))}"
        for place, value in _of_pod(wanted).items()
        if not _covers(ours.get(place), value)
    )


def _of_pod(spec: Mapping[str, Any]) -> Object:
    """By its place: image and variables of our container, labels of nodes. An executor's resources change in place, and are
    compared in resizing.py."""
    container = own_container(spec.get("containers") or [{}])
    found: Object = {"image": container.get("image")}
    if container.get("name") == "driver":
        resources = mapping_at(container, "resources")
        found |= {f"{kind}.{name}": value for kind, amounts in resources.items() for name, value in amounts.items()}
    found |= {f"nodeSelector.{name}": value for name, value in mapping_at(spec, "nodeSelector").items()}
    variables = items_at(container, "env")
    return found | {f"env.{one['name']}": {name: value for name, value in one.items() if name != "name"} for one in variables}


def own_container(containers: Sequence[Mapping[str, Any]], name: str | None = None) -> Mapping[str, Any]:
    """Our own container, without injected sidecars."""
    ours = (name,) if name else ("driver", "executor", "migrate", "snapshot")
    return next((container for container in containers if container.get("name") in ours), containers[0])


def _unite(fields: Fields, others: Fields) -> None:
    for name, inner in others.items():
        _unite(fields.setdefault(name, {}), inner)


def _values(value: Json, fields: Fields) -> Json:
    """The parts of a value that are in `fields`; null for those that the value has not."""
    inner = {name: each for name, each in fields.items() if name != "."}
    if not inner:
        return value
    if any(name.startswith("f:") for name in inner):
        known = cast("dict[str, Json]", value) if isinstance(value, dict) else {}
        return {name[2:]: _values(known.get(name[2:]), each) for name, each in inner.items()}
    items = cast("list[Json]", value) if isinstance(value, list) else []
    return {name: _values(_item(items, name), each) for name, each in inner.items()}


def _item(items: list[Json], name: str) -> Json:
    """The item of a list that a set of fields calls `name`; None where there is none."""
    kind, key = name[0], json.loads(name[2:])
    if kind == "k":
        return next((item for item in items if all(item.get(part) == given for part, given in key.items())), None)
    if kind == "i":
        return items[key] if key < len(items) else None
    return key if key in items else None


def _differ(wanted: Json, ours: Json, place: Place) -> Iterator[tuple[Place, str | None]]:
    """Places that differ, each with what admission made of it; None where the field is not ours any more."""
    if isinstance(wanted, dict) and isinstance(ours, dict):
        for name, value in cast("dict[str, Json]", wanted).items():
            if value in ({}, [], None):
                continue  # the API server leaves it out, or it says nothing
            if name not in ours:
                yield (*place, name), None
            else:
                yield from _differ(value, ours[name], (*place, name))
    elif isinstance(wanted, list) and isinstance(ours, dict):
        yield from _items_differ(cast("list[Json]", wanted), cast("dict[str, Json]", ours), place)
    elif not _covers(ours, wanted):
        yield place, f"{_short(wanted)} became {_short(ours)}"


def _items_differ(wanted: list[Json], ours: dict[str, Json], place: Place) -> Iterator[tuple[Place, str | None]]:
    known = {name: (name[0], json.loads(name[2:])) for name in ours}
    for number, item in enumerate(wanted):
        name = next((name for name, (kind, key) in known.items() if _is_called(item, number, kind, key)), None)
        title = str(cast("Object", item).get("name", number)) if isinstance(item, dict) else str(item)
        if name is None:
            yield (*place, title), None
        else:
            yield from _differ(item, ours[name], (*place, title))


def _is_called(item: Json, number: int, kind: str, key: Json) -> bool:
    """True if this is the name of `item`. A part of a key that the item does not have is the API server's default."""
    if kind == "k":
        parts = cast("Object", item) if isinstance(item, dict) else None
        return parts is not None and all(parts.get(part, given) == given for part, given in key.items())
    return (number if kind == "i" else item) == key


def _covers(live: Json, wanted: Json) -> bool:
    """True if `live` is `wanted`, but for defaults that the API server has added and other forms of quantities."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        there = cast("Object", live)
        return all(
            _covers(there.get(name), value) for name, value in cast("Object", wanted).items() if value not in ({}, [], None)
        )
    if isinstance(wanted, list) and isinstance(live, list):
        here, there = cast("list[Json]", wanted), cast("list[Json]", live)
        return len(there) == len(here) and all(map(_covers, there, here))
    if live is None:
        return wanted in ("", 0, False)  # the API server leaves these out
    return live == wanted or _amount(live) == _amount(wanted) is not None


def _amount(value: Json) -> int | None:
    """Thousandths of a quantity, to which the API server rounds CPU and memory up."""
    amount = parse_quantity(value)
    return None if amount is None else math.ceil(amount * 1000)


def _short(value: Json) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
