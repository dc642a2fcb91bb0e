"""Installed as docs/install.md says: the operator comes up as confined as the chart has it, leads, and is scraped."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest
from support.kube.chart import NAMESPACE, installed
from support.kube.node import Node
from support.waiting import eventually


@pytest.fixture(scope="module", autouse=True)
def two_replicas(node: Node, images: dict[str, str]) -> Iterator[None]:
    with installed(node, replicas=2):
        yield


def holder(node: Node) -> str:
    return node.kubectl("-n", NAMESPACE, "get", "lease", "streamtopology-operator", "-o", "jsonpath={.spec.holderIdentity}")


def pods(node: Node) -> dict[str, str]:
    """Name -> address."""
    columns = "jsonpath={range .items[*]}{.metadata.name} {.status.podIP}{'\\n'}{end}"
    listed = node.kubectl("-n", NAMESPACE, "get", "pods", "-l", "app.kubernetes.io/name=streamtopology-operator", "-o", columns)
    return dict(line.split() for line in listed.splitlines())


def leading(node: Node, address: str) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{node.forward(address, 9091)}/metrics", timeout=10) as answer:
        return "streamtopology_operator_leading 1.0" in answer.read().decode()


def test_one_of_two_replicas_leads_and_says_so(node: Node):
    found = pods(node)
    assert len(found) == 2
    eventually(lambda: holder(node) in found, 60)
    assert {name: leading(node, address) for name, address in found.items()} == {name: name == holder(node) for name in found}


def test_another_replica_takes_over_when_the_leader_goes(node: Node):
    first = holder(node)
    node.kubectl("-n", NAMESPACE, "delete", "pod", first)
    eventually(lambda: holder(node) not in ("", first), 60)


def test_the_resource_can_be_explained(node: Node):
    assert "grouping" in node.kubectl("explain", "streamtopology.spec.operators")
