"""Rights that are taken away from the operator while it runs, on a real API server: a condition, or its readiness, says which.

Without the right to write status and events it can say so nowhere else than by its readiness probe.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import IMAGE, LARGE, QUIET, SMALL, settled
from support.kube.rendering import Manifest, render
from support.kube.running_operator import OperatorProcess, Topologies, manifest
from support.probes import free_port, probed
from support.waiting import eventually

RIGHTS = ("ServiceAccount", "Role", "RoleBinding")


class Release:
    """The rights of a release of the chart, whose operator is in a namespace of its own and serves that of `topologies`."""

    def __init__(self, api_server: ApiServer, topologies: Topologies) -> None:
        self.namespace = api_server.new_namespace("operators")
        self._api_server = api_server
        self._made = render("--set", f"watchNamespaces={{{topologies.namespace}}}", namespace=self.namespace)
        self._serves = topologies.namespace
        self.grant()

    def grant(self) -> None:
        """All of them."""
        rights = [one for one in self._made if one["kind"] in RIGHTS]
        self._apply(*[{**one, "metadata": {"namespace": self.namespace, **one["metadata"]}} for one in rights])

    def take_away(self, resource: str) -> None:
        """All verbs of one resource, where topologies are."""
        [role] = [one for one in self._made if one["kind"] == "Role" and one["metadata"].get("namespace") == self._serves]
        reduced = copy.deepcopy(role)
        for rule in reduced["rules"]:
            rule["resources"] = [one for one in rule["resources"] if one != resource]
        self._apply({**reduced, "rules": [rule for rule in reduced["rules"] if rule["resources"]]})

    def take_all_away(self) -> None:
        for one in self._made:
            if one["kind"] == "RoleBinding":
                place = one["metadata"].get("namespace", self.namespace)
                self._api_server.kubectl("delete", "rolebinding", one["metadata"]["name"], f"--namespace={place}")

    def operator(self, drivers: FakeDrivers, log: Path, port: str) -> OperatorProcess:
        return OperatorProcess(
            self._api_server, log, KUBECONFIG=str(self._api_server.kubeconfig_of(self.namespace, "streamtopology")),
            POD_NAMESPACE=self.namespace, POD_NAME="operator-0", STREAMTOPOLOGY_LEADER_ELECTION="true",
            STREAMTOPOLOGY_WATCH_NAMESPACES=self._serves, STREAMTOPOLOGY_IMAGE=IMAGE, STREAMTOPOLOGY_DRIVER_URL=drivers.url,
            STREAMTOPOLOGY_PROBE_PORT=port,
        )  # fmt: skip

    def _apply(self, *bodies: Manifest) -> None:
        self._api_server.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(bodies))


@pytest.fixture
def release(api_server: ApiServer, topologies: Topologies) -> Iterator[Release]:
    release = Release(api_server, topologies)
    yield release
    topologies.core.delete_namespace(release.namespace)


def degraded(topologies: Topologies) -> str:
    """The message of Degraded while it says that an object is refused; else empty."""
    found = topologies.status("flow").get("conditions") or ()
    return next((one["message"] for one in found if (one["type"], one["reason"]) == ("Degraded", "ApplyRefused")), "")


@pytest.mark.parametrize("resource", ["statefulsets", "secrets"])
def test_right_to_a_kind_that_is_gone_is_a_condition_until_it_is_back(
    topologies: Topologies, drivers: FakeDrivers, release: Release, tmp_path: Path, resource: str
) -> None:
    with release.operator(drivers, tmp_path / "log", free_port()) as operator:
        # Its readiness would not do: it is ready as a stand-by, too, and then has listed nothing.
        topologies.create(manifest("before", rebalance=QUIET))
        eventually(lambda: topologies.status("before").get("phase") == "Running", 120)
        release.take_away(resource)
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: f'cannot get resource "{resource}"' in degraded(topologies), 120)
        eventually(lambda: "ApplyRefused" in topologies.reasons("flow"))
        release.grant()
        eventually(lambda: settled(topologies, 1), 180)
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")
        assert operator.process.poll() is None, operator.output


def test_right_that_is_gone_before_the_first_list_is_named_by_the_readiness_until_it_is_back(
    topologies: Topologies, drivers: FakeDrivers, release: Release, tmp_path: Path
) -> None:
    port = free_port()
    release.take_away("statefulsets")
    with release.operator(drivers, tmp_path / "log", port):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: 'cannot list resource "statefulsets"' in probed(port, "/readyz")[1], 120)
        assert probed(port, "/readyz")[0] == 503
        release.grant()
        eventually(lambda: settled(topologies, 1), 180)
        eventually(lambda: probed(port, "/readyz")[0] == 200)


def test_operator_whose_rights_are_all_gone_says_so_by_its_end_and_its_readiness(
    topologies: Topologies, drivers: FakeDrivers, release: Release, tmp_path: Path
) -> None:
    port, refused = free_port(), 'cannot get resource "leases"'
    with release.operator(drivers, tmp_path / "first", port) as first:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        release.take_all_away()
        eventually(lambda: first.process.poll() is not None, 120)
        last = [line for line in first.output.splitlines() if " ERROR " in line][-1]  # Python may warn of semaphores below it
        assert "another replica takes over (this replica cannot lead, as the lease" in last, first.output
        assert refused in last
    topologies.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
    with release.operator(drivers, tmp_path / "second", port):
        eventually(lambda: refused in probed(port, "/readyz")[1], 120)
        assert "see rbac.create of the chart" in probed(port, "/readyz")[1]
        release.grant()
        eventually(lambda: probed(port, "/readyz")[0] == 200, 120)
        eventually(lambda: settled(topologies, 2), 120)
