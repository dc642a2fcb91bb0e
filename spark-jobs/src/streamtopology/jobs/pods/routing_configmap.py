"""The routing ConfigMap as values: all that a running driver gets from the operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from streamtopology.contract.routing_configmap import EpochState, PackedEpoch, RoutingData, RoutingMapError
from streamtopology.routing.epochs.epoch import Epoch, EpochFormatError
from streamtopology.topology import Topology, parse


@dataclass(frozen=True)
class PlannedEpoch:
    """An epoch that the operator made for the topology of `generation`."""

    epoch: Epoch
    generation: int
    state: EpochState


@dataclass(frozen=True)
class RoutingMap:
    """`generation` counts the versions of the StreamTopology that `topology` is of. `former_checkpoint`: empty for none."""

    topology: Topology
    generation: int
    planned: PlannedEpoch | None
    former_checkpoint: str = ""

    @staticmethod
    def read(name: str, data: Mapping[str, str], binary_data: Mapping[str, str]) -> RoutingMap:
        """Read a ConfigMap's `data` and (base64) `binaryData`. Raises RoutingMapError, or ManifestError for its topology."""
        given = RoutingData.from_data(name, data, binary_data)
        planned = None if given.epoch is None else _planned(name, given.epoch)
        return RoutingMap(_topology(name, given), given.generation, planned, given.former_checkpoint)


def _topology(name: str, given: RoutingData) -> Topology:
    where = f"generation {given.generation} in ConfigMap {name}"
    try:
        return parse(json.loads(given.topology), where)
    except json.JSONDecodeError as error:
        raise RoutingMapError(f"ConfigMap {name}: data.topology is not JSON: {error}") from error


def _planned(name: str, given: PackedEpoch) -> PlannedEpoch:
    try:
        epoch = Epoch.from_json(given.unpacked(name))
    except EpochFormatError as damage:
        raise RoutingMapError(f"ConfigMap {name}: binaryData.epoch: {damage}") from damage
    if epoch.number != given.number:
        raise RoutingMapError(
            f"ConfigMap {name}: data.epochNumber is {given.number}, binaryData.epoch holds epoch {epoch.number}"
        )
    return PlannedEpoch(epoch, given.generation, given.state)
