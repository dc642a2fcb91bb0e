"""The operator's page on a real API server: the leader lists its topologies, a replica that stands by says that it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import COUNTS, IMAGE, QUIET, settled
from support.kube.running_operator import OperatorProcess, Topologies, manifest
from support.probes import free_port, probed
from support.waiting import eventually


def listed(port: str) -> list[dict[str, Any]]:
    status, text = probed(port, "/topologies.json")
    return json.loads(text)["topologies"] if status == 200 else []


def test_leader_lists_its_topologies_and_another_replica_stands_by(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, tmp_path: Path
) -> None:
    first_port, second_port = free_port(), free_port()

    def replica(name: str, port: str) -> OperatorProcess:
        return OperatorProcess(
            api_server, tmp_path / f"{name}.log", POD_NAME=name, POD_NAMESPACE=topologies.namespace,
            STREAMTOPOLOGY_LEADER_ELECTION="true", STREAMTOPOLOGY_WATCH_NAMESPACES=topologies.namespace,
            STREAMTOPOLOGY_IMAGE=IMAGE, STREAMTOPOLOGY_DRIVER_URL=drivers.url, STREAMTOPOLOGY_PAGE_PORT=port,
        )  # fmt: skip

    topologies.create(manifest("flow", rebalance=QUIET))
    topologies.create(manifest("wrong", operators=[{**COUNTS, "inputs": ["nowhere"]}]))
    with replica("first", first_port) as first:
        eventually(lambda: settled(topologies, 1), 120)
        eventually(lambda: [one["phase"] for one in listed(first_port)] == ["Invalid", "Running"], 120)
        invalid, running = listed(first_port)
        assert (invalid["name"], invalid["state"]) == ("wrong", "act")
        assert "nowhere" in invalid["text"]
        assert (running["name"], running["service"], running["executors"]) == ("flow", "flow-driver", "3/3")
        with replica("second", second_port):
            eventually(lambda: probed(second_port, "/topologies.json")[0] == 503, 120)
            assert "stands by" in probed(second_port, "/topologies.json")[1]
        topologies.delete("wrong")
        eventually(lambda: [one["name"] for one in listed(first_port)] == ["flow"], 120)
        assert first.process.poll() is None
