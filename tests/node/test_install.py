"""Installed as docs/run/install.md says: the operator comes up as confined as the chart has it, leads, and is scraped."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest
from support.kube.chart import NAMESPACE, KeptOperator, checked, installed
from support.kube.node import Node
from support.waiting import eventually


@pytest.fixture(scope="module", autouse=True)
def two_replicas(node: Node, kept_operator: KeptOperator) -> Iterator[None]:
    kept_operator.remove()
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
    with urllib.request.urlopen(f"http://127.0.0.1:{node.forward(address, 9091)}/metrics", timeout=60) as answer:
        return "streamtopology_operator_leading 1.0" in answer.read().decode()


def test_exactly_one_of_two_replicas_leads_and_reports_it(node: Node):
    found = pods(node)
    assert len(found) == 2
    eventually(lambda: holder(node) in found)

    def agree() -> bool:
        """The metric follows the lease by a moment."""
        says = {name: leading(node, address) for name, address in found.items()}
        return says == {name: name == holder(node) for name in found}

    eventually(agree)


def test_another_replica_takes_over_when_the_leader_goes(node: Node):
    eventually(lambda: holder(node) in pods(node))  # not one of an operator that was there before
    first = holder(node)
    node.kubectl("-n", NAMESPACE, "delete", "pod", first)
    eventually(lambda: holder(node) not in ("", first))


def test_the_resource_can_be_explained(node: Node):
    assert "grouping" in node.kubectl("explain", "streamtopology.spec.operators")


def test_helm_test_ends_with_a_sentence(node: Node):
    try:
        assert "leads and renews its lease; StreamTopologies are served, and it may read them in all namespaces" in checked(
            node
        )
    finally:
        node.kubectl("-n", NAMESPACE, "delete", "pod", "streamtopology-test", "--ignore-not-found")
