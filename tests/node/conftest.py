"""Fixtures of a whole Kubernetes node, on which containers run. `tests/kubernetes` has an API server alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client
from support.kube.binaries import KubernetesMissing
from support.kube.node import Node, NodeUnsupported


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """One node for the session."""
    try:
        cluster = Node()
    except KubernetesMissing as missing:
        pytest.fail(str(missing))
    except NodeUnsupported as unsupported:
        pytest.skip(str(unsupported))
    with cluster:
        yield cluster


@pytest.fixture
def namespace(node: Node) -> Iterator[str]:
    """A namespace of the test's own; its pods end with the test."""
    name = node.new_namespace()
    yield name
    with node.client() as api:
        client.CoreV1Api(api).delete_namespace(name)
