"""The routing ConfigMap: the one thing that the operator tells a running driver, as values."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from streamtopology.routing.epoch import Epoch, EpochFormatError
from streamtopology.routing.topology import Topology, parse

EpochState = Literal["prepared", "ready"]


class RoutingMapError(ValueError):
    """The ConfigMap does not hold what it should; the message says what and where."""


@dataclass(frozen=True)
class PlannedEpoch:
    """An epoch made by the operator for the topology of `generation`; `prepared` until its state has been copied ahead."""

    epoch: Epoch
    generation: int
    state: EpochState


@dataclass(frozen=True)
class RoutingMap:
    """`generation` counts the versions of the StreamTopology that `topology` is of."""

    topology: Topology
    generation: int
    planned: PlannedEpoch | None

    @staticmethod
    def read(name: str, data: Mapping[str, str], binary_data: Mapping[str, str]) -> RoutingMap:
        """From a ConfigMap's `data` and (base64) `binaryData`. RoutingMapError, or ManifestError for its topology."""
        generation = _number(name, data, "generation")
        return RoutingMap(_topology(name, data, generation), generation, _planned(name, data, binary_data))


def _topology(name: str, data: Mapping[str, str], generation: int) -> Topology:
    text = _text(name, data, "topology")
    where = f"generation {generation} in ConfigMap {name}"
    try:
        return parse(json.loads(text), where)
    except json.JSONDecodeError as error:
        raise RoutingMapError(f"ConfigMap {name}: data.topology is not JSON: {error}") from error


def _planned(name: str, data: Mapping[str, str], binary_data: Mapping[str, str]) -> PlannedEpoch | None:
    if "epoch" not in binary_data:
        return None
    number, generation = _number(name, data, "epochNumber"), _number(name, data, "epochGeneration")
    state = _text(name, data, "epochState")
    if state not in ("prepared", "ready"):
        raise RoutingMapError(f"ConfigMap {name}: data.epochState is {state!r}, neither 'prepared' nor 'ready'")
    try:
        epoch = Epoch.from_json(gzip.decompress(base64.b64decode(binary_data["epoch"], validate=True)).decode())
    except (binascii.Error, OSError, EOFError, zlib.error, UnicodeDecodeError) as damage:
        raise RoutingMapError(f"ConfigMap {name}: binaryData.epoch is not gzip of text: {damage}") from damage
    except EpochFormatError as damage:
        raise RoutingMapError(f"ConfigMap {name}: binaryData.epoch: {damage}") from damage
    if epoch.number != number:
        raise RoutingMapError(f"ConfigMap {name}: data.epochNumber is {number}, binaryData.epoch holds epoch {epoch.number}")
    return PlannedEpoch(epoch, generation, cast(EpochState, state))


def _text(name: str, data: Mapping[str, str], key: str) -> str:
    if key not in data:
        raise RoutingMapError(f"ConfigMap {name} has no data.{key}")
    return data[key]


def _number(name: str, data: Mapping[str, str], key: str) -> int:
    text = _text(name, data, key)
    if not text.isdecimal():
        raise RoutingMapError(f"ConfigMap {name}: data.{key} is {text!r}, not a whole number")
    return int(text)
