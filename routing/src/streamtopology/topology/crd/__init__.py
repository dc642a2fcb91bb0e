"""The CustomResourceDefinition of StreamTopology, from the values, defaults and limits that parsing goes by.

`python -m streamtopology.topology.crd` prints it; `crds/` has what it printed.
"""

from __future__ import annotations

from streamtopology.topology.crd.fields import Schema
from streamtopology.topology.crd.rules import topology_name_rules
from streamtopology.topology.crd.spec import spec_schema
from streamtopology.topology.crd.status import status_schema
from streamtopology.topology.values import API_VERSION, KIND

GROUP, VERSION = API_VERSION.split("/")
PLURAL = "streamtopologies"
NAME = f"{PLURAL}.{GROUP}"

__all__ = ["GROUP", "NAME", "PLURAL", "VERSION", "custom_resource_definition"]

_COLUMNS = (
    # name, type, path, priority (1: only with -o wide), description
    ("Phase", "string", ".status.phase", 0, "Where the topology is in its life"),
    ("Epoch", "integer", ".status.epoch", 0, "Epoch of routing of the last batch"),
    ("Imbalance", "number", ".status.imbalance", 0, "Of the worst stage; 0 is perfect"),
    ("Throughput", "integer", ".status.throughput", 0, "Rows a second"),
    ("Executors", "string", ".status.executors.summary", 0, "Executors that take work, of those that there should be"),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Since when it exists"),
    ("Policy", "string", ".status.policy", 1, "Groupings of the operators"),
    ("Last Re-routing", "date", ".status.lastRerouting.at", 1, "When routing last changed"),
    ("Reason", "string", ".status.lastRerouting.reason", 1, "Why routing last changed"),
)


def custom_resource_definition() -> Schema:
    """The whole object, of plain dicts, lists and scalars, ready for YAML or JSON."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": "streamtopology"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["stopo"],
                "categories": ["all"],
            },
            "versions": [_version()],
        },
    }


def _version() -> Schema:
    columns = [
        {"name": name, "type": kind, "jsonPath": path, "priority": priority, "description": description}
        for name, kind, path, priority, description in _COLUMNS
    ]
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.autoscale.replicas",
                "statusReplicasPath": ".status.autoscale.replicas",
                "labelSelectorPath": ".status.autoscale.selector",
            },
        },
        "additionalPrinterColumns": columns,
    }


def _object_schema() -> Schema:
    return {
        "type": "object",
        "description": "A stream topology: operators on executors of unequal capacity, re-routed while it runs.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "The version of this schema."},
            "kind": {"type": "string", "description": KIND},
            # Kubernetes' own limit, repeated: without it the cost of rules about the name has no bound.
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": spec_schema(),
            "status": status_schema(),
        },
        "x-kubernetes-validations": topology_name_rules(),
    }
