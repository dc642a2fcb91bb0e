"""The operator's token is revoked on a real API server, and the next one is in its file."""

from __future__ import annotations

from pathlib import Path

from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import IMAGE, LARGE, QUIET, SMALL, settled
from support.kube.running_operator import OperatorProcess, Topologies, manifest
from support.probes import free_port, probed
from support.waiting import eventually


def token_until(topologies: Topologies, secret: str) -> str:
    """A token of the namespace's account, valid until this new Secret is deleted."""
    topologies.core.create_namespaced_secret(topologies.namespace, client.V1Secret(metadata=client.V1ObjectMeta(name=secret)))
    bound = client.V1BoundObjectReference(api_version="v1", kind="Secret", name=secret)
    asked = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], bound_object_ref=bound))
    answer = topologies.core.create_namespaced_service_account_token("default", topologies.namespace, asked)
    assert answer.status is not None
    return str(answer.status.token)


def test_operator_says_that_its_token_is_not_valid_and_takes_the_next_one(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, tmp_path: Path
) -> None:
    """Takes two minutes: the topologies are listed twice a minute, the token's file is read once."""
    here, file, port = topologies.namespace, tmp_path / "token", free_port()
    api_server.kubectl(
        "create", "rolebinding", "operator", f"--namespace={here}", "--clusterrole=cluster-admin",
        f"--serviceaccount={here}:default",
    )  # fmt: skip
    file.write_text(token_until(topologies, "first"))
    kubeconfig = api_server.pki.kubeconfig(tmp_path / "config", api_server.url, {"tokenFile": str(file)}, here)
    environment = {
        "KUBECONFIG": str(kubeconfig), "STREAMTOPOLOGY_WATCH_NAMESPACES": here, "STREAMTOPOLOGY_IMAGE": IMAGE,
        "STREAMTOPOLOGY_DRIVER_URL": drivers.url, "STREAMTOPOLOGY_PROBE_PORT": port,
    }  # fmt: skip
    with OperatorProcess(api_server, tmp_path / "log", **environment) as operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        topologies.core.delete_namespaced_secret("first", here)
        eventually(lambda: "the operator's token is not valid" in probed(port, "/readyz")[1], 120)
        file.write_text(token_until(topologies, "second"))
        topologies.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
        eventually(lambda: settled(topologies, 2), 240)
        eventually(lambda: probed(port, "/readyz")[0] == 200, 120)
        assert operator.process.poll() is None, operator.output
        assert "Traceback" not in operator.output
