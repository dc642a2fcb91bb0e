"""Deletion comes to an end, whatever the cluster refuses meanwhile: on a real API server with the real controllers."""

from __future__ import annotations

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import IMAGE, QUIET, an_operator, settled
from support.kube.policy import refusing
from support.kube.running_operator import OperatorThread, Topologies, manifest
from support.waiting import eventually

from streamtopology.k8s.settings import Settings


def is_refused(topologies: Topologies) -> bool:
    """True once the policy is in force, which the API server takes a moment for."""
    try:
        body = {"metadata": {"annotations": {"try": "it"}}}
        topologies.apps.patch_namespaced_deployment("flow-driver", topologies.namespace, body, dry_run="All")
    except client.ApiException as error:
        return error.status == 422
    return False


def test_a_cluster_that_refuses_to_stop_the_driver_keeps_no_topology(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        with refusing(topologies, "apps", ["deployments"]):
            eventually(lambda: is_refused(topologies))
            topologies.delete("flow")
            eventually(lambda: not topologies.exists("flow"), 120)


@pytest.mark.parametrize("everywhere", [True, False], ids=["cluster-wide", "namespaced"])
def test_a_namespace_with_running_topologies_can_be_deleted(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, everywhere: bool
) -> None:
    namespaces = () if everywhere else (topologies.namespace, "default")
    settings = Settings(namespaces=namespaces, image=IMAGE, driver_url=drivers.url, drain_seconds=20.0)
    with OperatorThread(api_server, settings) as operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        topologies.create(manifest("other", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        topologies.core.delete_namespace(topologies.namespace)
        eventually(lambda: not exists(topologies), 180)
        assert not operator.is_dead
    topologies.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=topologies.namespace)))


def exists(topologies: Topologies) -> bool:
    """True while the namespace does."""
    try:
        topologies.core.read_namespace(topologies.namespace)
    except client.ApiException as error:
        if error.status == 404:
            return False
        raise
    return True
