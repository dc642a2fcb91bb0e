"""A second version of the API, as docs/run/upgrade.md has it: served, then stored, then the only one. Nothing is converted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.binaries import KubernetesMissing
from support.kube.flow import QUIET, an_operator, settled
from support.kube.processes import ProcessFailed
from support.kube.running_operator import PLURAL, Topologies, manifest
from support.mistakes import changed
from support.waiting import eventually

from streamtopology.topology.crd import custom_resource_definition

ROOT = Path(__file__).parents[2]
ALPHA, BETA = "v1alpha1", "v1beta1"
CRD = f"crd/{PLURAL}.streamtopology.dev"
OBJECT = dict[str, Any]


@pytest.fixture(scope="module")
def api_server() -> Iterator[ApiServer]:
    """One of this module's own: the versions that it serves are up to the tests."""
    try:
        server = ApiServer()
    except KubernetesMissing as missing:
        pytest.fail(str(missing))
    with server:
        yield server


class Versions:
    """The CRD's versions, and the topologies of a namespace by either of them."""

    def __init__(self, api_server: ApiServer, topologies: Topologies) -> None:
        self._cluster = api_server
        self._custom = client.CustomObjectsApi(topologies.core.api_client)
        self._namespace = topologies.namespace

    def serve(self, versions: Sequence[str], storage: str) -> None:
        """Apply the CRD, and wait until all of them are served."""
        definition = yaml.safe_dump(custom_resource_definition(versions, storage))
        self._cluster.kubectl("apply", "--server-side", "-f", "-", stdin=definition)
        eventually(lambda: all(self.served(version) for version in versions))

    def served(self, version: str) -> bool:
        try:
            return bool(self._custom.get_api_resources("streamtopology.dev", version).resources)
        except client.ApiException as error:
            if error.status == 404:
                return False
            raise

    def stored(self) -> list[str]:
        return json.loads(self._cluster.kubectl("get", CRD, "-o", "jsonpath={.status.storedVersions}"))

    def trim(self, *versions: str) -> None:
        patch = json.dumps({"status": {"storedVersions": versions}})
        self._cluster.kubectl("patch", CRD, "--subresource=status", "--type=merge", "-p", patch)

    def get(self, version: str, name: str) -> OBJECT:
        return self._custom.get_namespaced_custom_object("streamtopology.dev", version, self._namespace, PLURAL, name)

    def create(self, version: str, topology: OBJECT) -> OBJECT:
        body = {**topology, "apiVersion": f"streamtopology.dev/{version}"}
        return self._custom.create_namespaced_custom_object("streamtopology.dev", version, self._namespace, PLURAL, body)

    def change(self, version: str, name: str, **spec: Any) -> OBJECT:
        where = ("streamtopology.dev", version, self._namespace, PLURAL, name)
        return self._custom.patch_namespaced_custom_object(*where, {"spec": spec})

    def delete(self, version: str, name: str) -> None:
        self._custom.delete_namespaced_custom_object("streamtopology.dev", version, self._namespace, PLURAL, name)

    def rewrite(self) -> None:
        """The command of the page, by a kubectl that remembers no versions of before."""
        cache = f"--cache-dir={self._cluster.folder / 'kubectl-cache'}"
        listed = self._cluster.kubectl(cache, "get", f"{PLURAL}.{BETA}.streamtopology.dev", "-A", "-o", "json")
        try:
            self._cluster.kubectl(cache, "replace", "-f", "-", stdin=listed)
        except ProcessFailed as failed:
            if "the object has been modified" not in str(failed):  # by the operator, so it is rewritten
                raise


@pytest.fixture
def versions(api_server: ApiServer, topologies: Topologies) -> Iterator[Versions]:
    """Both may have been stored in the end: the CRD is made again for the next test."""
    yield Versions(api_server, topologies)
    topologies.let_go()
    api_server.kubectl("delete", CRD, "--timeout=60s")
    api_server.kubectl("apply", "--server-side", "-f", str(ROOT / "crds" / f"{PLURAL}.streamtopology.dev.yaml"))
    api_server.served(CRD)


def same(one: OBJECT, other: OBJECT) -> bool:
    """All but the version and its resource version; managedFields name the version by which each field was written."""
    left_out = {"resourceVersion", "managedFields"}

    def core(topology: OBJECT) -> OBJECT:
        metadata = {name: value for name, value in topology["metadata"].items() if name not in left_out}
        return {**topology, "apiVersion": "", "metadata": metadata}

    return core(one) == core(other)


def test_topologies_run_through_a_change_of_the_stored_version(
    versions: Versions, topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        pods, before = topologies.driver_pods("flow"), versions.get(ALPHA, "flow")
        assert before["metadata"]["finalizers"]

        versions.serve([ALPHA, BETA], storage=ALPHA)
        eventually(lambda: same(versions.get(BETA, "flow"), versions.get(ALPHA, "flow")))

        versions.serve([ALPHA, BETA], storage=BETA)
        assert versions.stored() == [ALPHA, BETA]
        versions.create(BETA, manifest("new", rebalance=QUIET, suspend=True))
        eventually(lambda: topologies.status("new").get("phase") == "Suspended")
        eventually(lambda: same(versions.get(BETA, "new"), versions.get(ALPHA, "new")))

        with pytest.raises(ProcessFailed, match=r"storedVersions.*must remain in spec\.versions"):
            versions.serve([BETA], storage=BETA)
        versions.rewrite()
        versions.trim(BETA)
        assert versions.stored() == [BETA]
        after = versions.get(ALPHA, "flow")
        for name in ("uid", "generation", "finalizers", "creationTimestamp"):
            assert after["metadata"][name] == before["metadata"][name]
        assert after["spec"] == before["spec"]
        assert after["status"]["epoch"] == before["status"]["epoch"]

        generation = versions.change(BETA, "flow", rebalance={**QUIET, "tolerance": 0.3})["metadata"]["generation"]
        eventually(lambda: settled(topologies, generation))
        assert topologies.driver_pods("flow") == pods, "none of it restarted anything"
        versions.delete(BETA, "new")
        eventually(lambda: not topologies.exists("new"))


def test_a_version_that_is_still_stored_is_not_given_up(versions: Versions, topologies: Topologies) -> None:
    topologies.create(manifest("old"))
    versions.serve([ALPHA, BETA], storage=BETA)
    versions.trim(BETA)  # before anything was rewritten, which nobody prevents
    versions.serve([BETA], storage=BETA)
    with pytest.raises(client.ApiException) as refused:
        versions.get(BETA, "old")
    assert refused.value.status == 500, "etcd has it in a version that is no more"

    versions.serve([ALPHA, BETA], storage=BETA)
    versions.rewrite()
    versions.trim(BETA)
    versions.serve([BETA], storage=BETA)
    assert versions.get(BETA, "old")["spec"]["checkpoint"] == "/checkpoint"
    versions.serve([ALPHA, BETA], storage=BETA)  # for the end of the test


def test_admission_policy_judges_both_versions(versions: Versions, api_server: ApiServer) -> None:
    versions.serve([ALPHA, BETA], storage=BETA)
    policy = str(ROOT / "crds" / "admission-policy.yaml")
    api_server.kubectl("apply", "--server-side", "-f", policy)
    try:
        wrong = changed(("spec.operators[1].inputs", ["claen"]))

        def refused(version: str) -> bool:
            try:
                versions.create(version, wrong)
            except client.ApiException as error:
                return error.status == 422 and "claen" in str(error.body)
            versions.delete(version, wrong["metadata"]["name"])
            return False

        eventually(lambda: refused(ALPHA))  # the policy takes a moment
        eventually(lambda: refused(BETA))
    finally:
        api_server.kubectl("delete", "-f", policy, "--timeout=30s")
