"""The blocks of docs/run/kubernetes.md, as printed: Docker's part by our builder, kind's and the cloud's by our node."""

from __future__ import annotations

import json
import os
import shlex
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kube.applied import STEP_SECONDS, AppliedTopology
from support.kube.binaries import binary
from support.kube.chart import KeptOperator
from support.kube.node import Node
from support.printed import ROOT, blocks, run
from support.waiting import eventually

PAGE = "docs/run/kubernetes.md"
REGISTRY = "registry.example.com/team"
BLOCK_SECONDS = 600.0
pytestmark = pytest.mark.timeout(2400)  # with the images' build, where they have changed


def volume(name: str, folder: Path) -> dict[str, Any]:
    """The volume that a storage class would make for the claim of the example."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {"namespace": "default", "name": "clicks"},
        },
    }


@pytest.fixture
def cluster(
    node: Node, images: dict[str, str], kept_operator: KeptOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AppliedTopology]:
    """A shell of someone with access to the cluster; the images are on the node, also as those of a registry."""
    kept_operator.remove()
    monkeypatch.setenv("KUBECONFIG", str(node.kubeconfig))
    monkeypatch.setenv("PATH", f"{binary('kubectl').parent}{os.pathsep}{os.environ['PATH']}")
    for image in images.values():
        node.name_image(f"docker.io/{image}", f"{REGISTRY}/{image}")
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(0o777)
    applied = AppliedTopology(node, "default", "clicks")
    name = f"clicks-{uuid.uuid4().hex[:8]}"
    applied.kubectl("apply", "-f", "-", stdin=json.dumps(volume(name, folder)))
    yield applied
    applied.kubectl("delete", "stopo", "clicks", "--ignore-not-found", f"--timeout={STEP_SECONDS}s")
    run("helm uninstall streamtopology -n streamtopology --ignore-not-found --wait", ROOT, BLOCK_SECONDS)
    applied.kubectl("delete", "pv", name, "--wait=false")


@pytest.mark.parametrize("heading", ["On kind", "On a cluster with a registry"])
def test_printed_block_ends_with_a_topology_that_balances_itself(
    cluster: AppliedTopology, images: dict[str, str], heading: str, tmp_path: Path
) -> None:
    (block,), (removal,) = blocks(PAGE, heading), blocks(PAGE, "Remove it")
    building, ours = split(block)
    assert built(building) == {image if heading == "On kind" else f"$REGISTRY/{image}" for image in images.values()}
    printed = run(ours, ROOT, BLOCK_SECONDS)
    assert "condition met" in printed
    assert cluster.policy("pages") == "auto"
    cluster.settles(lambda status: bool(status.get("reroutings")), STEP_SECONDS)
    if heading == "On kind":  # the block names its image
        (copying,) = blocks(PAGE, "Your own files")
        run(copying, ROOT, BLOCK_SECONDS)
        assert len(list((tmp_path / "volume/flights").glob("*.parquet"))) == 2
    run(removal, ROOT, BLOCK_SECONDS)
    eventually(lambda: not cluster.pods(), STEP_SECONDS)


def split(block: str) -> tuple[list[str], str]:
    """The lines that need Docker and a network, and the others, which run on any cluster."""
    lines = block.splitlines()
    elsewhere = [line for line in lines if line.startswith(("kind ", "docker "))]
    return elsewhere, "\n".join(line for line in lines if line not in elsewhere)


def built(lines: list[str]) -> set[str]:
    """The images that the lines build; those that are loaded or pushed must be the same."""
    words = [shlex.split(line) for line in lines]
    images = {line[line.index("-t") + 1] for line in words if line[:2] == ["docker", "build"]}
    given = {
        image for line in words if line[:2] in (["docker", "push"], ["kind", "load"]) for image in line[2:] if ":" in image
    }
    assert given == images
    return images
