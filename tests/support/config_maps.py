"""The routing ConfigMap as the operator writes it, made from values without the operator."""

from __future__ import annotations

import json

from streamtopology.jobs.pods.routing_map import RoutingMap
from streamtopology.jobs.pods.routing_watch import ConfigMapContent
from streamtopology.routing.routing_map import PackedEpoch, RoutingData, pack
from streamtopology.routing.topology import to_manifest


def config_map(routing: RoutingMap) -> ConfigMapContent:
    """What `RoutingMap.read` reads as `routing`."""
    epoch = None
    if (planned := routing.planned) is not None:
        epoch = PackedEpoch(planned.epoch.number, planned.generation, pack(planned.epoch.to_json()), planned.state)
    text = json.dumps(to_manifest(routing.topology))
    return ConfigMapContent(*RoutingData(text, routing.generation, epoch=epoch).to_data())
