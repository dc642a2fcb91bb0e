"""The routing ConfigMap as the operator writes it, made from values without the operator."""

from __future__ import annotations

import base64
import gzip
import json

from streamtopology.jobs.pods.routing_map import RoutingMap
from streamtopology.jobs.pods.routing_watch import ConfigMapContent
from streamtopology.routing.topology import to_manifest


def config_map(routing: RoutingMap) -> ConfigMapContent:
    """What `RoutingMap.read` reads as `routing`."""
    data = {"topology": json.dumps(to_manifest(routing.topology)), "generation": str(routing.generation)}
    binary: dict[str, str] = {}
    if routing.planned is not None:
        planned = routing.planned
        data |= {
            "epochNumber": str(planned.epoch.number), "epochGeneration": str(planned.generation), "epochState": planned.state,
        }  # fmt: skip
        binary["epoch"] = base64.b64encode(gzip.compress(planned.epoch.to_json().encode())).decode()
    return ConfigMapContent(data, binary)
