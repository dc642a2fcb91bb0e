"""Route and Epoch: all routing of a topology under one number. A micro-batch runs under exactly one epoch.

Tables, source shares and placement only make sense together. So they are one immutable value with one number, and a batch
record that names the number names all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from streamtopology.contract.errors import UnreadableData
from streamtopology.contract.format_number import FORMAT, ONE_VERSION, check_format
from streamtopology.contract.reasons import EpochReason
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.table.table import RoutingTable, TableFormatError

EPOCH_FORMAT = 1
_FIELDS = {FORMAT, "number", "reason", "source_shares", "routes", "placement"}
_ROUTE_FIELDS = {"policy", "table", "instances", "options"}


class EpochFormatError(UnreadableData):
    """A serialised epoch is damaged, not an epoch, or of another version; the message says which and where."""


@dataclass(frozen=True)
class Route:
    """The routing of tuples to the instances of one operator.

    policy: name of the grouping. table: what a table grouping looks up, None for a chooser. instances: the active ones.
    options: the grouping's, of JSON's types. ValueError says what does not fit.
    """

    policy: str
    table: RoutingTable | None
    instances: tuple[int, ...]
    options: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        object.__setattr__(self, "instances", tuple(sorted(int(instance) for instance in self.instances)))
        object.__setattr__(self, "options", _as_json(self.options))
        if not self.instances or len(set(self.instances)) < len(self.instances) or self.instances[0] < 0:
            raise ValueError(f"active instances are distinct numbers from 0, at least one; found {self.instances}")
        strangers = set(self.table.instances() if self.table else ()) - set(self.instances)
        if strangers:
            raise ValueError(f"the table names instances {sorted(strangers)}, active are only {self.instances}")


@dataclass(frozen=True)
class Epoch:
    """A numbered, immutable version of all routing of a topology.

    routes: one for each operator, by its name. source_shares: the share of the source rows that each slot reads, by slot
    number, sums to 1; empty means equal shares. reason: why this epoch followed the one before. placement: the slot of
    each instance; None: instance i lives on slot i mod their number, as in the simulator.
    """

    number: int
    routes: Mapping[str, Route]
    source_shares: tuple[float, ...]
    reason: EpochReason
    placement: Placement | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "routes", dict(self.routes))
        object.__setattr__(self, "source_shares", tuple(float(share) for share in self.source_shares))
        if self.number < 0:
            raise ValueError(f"epochs are numbered from 0; found {self.number}")
        if self.source_shares and not (
            min(self.source_shares) >= 0 and math.isclose(sum(self.source_shares), 1.0, abs_tol=1e-6)
        ):
            raise ValueError(f"source_shares are not negative and sum to 1; found {self.source_shares}")
        if self.placement is not None and self.source_shares and len(self.source_shares) != len(self.placement.slots):
            raise ValueError(f"{len(self.source_shares)} source_shares for {len(self.placement.slots)} slots")

    def to_wire(self) -> dict[str, object]:
        """A JSON-able dict, for records that hold an epoch among other things."""
        return {
            FORMAT: EPOCH_FORMAT,
            "number": self.number,
            "reason": self.reason.to_wire(),
            "source_shares": list(self.source_shares),
            "routes": {name: _route_to_wire(route) for name, route in self.routes.items()},
            "placement": None if self.placement is None else self.placement.to_wire(),
        }

    @staticmethod
    def from_wire(wire: Mapping[str, object]) -> Epoch:
        """The epoch that `to_wire` was called on. EpochFormatError says what is wrong and where."""
        if not isinstance(wire, Mapping):  # type: ignore[reportUnnecessaryIsInstance]
            raise EpochFormatError(f"an epoch is a JSON object, not {type(wire).__name__}")
        check_format(wire, EPOCH_FORMAT, "the epoch", ONE_VERSION, EpochFormatError)
        _check_fields(wire, _FIELDS, "the epoch")
        number, reason = _typed(wire, "number", int, "the epoch"), _typed(wire, "reason", str, "the epoch")
        shares = _numbers(wire, "source_shares", "the epoch")
        given = cast("dict[str, object]", _typed(wire, "routes", dict, "the epoch"))
        routes = {name: _route_from_wire(name, route) for name, route in given.items()}
        try:
            placement = None if wire["placement"] is None else Placement.from_wire(_typed(wire, "placement", dict, "the epoch"))
            return Epoch(number, routes, tuple(shares), EpochReason.from_wire(reason), placement)
        except (ValueError, OverflowError) as error:
            raise EpochFormatError(f"the epoch does not hold: {error}") from error

    def to_json(self) -> str:
        """The epoch as JSON text; equal epochs give equal texts."""
        return json.dumps(self.to_wire(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Epoch:
        """The epoch that `to_json` was called on. EpochFormatError says what is wrong and where."""
        try:
            wire = json.loads(text)
        except json.JSONDecodeError as error:
            raise EpochFormatError(f"the epoch is not JSON: {error}") from error
        return Epoch.from_wire(wire)


def _as_json(options: Mapping[str, object]) -> dict[str, object]:
    """Options as they come back from JSON, so that an epoch that was written and read is equal to the first."""
    try:
        return json.loads(json.dumps(dict(options), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"options are of JSON's types (finite numbers, texts, lists, mappings): {error}") from error


def _route_to_wire(route: Route) -> dict[str, object]:
    table = None if route.table is None else route.table.to_wire()
    return {"policy": route.policy, "table": table, "instances": list(route.instances), "options": dict(route.options)}


def _route_from_wire(name: str, wire: object) -> Route:
    where = f"the route of operator {name!r}"
    if not isinstance(wire, dict):
        raise EpochFormatError(f"{where} is {wire!r}, not a JSON object")
    route = cast("dict[str, object]", wire)
    _check_fields(route, _ROUTE_FIELDS, where)
    policy = _typed(route, "policy", str, where)
    options = cast("dict[str, object]", _typed(route, "options", dict, where))
    instances = _numbers(route, "instances", where)
    try:
        table = None if route["table"] is None else RoutingTable.from_wire(_typed(route, "table", dict, where))
        if any(instance != int(instance) for instance in instances):
            raise ValueError(f"instances are whole numbers; found {instances}")
        return Route(policy, table, tuple(int(instance) for instance in instances), options)
    except TableFormatError as error:
        raise EpochFormatError(f"{where}: {error}") from error
    except (ValueError, OverflowError) as error:
        raise EpochFormatError(f"{where} does not hold: {error}") from error


def _check_fields(wire: Mapping[str, object], wanted: set[str], where: str) -> None:
    if set(wire) != wanted:
        raise EpochFormatError(f"{where} has the fields {sorted(wire)}, it should have {sorted(wanted)}")


def _typed(wire: Mapping[str, object], name: str, wanted: type[Any], where: str) -> Any:
    value = wire[name]
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise EpochFormatError(f"{where}: {name} is {value!r}, not of type {wanted.__name__}")
    return value


def _numbers(wire: Mapping[str, object], name: str, where: str) -> Sequence[float]:
    values = cast("list[object]", _typed(wire, name, list, where))
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        raise EpochFormatError(f"{where}: {name} holds {values!r}, where every value should be a number")
    return numbers
