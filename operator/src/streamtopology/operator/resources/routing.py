"""The ConfigMap NAME-routing: the topology that is to run and the newest epoch. The one thing between us and the driver."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Literal

from streamtopology.operator import names
from streamtopology.operator.resources.objects import Object, Owner, owned
from streamtopology.routing.topology import Topology, to_manifest

LARGEST_BYTES = 900_000
"""Of a ConfigMap, which may hold 1 MiB with its metadata; an epoch of 3,000 entries an operator is some 100 kB."""

EpochState = Literal["prepared", "ready"]


class RoutingTooLargeError(ValueError):
    """The epoch does not fit into a ConfigMap; the message says what makes it smaller."""


@dataclass(frozen=True)
class PublishedEpoch:
    """An epoch as the ConfigMap holds it: `packed` is gzip of its JSON. `why`: for people."""

    number: int
    generation: int
    packed: bytes
    state: EpochState
    why: str


def config_map(
    owner: Owner, topology: Topology, generation: int, restart_generation: int, epoch: PublishedEpoch | None
) -> Object:  # fmt: skip
    """`topology` is resolved. RoutingTooLargeError: the epoch does not fit."""
    data = {
        "topology": topology_text(topology),
        "generation": str(generation),
        "restartGeneration": str(restart_generation),
    }
    body: Object = {"data": data}
    if epoch is not None:
        size = len(epoch.packed) * 4 // 3 + len(data["topology"])
        if size > LARGEST_BYTES:
            raise RoutingTooLargeError(
                f"epoch {epoch.number} needs {size} bytes, a ConfigMap holds {LARGEST_BYTES}: lower rebalance.maxTableEntries"
            )
        data |= {
            "epochNumber": str(epoch.number),
            "epochGeneration": str(epoch.generation),
            "epochState": epoch.state,
            "epochReason": epoch.why,
        }
        body["binaryData"] = {"epoch": base64.b64encode(epoch.packed).decode()}
    return owned(owner, names.CONFIG_MAP, names.routing(owner.name), "routing", **body)


def topology_text(topology: Topology) -> str:
    """The manifest of the topology as JSON; equal topologies give equal texts."""
    return json.dumps(to_manifest(topology), sort_keys=True, separators=(",", ":"))
