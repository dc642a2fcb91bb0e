"""The routing ConfigMap: how the operator tells a running driver its topology and its newest epoch, as text and bytes.

An epoch travels packed, gzip of its JSON, and is not unpacked here: the operator's own process shall not load what it is made
of. ConfigMaps have no key in both maps, so the epoch's number is `data.epochNumber`.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

EpochState = Literal["prepared", "ready"]
"""`prepared` until the state that it moves has been copied ahead."""

READY: Mapping[str, str] = {"epochState": "ready"}
"""The change of `data` that makes a prepared epoch ready."""


class RoutingMapError(ValueError):
    """The ConfigMap does not hold what it should; the message says what and where."""


@dataclass(frozen=True)
class PackedEpoch:
    """An epoch, made for the topology of `generation`. `why`: for people."""

    number: int
    generation: int
    packed: bytes
    state: EpochState
    why: str = ""

    def unpacked(self, name: str) -> str:
        """Its JSON. RoutingMapError names the ConfigMap `name`."""
        try:
            return gzip.decompress(self.packed).decode()
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as damage:
            raise _not_gzip(name, damage) from damage


def pack(text: str) -> bytes:
    """An epoch's JSON as it travels; equal texts give equal bytes."""
    return gzip.compress(text.encode(), mtime=0)


@dataclass(frozen=True)
class RoutingData:
    """All that the ConfigMap holds. `topology`: JSON of a manifest, `generation`: that of the StreamTopology it is of.

    `restart_generation`: the generation whose change the driver was restarted for last.
    """

    topology: str
    generation: int
    restart_generation: int = 0
    epoch: PackedEpoch | None = None

    def to_data(self) -> tuple[dict[str, str], dict[str, str]]:
        """`data` and (base64) `binaryData`."""
        data = {
            "topology": self.topology,
            "generation": str(self.generation),
            "restartGeneration": str(self.restart_generation),
        }
        if self.epoch is None:
            return data, {}
        data |= {
            "epochNumber": str(self.epoch.number),
            "epochGeneration": str(self.epoch.generation),
            "epochState": self.epoch.state,
            "epochReason": self.epoch.why,
        }
        return data, {"epoch": base64.b64encode(self.epoch.packed).decode()}

    @staticmethod
    def from_data(name: str, data: Mapping[str, str], binary_data: Mapping[str, str]) -> RoutingData:
        """From `data` and (base64) `binaryData` of the ConfigMap `name`. RoutingMapError."""
        restart = _number(name, data, "restartGeneration") if "restartGeneration" in data else 0
        return RoutingData(
            _text(name, data, "topology"), _number(name, data, "generation"), restart, _epoch(name, data, binary_data)
        )


@dataclass(frozen=True)
class Outline:
    """What the ConfigMap says without the epoch itself; `epoch`: its number, None where none is published."""

    topology: str = ""
    generation: int = 0
    restart_generation: int = 0
    epoch: int | None = None
    epoch_state: str = ""

    @staticmethod
    def from_data(data: Mapping[str, str]) -> Outline:
        """Of any `data`: what somebody has damaged counts as 0 or nothing, and so as unlike what is wanted."""
        return Outline(
            data.get("topology", ""),
            _number_or_0(data.get("generation", "")),
            _number_or_0(data.get("restartGeneration", "")),
            _number_or_0(data["epochNumber"]) if data.get("epochNumber") else None,
            data.get("epochState", ""),
        )


def _epoch(name: str, data: Mapping[str, str], binary_data: Mapping[str, str]) -> PackedEpoch | None:
    if "epoch" not in binary_data:
        return None
    number, generation = _number(name, data, "epochNumber"), _number(name, data, "epochGeneration")
    state = _text(name, data, "epochState")
    if state not in ("prepared", "ready"):
        raise RoutingMapError(f"ConfigMap {name}: data.epochState is {state!r}, neither 'prepared' nor 'ready'")
    try:
        packed = base64.b64decode(binary_data["epoch"], validate=True)
    except binascii.Error as damage:
        raise _not_gzip(name, damage) from damage
    return PackedEpoch(number, generation, packed, state, data.get("epochReason", ""))


def _text(name: str, data: Mapping[str, str], key: str) -> str:
    if key not in data:
        raise RoutingMapError(f"ConfigMap {name} has no data.{key}")
    return data[key]


def _number(name: str, data: Mapping[str, str], key: str) -> int:
    text = _text(name, data, key)
    if not text.isdecimal():
        raise RoutingMapError(f"ConfigMap {name}: data.{key} is {text!r}, not a whole number")
    return int(text)


def _number_or_0(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _not_gzip(name: str, damage: Exception) -> RoutingMapError:
    return RoutingMapError(f"ConfigMap {name}: binaryData.epoch is not gzip of text: {damage}")
