"""Fixtures of a real API server. `tests/node` has those of a whole node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.binaries import KubernetesMissing
from support.kube.fake_kubelet import FakeKubelet
from support.kube.running_operator import Topologies, install_crd


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """One API server for the session. A test that stops or freezes it brings it back."""
    try:
        server = ApiServer()
    except KubernetesMissing as missing:
        pytest.fail(str(missing))
    with server:
        yield server


@pytest.fixture
def namespace(api_server: ApiServer) -> Iterator[str]:
    """A namespace of the test's own."""
    name = api_server.new_namespace()
    yield name
    with api_server.client() as api:
        client.CoreV1Api(api).delete_namespace(name)


@pytest.fixture(scope="module")
def kubelet(api_server: ApiServer) -> Iterator[FakeKubelet]:
    """The CRD is there, and pods are made and run."""
    install_crd(api_server)
    with api_server.controllers(), FakeKubelet(api_server) as kubelet:
        yield kubelet


@pytest.fixture(scope="module")
def drivers(api_server: ApiServer, kubelet: FakeKubelet) -> Iterator[FakeDrivers]:
    with FakeDrivers(api_server) as drivers:
        yield drivers


@pytest.fixture
def topologies(api_server: ApiServer, namespace: str, drivers: FakeDrivers) -> Iterator[Topologies]:
    """Those of the test's namespace. Where the test's operator has ended, nobody else lets go of them."""
    with api_server.client() as api:
        topologies = Topologies(api, namespace)
        yield topologies
        topologies.let_go()
