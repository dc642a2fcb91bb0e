"""The chart's objects as `helm template` makes them: no cluster is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from support.kube.binaries import binary, require
from support.kube.processes import run

CHART = Path(__file__).parents[3] / "charts" / "streamtopology"
MONITORED = ("--api-versions", "monitoring.coreos.com/v1")

Manifest = dict[str, Any]


class _OnceEachKey(yaml.CSafeLoader):
    """Refuses a mapping that has a key twice, which YAML's readers take in different ways."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]  # type: ignore[reportUnknownMemberType]
        assert len(keys) == len(set(keys)), f"a key twice: {keys}"
        return super().construct_mapping(node, deep)


def helm(*arguments: str) -> str:
    require(["helm"])
    return run([str(binary("helm")), *arguments], 60)


def render(*arguments: str, release: str = "streamtopology", namespace: str = "operators") -> list[Manifest]:
    """The release's objects without the pod of `helm test`, and without the CRD, which the session has already."""
    without = ("--skip-tests", "--set", "crds.install=false")
    return rendered(*without, *arguments, release=release, namespace=namespace)


def rendered(
    *arguments: str, release: str = "streamtopology", namespace: str = "operators", chart: Path = CHART
) -> list[Manifest]:
    text = helm("template", release, str(chart), "--namespace", namespace, "--kube-version", "1.30.0", *arguments)
    return [document for document in yaml.load_all(text, _OnceEachKey) if document]


def only(manifests: list[Manifest], kind: str, name: str = "streamtopology") -> Manifest:
    found = [each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]
