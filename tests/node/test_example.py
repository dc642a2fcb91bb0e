"""`kubectl apply -f examples/flights-k8s.yaml`, as its header says: its stream is made, it runs, and it balances itself.

Suspended in the middle, it has counted what a plain group-by of the files read so far counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kube.applied import START_SECONDS, STEP_SECONDS, AppliedTopology, condition, is_balanced
from support.kube.node import Node
from support.waiting import eventually

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.lab.demo.check import check_destinations, check_tails, count_flights

EXAMPLE = Path(__file__).parents[2] / "examples" / "flights-k8s.yaml"
pytestmark = pytest.mark.timeout(2400)  # with the images' build, where they have changed


def volume(namespace: str, folder: Path) -> dict[str, Any]:
    """The volume that a storage class would make for the claim of the example."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"flights-{namespace}"},
        "spec": {
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {"namespace": namespace, "name": "flights"},
        },
    }


@pytest.fixture
def flights(node: Node, operator: None, namespace: str, tmp_path: Path) -> Iterator[AppliedTopology]:
    """There is a volume; nothing is applied."""
    tmp_path.chmod(0o777)
    applied = AppliedTopology(node, namespace, "flights")
    applied.kubectl("apply", "-f", "-", stdin=json.dumps(volume(namespace, tmp_path)))
    yield applied
    applied.kubectl("delete", "stopo", "--all", "--wait=true", "--timeout=120s")
    applied.kubectl("delete", "pv", f"flights-{namespace}", "--wait=false")


def test_the_example_runs_as_it_is_and_re_routes_itself(flights: AppliedTopology, tmp_path: Path) -> None:
    flights.kubectl("apply", "-f", str(EXAMPLE))
    flights.settles(lambda status: condition(status, "Ready") == ("True", "Running"), 2 * START_SECONDS)
    flights.settles(lambda status: any(one["keysMoved"] for one in status.get("reroutings") or ()), START_SECONDS)
    status = flights.settles(is_balanced, START_SECONDS)
    assert status["imbalance"] <= 0.25
    flights.kubectl("patch", "stopo", "flights", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    eventually(lambda: flights.resource()["status"]["phase"] == "Suspended", STEP_SECONDS)
    checkpoint = Checkpoint.attach(str(tmp_path / "checkpoint"))
    commit = checkpoint.last_commit()
    assert commit is not None
    read = sorted((tmp_path / "data").glob("*.parquet"))[: commit.spark_batch + 1]  # one file a batch
    expected = count_flights(read)
    for check in (check_tails(expected, checkpoint), check_destinations(expected, tmp_path / "delays")):
        assert (check.equal, check.lost, check.duplicated) == (True, 0, 0)
        assert 0 < check.rows_seen == check.rows_expected < 60_000 * len(read)
    flights.kubectl("delete", "-f", str(EXAMPLE), "--wait=true", "--timeout=180s")
    eventually(lambda: not flights.pods(), 120)
