"""Two releases of the operator whose namespaces overlap: one serves a topology, the other leaves it alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import LARGE, QUIET, SMALL, an_operator, settled
from support.kube.running_operator import Topologies, manifest
from support.waiting import eventually

from streamtopology.k8s.io.leader import LEASE_NAME

OTHER_IMAGE = "registry.example/spark:other"


def renewed(topologies: Topologies, ago: timedelta) -> None:
    """The Lease of a release in the namespace of the topologies, last renewed so long ago."""
    leases = client.CoordinationV1Api(topologies.core.api_client)
    spec = client.V1LeaseSpec(holder_identity="first", renew_time=datetime.now(UTC) - ago)
    body = client.V1Lease(metadata=client.V1ObjectMeta(name=LEASE_NAME), spec=spec)
    if ago:
        leases.patch_namespaced_lease(LEASE_NAME, topologies.namespace, body)
    else:
        leases.create_namespaced_lease(topologies.namespace, body)


def image(topologies: Topologies) -> str:
    """The image of the driver."""
    deployment = topologies.apps.read_namespaced_deployment("flow-driver", topologies.namespace)
    return deployment.spec.template.spec.containers[0].image


def test_second_release_leaves_a_topology_alone_until_the_first_is_gone(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    here = (topologies.namespace,)
    renewed(topologies, timedelta())
    with an_operator(api_server, here, drivers, namespace="default", image=OTHER_IMAGE):
        with an_operator(api_server, here, drivers, namespace=topologies.namespace):
            body = manifest("flow", rebalance=QUIET)
            body["metadata"]["annotations"] = {"streamtopology.dev/served-by": topologies.namespace}
            topologies.create(body)
            eventually(lambda: settled(topologies, 1), 120)
            eventually(lambda: "ServedByAnother" in topologies.reasons("flow"), 120)
            driver, ours = topologies.driver_pods("flow"), image(topologies)
            topologies.patch("flow", {"metadata": {"annotations": {"streamtopology.dev/served-by": None}}})
            topologies.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
            eventually(lambda: settled(topologies, 2), 120)
            assert topologies.driver_pods("flow") == driver
            assert image(topologies) == ours != OTHER_IMAGE
        renewed(topologies, timedelta(hours=1))
        topologies.change("flow", executors=[LARGE, SMALL], image=OTHER_IMAGE)
        eventually(lambda: settled(topologies, 3), 120)
        assert image(topologies) == OTHER_IMAGE
        annotations = topologies.get("flow")["metadata"]["annotations"]
        assert annotations["streamtopology.dev/served-by"] == "default"


def test_of_two_releases_that_see_a_new_topology_one_serves_it(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    here = (topologies.namespace,)
    renewed(topologies, timedelta())
    first = an_operator(api_server, here, drivers, namespace=topologies.namespace)
    second = an_operator(api_server, here, drivers, namespace="default", leader_election=False)
    with first, second:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: "ServedByAnother" in topologies.reasons("flow"), 120)
        eventually(lambda: settled(topologies, 1), 120)


def test_topology_of_a_namespace_that_is_not_watched_any_more_has_an_event(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers, namespace="default"):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        assert "NotWatched" not in topologies.reasons("flow")
    with an_operator(api_server, ("default",), drivers, namespace="default"):
        eventually(lambda: "NotWatched" in topologies.reasons("flow"), 60)
        [message] = {text for _, reason, text in topologies.events("flow") if reason == "NotWatched"}
        assert f"kubectl annotate stopo flow -n {topologies.namespace} --overwrite" in message
