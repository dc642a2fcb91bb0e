"""A snapshot of a topology in real pods: the copy is whole, and another topology continues its counts where it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kube.applied import START_SECONDS, STEP_SECONDS, AppliedTopology, condition, word_count
from support.kube.node import Node
from support.kube.snapshots import snapshot
from support.waiting import eventually
from support.word_stream import WordStream, newest_counts

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.topology.crd import GROUP, VERSION
from streamtopology.topology.crd.snapshot import SNAPSHOT_PLURAL

pytestmark = pytest.mark.timeout(2400)  # with the images' build, where they have changed

RESTORED = "again"


@pytest.fixture
def words(node: Node, operator: None, namespace: str) -> Iterator[AppliedTopology]:
    """Nothing is applied."""
    applied = AppliedTopology(node, namespace)
    yield applied
    applied.kubectl("delete", "stopo,stosnap", "--all", "--wait=true", "--timeout=120s")


def one_executor(shared: Path) -> dict[str, Any]:
    """`word_count` on one executor: with the snapshot's Job it finds room on the node."""
    manifest = word_count(shared)
    manifest["spec"] |= {"executors": manifest["spec"]["executors"][:1], "rebalance": {"mode": "Off"}}
    del manifest["spec"]["autoscale"]
    return manifest


def restored(shared: Path, copy: str) -> dict[str, Any]:
    """The same topology by another name, with a checkpoint and a sink of its own; it begins with the copy."""
    manifest = one_executor(shared)
    manifest["metadata"]["name"] = RESTORED
    manifest["spec"] |= {"checkpoint": f"{shared}/{RESTORED}", "restore": {"from": copy}}
    manifest["spec"]["sinks"][0]["options"]["path"] = f"{shared}/{RESTORED}-counts"
    return manifest


def taken(words: AppliedTopology, to: str) -> dict[str, Any]:
    """The status of a snapshot that has ended."""
    words.kubectl("apply", "-f", "-", stdin=json.dumps(snapshot(to=to, topology=words.name)))

    def status() -> dict[str, Any]:
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{words.namespace}/{SNAPSHOT_PLURAL}/nightly"
        return words.node.read(path).get("status") or {}

    eventually(lambda: status().get("phase") in ("Completed", "Failed"), STEP_SECONDS)
    return status()


def test_restored_topology_counts_on_from_the_snapshot(words: AppliedTopology, tmp_path: Path) -> None:
    stream, copy = WordStream(tmp_path), tmp_path / "copy"
    words.apply(one_executor(tmp_path))
    with stream.flowing():
        words.settles(lambda status: condition(status, "Ready") == ("True", "Running"), START_SECONDS)
        status = taken(words, str(copy))
        assert status["phase"] == "Completed", status["message"]
        commit = Checkpoint.attach(str(copy)).last_commit()
        assert commit is not None
        assert status["batch"] == commit.batch
        assert status["bytes"] == sum(file.stat().st_size for file in copy.rglob("*") if file.is_file())
        eventually(lambda: (words.stats().get("batch") or 0) > commit.batch, STEP_SECONDS)  # its topology continues
        words.kubectl("delete", "stopo", words.name, "--wait=true", "--timeout=120s")

        words.kubectl("apply", "-f", "-", stdin=json.dumps(restored(tmp_path, status["uri"])))
        again = AppliedTopology(words.node, words.namespace, RESTORED)
        again.settles(lambda status: condition(status, "Ready") == ("True", "Running"), START_SECONDS)

    def published(folder: str) -> list[Path]:
        return sorted((tmp_path / folder).glob("batch-*.parquet"))

    before = [file for file in published("counts") if file.stem <= f"batch-{commit.batch:09}"]
    eventually(lambda: newest_counts([*before, *published(f"{RESTORED}-counts")]) == stream.expected, STEP_SECONDS)
    assert published(f"{RESTORED}-counts")[0].stem == f"batch-{commit.batch + 1:09}"
