"""The ConfigMap NAME-routing: the topology that is to run and the newest epoch. The one thing between us and the driver."""

from __future__ import annotations

import json

from streamtopology.operator import names
from streamtopology.operator.resources.objects import Object, Owner, owned
from streamtopology.routing.routing_map import PackedEpoch, RoutingData
from streamtopology.routing.topology import Topology, to_manifest

LARGEST_BYTES = 900_000
"""Of a ConfigMap, which may hold 1 MiB with its metadata; an epoch of 3,000 entries an operator is some 100 kB."""


class RoutingTooLargeError(ValueError):
    """The epoch does not fit into a ConfigMap; the message says what makes it smaller."""


def config_map(
    owner: Owner, topology: Topology, generation: int, restart_generation: int, epoch: PackedEpoch | None
) -> Object:  # fmt: skip
    """`topology` is resolved. RoutingTooLargeError: the epoch does not fit."""
    text = topology_text(topology)
    if epoch is not None and (size := len(epoch.packed) * 4 // 3 + len(text)) > LARGEST_BYTES:
        raise RoutingTooLargeError(
            f"epoch {epoch.number} needs {size} bytes, a ConfigMap holds {LARGEST_BYTES}: lower rebalance.maxTableEntries"
        )
    data, binary = RoutingData(text, generation, restart_generation, epoch).to_data()
    body: Object = {"data": data, **({"binaryData": binary} if binary else {})}
    return owned(owner, names.CONFIG_MAP, names.routing(owner.name), "routing", **body)


def topology_text(topology: Topology) -> str:
    """The manifest of the topology as JSON; equal topologies give equal texts."""
    return json.dumps(to_manifest(topology), sort_keys=True, separators=(",", ":"))
