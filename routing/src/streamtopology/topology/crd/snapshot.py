"""The CustomResourceDefinition of StreamTopologySnapshot: a copy of a topology's checkpoint, made once."""

from __future__ import annotations

from streamtopology.topology.crd import GROUP, VERSION, rules
from streamtopology.topology.crd.fields import Schema, choice, mapping, text, whole
from streamtopology.topology.crd.status import conditions_schema
from streamtopology.topology.values import KIND

SNAPSHOT_KIND = f"{KIND}Snapshot"
SNAPSHOT_PLURAL = "streamtopologysnapshots"

# Of a snapshot: its Job's name is longer by `-snapshot`, and is a label of its pods.
LONGEST_NAME = 54

IMMUTABLE = rules.rule("self == oldSelf", "a snapshot is made once: create another one")
NAME_RULE = rules.rule(f"size(self.metadata.name) <= {LONGEST_NAME}", f"expected a name of at most {LONGEST_NAME} characters")

_COLUMNS = (
    ("Topology", "string", ".spec.topology", 0, "The topology that is copied"),
    ("Phase", "string", ".status.phase", 0, "Pending, Running, Completed or Failed"),
    ("Batch", "integer", ".status.batch", 0, "The batch as of which the copy is"),
    ("Bytes", "integer", ".status.bytes", 0, "The size of the copy"),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Since when it exists"),
    ("To", "string", ".spec.to", 1, "The place of the copy"),
)


def snapshot_definition() -> Schema:
    """The whole object, of plain dicts, lists and scalars."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{SNAPSHOT_PLURAL}.{GROUP}",
            "labels": {"app.kubernetes.io/name": "streamtopology"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": SNAPSHOT_KIND,
                "listKind": f"{SNAPSHOT_KIND}List",
                "plural": SNAPSHOT_PLURAL,
                "singular": SNAPSHOT_KIND.lower(),
                "shortNames": ["stosnap"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _object_schema()},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, "priority": priority, "description": description}
                        for name, kind, path, priority, description in _COLUMNS
                    ],
                }
            ],
        },
    }


def _object_schema() -> Schema:
    return {
        "type": "object",
        "description": "A copy of a topology's checkpoint as of one committed batch. Deleting it deletes no data.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "The version of this schema."},
            "kind": {"type": "string", "description": SNAPSHOT_KIND},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": _spec(),
            "status": _status(),
        },
        "x-kubernetes-validations": [NAME_RULE],
    }


def _spec() -> Schema:
    return mapping(
        "The topology and the place of the copy; it cannot be changed.",
        {
            "topology": text("The name of a StreamTopology in the same namespace.", 253),
            "to": text(
                "The place of the copy, which must be empty: an absolute path, file:// or s3://.",
                1024,
                **{"x-kubernetes-validations": [rules.PLACE_RULE, rules.BUCKET_RULE]},
            ),
        },
        required=("topology", "to"),
        rules=(IMMUTABLE,),
    )


def _status() -> Schema:
    return mapping(
        "The state of the copy.",
        {
            "phase": choice("Where it is in its life.", ("Pending", "Running", "Completed", "Failed")),
            "observedGeneration": whole("The metadata.generation that this status is about."),
            "batch": whole("The committed batch as of which the copy is."),
            "bytes": whole("The size of the copy."),
            "uri": text("The place of the copy, for spec.restore.from."),
            "message": text("The state in a sentence, with what to do."),
            "conditions": conditions_schema("Ready, Reconciling or Stalled."),
        },
    )
