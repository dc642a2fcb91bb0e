"""The routing ConfigMap as the operator writes it, made from values without the operator."""

from __future__ import annotations

import json

from streamtopology.contract.routing_configmap import PackedEpoch, RoutingData, pack
from streamtopology.jobs.pods.configmap_watch import ConfigMapContent
from streamtopology.jobs.pods.routing_configmap import RoutingMap
from streamtopology.topology import to_manifest


def config_map(routing: RoutingMap) -> ConfigMapContent:
    """The text that `RoutingMap.read` returns as `routing`."""
    epoch = None
    if (planned := routing.planned) is not None:
        epoch = PackedEpoch(planned.epoch.number, planned.generation, pack(planned.epoch.to_json()), planned.state)
    text = json.dumps(to_manifest(routing.topology))
    written = RoutingData(text, routing.generation, epoch=epoch, former_checkpoint=routing.former_checkpoint)
    return ConfigMapContent(*written.to_data())
