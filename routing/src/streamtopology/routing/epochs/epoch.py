"""Route and Epoch: all routing of a topology under one number. A micro-batch runs under exactly one epoch.

Tables, source shares and placement only make sense together. So they are one immutable value with one number, and a batch
record that names the number names all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from streamtopology.contract.errors import UnreadableData
from streamtopology.contract.format_number import FORMAT, ONE_VERSION, check_format
from streamtopology.contract.reasons import EpochReason
from streamtopology.contract.wire_values import Form, WireError, from_wire, to_wire
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.table.table import RoutingTable

EPOCH_FORMAT = 1


class EpochFormatError(UnreadableData):
    """A serialised epoch is damaged, not an epoch, or of another version; the message says which and where."""


@dataclass(frozen=True)
class Route:
    """The routing of tuples to the instances of one operator.

    policy: name of the grouping. table: what a table grouping looks up, None for a chooser. instances: the active ones.
    options: the grouping's, of JSON's types. ValueError says what does not fit.
    """

    EXACT: ClassVar[bool] = True

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

    EXACT: ClassVar[bool] = True

    number: int
    routes: Mapping[str, Route]
    source_shares: tuple[float, ...]
    reason: Annotated[EpochReason, Form(EpochReason.to_text, EpochReason.from_text, str)]
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
        return {FORMAT: EPOCH_FORMAT, **to_wire(self)}

    @staticmethod
    def from_wire(wire: Mapping[str, object]) -> Epoch:
        """The epoch that `to_wire` was called on. EpochFormatError says what is wrong and where."""
        if not isinstance(wire, Mapping):  # type: ignore[reportUnnecessaryIsInstance]
            raise EpochFormatError(f"an epoch is a JSON object, not {type(wire).__name__}")
        check_format(wire, EPOCH_FORMAT, "the epoch", ONE_VERSION, EpochFormatError)
        try:
            return from_wire(Epoch, {name: value for name, value in wire.items() if name != FORMAT})
        except WireError as wrong:
            raise EpochFormatError(f"the epoch does not hold: {wrong}") from wrong

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
