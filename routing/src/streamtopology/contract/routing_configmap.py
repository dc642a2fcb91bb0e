"""The routing ConfigMap: carries topology and newest epoch from the operator to a running driver, as text and bytes.

An epoch travels packed, gzip of its JSON, and is not unpacked here: the operator's own process shall not load what it is made
of. ConfigMaps have no key in both maps, so the epoch's number is `data.epochNumber`.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from streamtopology.contract.errors import UnreadableData
from streamtopology.contract.format_number import FORMAT, check_format
from streamtopology.contract.wire_values import WireError, from_wire, to_wire

CONFIGMAP_FORMAT = 1
_TO_DO = "delete it, and the operator writes it again"

# `prepared` until the state that it moves has been pre-copied.
EpochState = Literal["prepared", "ready"]

FAILED_MIGRATIONS = "failedMigrations"
WITHDRAWALS = "withdrawals"
FORMER_CHECKPOINT = "formerCheckpoint"

# The change of `data` that makes a prepared epoch ready, which is copied.
READY: Mapping[str, str | None] = {"epochState": "ready", FAILED_MIGRATIONS: None}


# The change of the ConfigMap that takes the epoch out, also one that others hold.
NO_EPOCH: Mapping[str, Mapping[str, None]] = {
    "data": dict.fromkeys(("epochNumber", "epochGeneration", "epochState", "epochReason", "epochDigest")),
    "binaryData": {"epoch": None},
}


class RoutingMapError(UnreadableData):
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


@dataclass(frozen=True)
class Withdrawals:
    """Epochs that were withdrawn one after the other, none active in between.

    `at`: the last time, seconds since 1970; `reason`, `why`: of that, for a condition.
    """

    count: int = 0
    at: float = 0.0
    reason: str = ""
    why: str = ""


# Bytes of a packed epoch that fit into a ConfigMap of 1 MiB in base64, next to a topology and what others add.
LARGEST_EPOCH = 600_000


def pack(text: str) -> bytes:
    """An epoch's JSON as it travels; equal texts give equal bytes."""
    return gzip.compress(text.encode(), mtime=0)


@dataclass(frozen=True)
class RoutingData:
    """All that the ConfigMap holds. `topology`: JSON of a manifest, `generation`: that of the StreamTopology it is of.

    `restart_generation`: the generation whose change the driver was restarted for last. `failed_migrations`: pre-copies that
    have failed one after the other, and `withdrawals`: both for the operator alone. `former_checkpoint`: the one in which the
    StreamTopology has committed its last batch, as far as it was known when this was written; empty for none.
    """

    topology: str
    generation: int
    restart_generation: int = 0
    epoch: PackedEpoch | None = None
    failed_migrations: int = 0
    former_checkpoint: str = ""
    withdrawals: Withdrawals = Withdrawals()

    def to_data(self) -> tuple[dict[str, str], dict[str, str]]:
        """`data` and (base64) `binaryData`."""
        data = {
            FORMAT: str(CONFIGMAP_FORMAT),
            "topology": self.topology,
            "generation": str(self.generation),
            "restartGeneration": str(self.restart_generation),
        }
        if self.failed_migrations:
            data[FAILED_MIGRATIONS] = str(self.failed_migrations)
        if self.withdrawals.count:
            data[WITHDRAWALS] = json.dumps(to_wire(self.withdrawals))
        if self.former_checkpoint:
            data[FORMER_CHECKPOINT] = self.former_checkpoint
        if self.epoch is None:
            return data, {}
        data |= {
            "epochNumber": str(self.epoch.number),
            "epochGeneration": str(self.epoch.generation),
            "epochState": self.epoch.state,
            "epochReason": self.epoch.why,
            "epochDigest": _digest(self.epoch.packed),
        }
        return data, {"epoch": base64.b64encode(self.epoch.packed).decode()}

    @staticmethod
    def from_data(name: str, data: Mapping[str, str], binary_data: Mapping[str, str]) -> RoutingData:
        """From `data` and (base64) `binaryData` of the ConfigMap `name`. RoutingMapError."""
        check_format(data, CONFIGMAP_FORMAT, f"ConfigMap {name}", _TO_DO, RoutingMapError)
        return RoutingData(
            _text(name, data, "topology"),
            _number(name, data, "generation"),
            _number(name, data, "restartGeneration"),
            _epoch(name, data, binary_data),
            former_checkpoint=data.get(FORMER_CHECKPOINT, ""),
        )


@dataclass(frozen=True)
class Outline:
    """The content of the ConfigMap without the epoch itself; `epoch`: its number, None where none is published."""

    topology: str = ""
    generation: int = 0
    restart_generation: int = 0
    epoch: int | None = None
    epoch_state: str = ""
    failed_migrations: int = 0
    withdrawals: Withdrawals = Withdrawals()

    @staticmethod
    def from_data(data: Mapping[str, str], binary_data: Mapping[str, str]) -> Outline:
        """Of any `data` and `binaryData`: what somebody has damaged counts as 0 or nothing, and so as unlike what is wanted.

        An epoch that is damaged, or of which a part is gone, has the number 0, which no published one has.
        """
        return Outline(
            data.get("topology", ""),
            _number_or_0(data.get("generation", "")),
            _number_or_0(data.get("restartGeneration", "")),
            _number_if_whole(data, binary_data),
            data.get("epochState", ""),
            _number_or_0(data.get(FAILED_MIGRATIONS, "")),
            _withdrawals(data.get(WITHDRAWALS, "")),
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


def _withdrawals(text: str) -> Withdrawals:
    try:
        return from_wire(Withdrawals, json.loads(text or "{}"))
    except (WireError, ValueError):
        return Withdrawals()


def _number_if_whole(data: Mapping[str, str], binary_data: Mapping[str, str]) -> int | None:
    """The epoch's number; 0 if it is damaged, None if there is no epoch."""
    if not {"epochNumber", "epochState"} & data.keys() and "epoch" not in binary_data:
        return None
    try:
        packed = base64.b64decode(binary_data.get("epoch", ""), validate=True)
    except binascii.Error:
        return 0
    return _number_or_0(data.get("epochNumber", "")) if packed and _digest(packed) == data.get("epochDigest") else 0


def _digest(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()[:16]


def _not_gzip(name: str, damage: Exception) -> RoutingMapError:
    return RoutingMapError(f"ConfigMap {name}: binaryData.epoch is not gzip of text: {damage}")
