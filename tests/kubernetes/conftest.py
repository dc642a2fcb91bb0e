"""Fixtures of a real API server. `tests/node` has those of a whole node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client
from support.kube.apiserver import ApiServer
from support.kube.binaries import KubernetesMissing


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
