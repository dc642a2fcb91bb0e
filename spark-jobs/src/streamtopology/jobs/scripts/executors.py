"""The executors of a script: `--executors fast:2:1,slow:1:0.5`, or a YAML file of classes as manifests have them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamtopology.jobs.errors import WrongUse
from streamtopology.topology import API_VERSION, KIND, Topology, parse, read_yaml

# Executors of one core each where nothing is said: as many as there are cores, up to this.
_MOST = 4


def shape_of(name: str, executors: str | None, conf: Mapping[str, str], policy: str | None = None) -> Topology:
    """A topology `name` with these executors, whose operators do not count. Raises WrongUse, ManifestError."""
    grouping = {"policy": policy or "mixed", "key": ["value"]}
    spec = {
        "sources": [{"name": "rows", "format": "rate"}],
        "operators": [{"name": "none", "inputs": ["rows"], "grouping": grouping, "run": "count"}],
        "sinks": [{"name": "nowhere", "input": "none", "format": "console"}],
        "executors": _classes(executors),
        "sparkConf": dict(conf),
    }
    return parse({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}, "the command line")


def _classes(text: str | None) -> list[Any]:
    if text is None:
        return [{"name": "main", "replicas": min(_MOST, os.cpu_count() or 1), "cpu": 1}]
    if text.endswith((".yaml", ".yml")):
        classes = read_yaml(Path(text))
        if not isinstance(classes, list):
            raise WrongUse(f"{text}: found {type(classes).__name__}, a list of executor classes is needed: - {{name, cpu}}")
        return classes
    return [_class(part.strip()) for part in text.split(",")]


def _class(text: str) -> dict[str, Any]:
    parts = text.split(":")
    if len(parts) != 3 or not all(parts):
        raise WrongUse(f"--executors: found {text!r}; write NAME:REPLICAS:CPU, as in fast:2:1,slow:1:0.5, or name a YAML file")
    name, replicas, cpu = parts
    return {"name": name, "replicas": int(replicas) if replicas.isdigit() else replicas, "cpu": cpu}
