"""The ConfigMap NAME-routing: the topology to run and the newest epoch. The one channel from operator to driver."""

from __future__ import annotations

import json

from streamtopology.contract.errors import InvalidInput
from streamtopology.contract.pods import routing_map_name
from streamtopology.contract.routing_configmap import PackedEpoch, RoutingData, Withdrawals
from streamtopology.k8s import names
from streamtopology.k8s.resources.objects import Object, Owner, owned
from streamtopology.topology import Topology, to_manifest

# A ConfigMap holds at most 1 MiB with its metadata; an epoch of 3,000 entries per operator is some 100 kB.
LARGEST_BYTES = 900_000


class RoutingTooLargeError(InvalidInput):
    """The epoch does not fit into a ConfigMap; the message names the setting that makes it smaller."""


def config_map(
    owner: Owner,
    topology: Topology,
    generation: int,
    restart_generation: int,
    epoch: PackedEpoch | None,
    failed_migrations: int = 0,
    former_checkpoint: str = "",
    withdrawals: Withdrawals = Withdrawals(),  # noqa: B008 - frozen
) -> Object:
    """`topology` is resolved. RoutingTooLargeError: the epoch does not fit."""
    text = topology_text(topology)
    if epoch is not None and (size := len(epoch.packed) * 4 // 3 + len(text)) > LARGEST_BYTES:
        raise RoutingTooLargeError(
            f"epoch {epoch.number} needs {size} bytes, a ConfigMap holds {LARGEST_BYTES}: lower rebalance.maxTableEntries"
        )
    written = RoutingData(text, generation, restart_generation, epoch, failed_migrations, former_checkpoint, withdrawals)
    data, binary = written.to_data()
    body: Object = {"data": data, **({"binaryData": binary} if binary else {})}
    return owned(owner, names.CONFIG_MAP, routing_map_name(owner.name), "routing", **body)


def topology_text(topology: Topology) -> str:
    """The manifest of the topology as JSON; equal topologies give equal texts."""
    return json.dumps(to_manifest(topology), sort_keys=True, separators=(",", ":"))
