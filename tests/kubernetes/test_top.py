"""`streamtopology top` and `ui` through a real API server's proxy, to a driver's status server on this machine."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.request import urlopen

import pytest
from kubernetes import client
from rich.console import Console
from support.histories import run
from support.kube.apiserver import ApiServer
from support.kube.running_operator import install_crd, manifest
from support.page_histories import flights, recorded, standing_of
from support.waiting import eventually

from streamtopology.contract.phases import Phase
from streamtopology.jobs.admin.ask_cluster import Unreachable, asking_the_cluster
from streamtopology.jobs.admin.find_run import PAGE, AskDriver, Where
from streamtopology.jobs.admin.page_of import page_of_run
from streamtopology.jobs.admin.top import follow
from streamtopology.jobs.observe.stats import build_stats
from streamtopology.jobs.view.http_server import EVERYWHERE, StatusServer
from streamtopology.jobs.view.prometheus import Metrics
from streamtopology.topology.crd import GROUP, PLURAL, VERSION


def own_address() -> str:
    """An address of this machine that is not loopback, which a Service may not lead to; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("192.0.2.1", 9))
        return str(asked.getsockname()[0])


def is_reached(asking: AskDriver) -> bool:
    try:
        return bool(asking(-1))
    except Unreachable:
        return False


@pytest.fixture(autouse=True)
def kubeconfig(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))


def make_service(core: client.CoreV1Api, namespace: str, address: str, port: int) -> None:
    """A Service that leads here, through a pod at our address: the API server passes questions on to pods alone."""
    named = client.V1ObjectMeta(name="flights-driver")
    container = client.V1Container(name="driver", image="none")
    core.create_namespaced_pod(namespace, client.V1Pod(metadata=named, spec=client.V1PodSpec(containers=[container])))
    status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
    core.patch_namespaced_pod_status("flights-driver", namespace, status)
    ports = [client.V1ServicePort(name="http", port=9090, target_port=port)]
    core.create_namespaced_service(namespace, client.V1Service(metadata=named, spec=client.V1ServiceSpec(ports=ports)))
    pod = client.V1ObjectReference(kind="Pod", name="flights-driver", namespace=namespace)
    subset = client.V1EndpointSubset(
        addresses=[client.V1EndpointAddress(ip=address, target_ref=pod)],
        ports=[client.CoreV1EndpointPort(name="http", port=port)],
    )
    core.create_namespaced_endpoints(namespace, client.V1Endpoints(metadata=named, subsets=[subset]))


@pytest.fixture
def driver(api_server: ApiServer, namespace: str) -> Iterator[StatusServer]:
    """A run that is done, served as a driver in a pod serves it, behind the Service `flights-driver`."""
    history = run(6, reroute_at=4)
    history.enter(Phase.DONE)
    registry = Metrics(history).registry
    answer, record = partial(build_stats, history), recorded(history, flights())
    page = partial(record.page, standing_of())
    with StatusServer(registry, lambda asked: answer(asked=asked), page, history.is_ready, EVERYWHERE) as server:
        with api_server.client() as api:
            make_service(client.CoreV1Api(api), namespace, own_address(), server.port)
        yield server


def test_it_follows_a_driver_through_the_proxy(driver: StatusServer, namespace: str) -> None:
    asking = asking_the_cluster("flights", namespace, None)
    eventually(lambda: is_reached(asking))
    assert [batch["number"] for batch in asking(3)["batches"]] == [4, 5]
    reported = io.StringIO()
    follow(asking, Console(file=reported, width=120, force_terminal=False), lambda seconds: None)
    assert "done, epoch 2, batch 5" in reported.getvalue()


def test_page_of_a_run_on_the_cluster_is_served_here(
    driver: StatusServer, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    eventually(lambda: is_reached(asking_the_cluster("flights", namespace, None, PAGE)))
    shown: list[bytes] = []

    def look() -> None:
        address = capsys.readouterr().out.split()[1]
        shown.append(urlopen(address, timeout=60).read())
        shown.append(urlopen(f"{address}page.json?since=3", timeout=60).read())

    page_of_run("flights", Where(namespace), 0, False, look)
    assert b"<title>StreamTopology</title>" in shown[0]
    assert [batch["number"] for batch in json.loads(shown[1])["batches"]] == [4, 5]


def test_page_of_a_run_on_the_cluster_has_the_conditions_of_its_resource(
    driver: StatusServer, api_server: ApiServer, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install_crd(api_server)
    with api_server.client() as api:
        resources = client.CustomObjectsApi(api)
        at = (GROUP, VERSION, namespace, PLURAL)
        resources.create_namespaced_custom_object(*at, manifest("flights"))
        ready = {"type": "Ready", "status": "True", "reason": "Running", "message": "all is well"}
        status = {"conditions": [{**ready, "lastTransitionTime": "2023-11-14T22:13:20Z"}]}
        resources.patch_namespaced_custom_object_status(*at, "flights", {"status": status})
    eventually(lambda: is_reached(asking_the_cluster("flights", namespace, None, PAGE)))
    pages: list[dict[str, Any]] = []

    def look() -> None:
        address = capsys.readouterr().out.split()[1]
        pages.append(json.loads(urlopen(f"{address}page.json", timeout=60).read()))

    page_of_run("flights", Where(namespace), 0, False, look)
    assert pages[0]["namespace"] == namespace
    assert pages[0]["conditions"] == [{**ready, "since": 1_700_000_000.0}]


def test_a_topology_that_is_not_there_is_named(namespace: str) -> None:
    with pytest.raises(Unreachable, match=f"topology 'trains' in namespace {namespace}: 404.*trains-driver.*not found"):
        asking_the_cluster("trains", namespace, None)(-1)
