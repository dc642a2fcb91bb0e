"""Installed as docs/run/install.md says: the operator comes up as confined as the chart has it, leads, and is scraped."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import pytest
from support.kube.chart import NAMESPACE, KeptOperator, checked, installed
from support.kube.node import Node
from support.kube.processes import ProcessFailed
from support.waiting import eventually

OURS = ("-n", NAMESPACE, "-l", "app.kubernetes.io/name=streamtopology-operator")
NOTHING_SECONDS = 100


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
    listed = node.kubectl("get", "pods", *OURS, "-o", columns)
    return dict(line.split() for line in listed.splitlines())


def leading(node: Node, address: str) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{node.forward(address, 9091)}/metrics", timeout=60) as answer:
        return "streamtopology_operator_leading 1.0" in answer.read().decode()


def containers(node: Node) -> list[tuple[bool, int]]:
    """Whether it is ready, and its restarts, of each container of the operator."""
    items = json.loads(node.kubectl("get", "pods", *OURS, "-o", "json"))["items"]
    return [(one["ready"], one["restartCount"]) for item in items for one in item["status"]["containerStatuses"]]


def test_nothing_happens_while_there_is_no_topology(node: Node):
    """For three of the operator's lists of topologies: an empty one has ended it."""
    eventually(lambda: node.kubectl("get", "stopo", "-A", "-o", "name") == "", 120)
    unready = ("wait", "pods", *OURS, "--for=condition=Ready=false", f"--timeout={NOTHING_SECONDS}s")
    with pytest.raises(ProcessFailed, match="timed out waiting"):
        node.kubectl(*unready, seconds=3 * NOTHING_SECONDS)
    assert containers(node) == [(True, 0), (True, 0)]


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
        assert "leads and renews its lease; it serves StreamTopologies in all namespaces: it wrote the status of" in checked(
            node
        )
    finally:
        node.kubectl("-n", NAMESPACE, "delete", "pod", "streamtopology-test", "--ignore-not-found")
