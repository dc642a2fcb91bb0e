"""The operator's probes while its API server does not answer: not ready until it knows the cluster, and healthy all along."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path
from urllib.error import HTTPError, URLError

from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import IMAGE, QUIET, settled
from support.kube.running_operator import OperatorProcess, Topologies, manifest
from support.waiting import eventually


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def asked(port: str, path: str) -> tuple[int, str]:
    """Status and text of a probe; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        return refused.code, refused.read().decode()
    except URLError:
        return 0, ""


def test_operator_is_ready_once_it_has_listed_the_cluster(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, tmp_path: Path
) -> None:
    port = free_port()
    topologies.create(manifest("flow", rebalance=QUIET))
    environment = {
        "STREAMTOPOLOGY_WATCH_NAMESPACES": topologies.namespace, "STREAMTOPOLOGY_IMAGE": IMAGE,
        "STREAMTOPOLOGY_DRIVER_URL": drivers.url, "STREAMTOPOLOGY_PROBE_PORT": port,
    }  # fmt: skip
    with OperatorProcess(api_server, tmp_path / "log", **environment):
        with api_server.frozen():
            eventually(lambda: asked(port, "/readyz")[0] == 503, 60)
            assert topologies.namespace in asked(port, "/readyz")[1]
            assert asked(port, "/healthz")[0] == 200
        eventually(lambda: asked(port, "/readyz")[0] == 200, 120)
        eventually(lambda: settled(topologies, 1), 120)
