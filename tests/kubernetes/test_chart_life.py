"""A release of the chart from install to uninstall, by Helm itself: the CRD and the topologies outlive it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.aio.client import ApiClient
from support.kube.apiserver import ApiServer
from support.kube.binaries import KubernetesMissing, binary, require
from support.kube.processes import ProcessFailed, run
from support.kube.running_operator import OperatorProcess, Topologies, configuration_of, install_crd, manifest

from streamtopology.k8s.install_check import NotInstalled, installed
from streamtopology.k8s.io.api import Api
from streamtopology.k8s.settings import Settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "streamtopology"
CRD = "crd/streamtopologies.streamtopology.dev"
SHORT_NAMES = "    shortNames:\n    - stopo\n"
NAMESPACE = "operators"


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    """An API server of the test's own: what the CRD is, and who owns it, is up to the test."""
    try:
        server = ApiServer()
        require(["helm"])
    except KubernetesMissing as missing:
        pytest.fail(str(missing))
    with server:
        server.kubectl("create", "namespace", NAMESPACE)
        yield server


def helm(cluster: ApiServer, *arguments: str) -> str:
    return run([str(binary("helm")), f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}", *arguments], 120)


def older_chart(folder: Path) -> Path:
    """The chart with a CRD that has no short name yet."""
    chart = Path(shutil.copytree(CHART, folder / "streamtopology"))
    definition = chart / "files" / "crd.yaml"
    text = definition.read_text()
    assert SHORT_NAMES in text
    definition.write_text(text.replace(SHORT_NAMES, ""))
    return chart


def short_names(cluster: ApiServer) -> str:
    return cluster.kubectl("get", CRD, "-o", "jsonpath={.spec.names.shortNames}")


def create_topology(cluster: ApiServer) -> None:
    cluster.served(CRD)
    with cluster.client() as api:
        Topologies(api, NAMESPACE).create(manifest("kept"))


def has_topology(cluster: ApiServer) -> bool:
    with cluster.client() as api:
        return Topologies(api, NAMESPACE).exists("kept")


def test_crd_is_upgraded_with_the_release_and_outlives_it(api_server: ApiServer, tmp_path: Path) -> None:
    helm(api_server, "install", "streamtopology", str(older_chart(tmp_path)))
    create_topology(api_server)
    assert short_names(api_server) == ""
    helm(api_server, "upgrade", "streamtopology", str(CHART))
    assert short_names(api_server) == '["stopo"]'

    helm(api_server, "upgrade", "streamtopology", str(CHART), "--set", "crds.install=false")
    assert has_topology(api_server)
    helm(api_server, "upgrade", "streamtopology", str(CHART), "--set", "crds.install=true")
    kept = helm(api_server, "uninstall", "streamtopology")
    assert "[CustomResourceDefinition] streamtopologies.streamtopology.dev" in kept, "Helm names what it keeps"
    assert has_topology(api_server)
    helm(api_server, "install", "streamtopology", str(CHART))
    assert has_topology(api_server)


def test_crd_that_kubectl_applied_is_taken_over_when_asked(api_server: ApiServer) -> None:
    install_crd(api_server)
    create_topology(api_server)
    with pytest.raises(ProcessFailed, match="ownership"):
        helm(api_server, "install", "streamtopology", str(CHART))
    helm(api_server, "install", "streamtopology", str(CHART), "--take-ownership")
    assert has_topology(api_server)


async def looked_without_patience(cluster: ApiServer) -> str:
    async def at_once(_: float) -> None:
        return None

    async with ApiClient(await configuration_of(cluster.kubeconfig)) as client:
        return await installed(Api(client), Settings(namespace=NAMESPACE), at_once)


def checked(cluster: ApiServer, **environment: str) -> str:
    """The output of the command that the pod of `helm test` runs, with its rights. Raises ProcessFailed with the last line."""
    kubeconfig = cluster.kubeconfig_of(NAMESPACE, "streamtopology")
    given = {"KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": NAMESPACE, **environment}
    variables = [f"{name}={value}" for name, value in given.items()]
    return run(["/usr/bin/env", *variables, sys.executable, "-m", "streamtopology.k8s.install_check"], 180)


def grant_what_helm_test_may(cluster: ApiServer, tmp_path: Path, *values: str) -> None:
    """The Role of the test, which `helm test` makes before its pod."""
    shown = helm(
        cluster,
        "template",
        "streamtopology",
        str(CHART),
        "--kube-version=1.30.0",
        "--show-only",
        "templates/tests/rbac.yaml",
        *values,
    )
    (tmp_path / "rights.yaml").write_text(shown)
    cluster.kubectl("apply", "-f", str(tmp_path / "rights.yaml"))


def take_right_away(cluster: ApiServer, resource: str) -> None:
    role = json.loads(cluster.kubectl("get", "clusterrole", "streamtopology", "-o=json"))
    index = next(index for index, rule in enumerate(role["rules"]) if resource in rule["resources"])
    gone = json.dumps([{"op": "remove", "path": f"/rules/{index}"}])
    cluster.kubectl("patch", "clusterrole", "streamtopology", "--type=json", f"--patch={gone}")


def test_helm_test_says_what_works_and_what_is_missing(api_server: ApiServer, tmp_path: Path) -> None:
    helm(api_server, "install", "streamtopology", str(CHART), "--set", "crds.install=false")
    with pytest.raises(ProcessFailed, match=r"not installed: streamtopology\.dev/v1alpha1 streamtopologies are not served"):
        checked(api_server)
    helm(api_server, "upgrade", "streamtopology", str(CHART), "--set", "crds.install=true")
    api_server.served(CRD)
    with pytest.raises(NotInstalled, match="no operator renews the lease operators/streamtopology-operator: see its pods"):
        asyncio.run(looked_without_patience(api_server))
    kubeconfig = api_server.kubeconfig_of(NAMESPACE, "streamtopology")
    environment = {
        "STREAMTOPOLOGY_LEADER_ELECTION": "true", "STREAMTOPOLOGY_LEASE_SECONDS": "5", "POD_NAMESPACE": NAMESPACE,
        "POD_NAME": "operator-0", "KUBECONFIG": str(kubeconfig),
    }  # fmt: skip
    with OperatorProcess(api_server, tmp_path / "operator.log", **environment):
        with pytest.raises(ProcessFailed, match="no StreamTopology can be made in namespace operators to try the operator"):
            checked(api_server)
        grant_what_helm_test_may(api_server, tmp_path)
        assert checked(api_server) == (
            "operator-0 leads and renews its lease; it serves StreamTopologies in all namespaces: it wrote the status of one "
            "made for this\n"
        )
        assert api_server.kubectl("get", "stopo", "-A", "-o=name") == "", "it deletes the one it makes"
        take_right_away(api_server, "streamtopologies/status")
        with pytest.raises(
            ProcessFailed, match=r"leads, but has written no status of StreamTopology operators/streamtopology-test"
        ):
            checked(api_server)
        api_server.kubectl("create", "namespace", "streams")
        helm(api_server, "upgrade", "streamtopology", str(CHART), "--set", "watchNamespaces={streams}")
        grant_what_helm_test_may(api_server, tmp_path, "--set", "watchNamespaces={streams}")
        assert "serves StreamTopologies in streams" in checked(api_server, STREAMTOPOLOGY_WATCH_NAMESPACES="streams")
        with pytest.raises(ProcessFailed, match=r"may not read StreamTopologies in namespace default .* see rbac\.create"):
            checked(api_server, STREAMTOPOLOGY_WATCH_NAMESPACES="streams,default")


@pytest.mark.parametrize("before", ["watchNamespaces={streams,operators}", "replicas=1"], ids=["some", "all"])
def test_upgrade_that_leaves_topologies_without_an_operator_is_refused(api_server: ApiServer, before: str) -> None:
    api_server.kubectl("create", "namespace", "streams")
    helm(api_server, "install", "streamtopology", str(CHART), "--set", before)
    create_topology(api_server)
    with pytest.raises(ProcessFailed, match="nobody would serve operators/kept"):
        helm(api_server, "upgrade", "streamtopology", str(CHART), "--set", "watchNamespaces={streams}")
    api_server.kubectl(f"-n={NAMESPACE}", "annotate", "stopo", "--all", "streamtopology.dev/served-by=other")
    helm(api_server, "upgrade", "streamtopology", str(CHART), "--set", "watchNamespaces={streams}")


def test_second_release_in_a_namespace_is_refused(api_server: ApiServer) -> None:
    helm(api_server, "install", "first", str(CHART))
    with pytest.raises(
        ProcessFailed, match=r"release first of the operator is in namespace operators already, .*helm upgrade first"
    ):
        helm(api_server, "install", "second", str(CHART), "--set", "crds.install=false,watchNamespaces={streams}")
    helm(api_server, "upgrade", "first", str(CHART))
    helm(api_server, "uninstall", "first")
    helm(api_server, "install", "second", str(CHART), "--take-ownership")
