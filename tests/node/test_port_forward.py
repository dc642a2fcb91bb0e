"""A driver on a cluster is asked by a port-forward where the API server's proxy is refused, on a real node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from support.histories import run
from support.kube.node import BUSYBOX_IMAGE, Node
from support.page_histories import flights, recorded, standing_of

from streamtopology.contract.pods import HTTP_PORT
from streamtopology.jobs.admin.ask_cluster import Unreachable, asking_the_cluster
from streamtopology.jobs.admin.find_run import PAGE, Where
from streamtopology.jobs.admin.page_of import page_of_run

READS = {"apiGroups": [""], "resources": ["services", "pods"], "verbs": ["get", "list"]}
FORWARDS = {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]}


def of(kind: str, name: str, version: str = "v1", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def driver(page: str) -> list[dict[str, Any]]:
    """A pod that serves `page` where a driver does, and its Service."""
    script = f'mkdir -p /tmp/web && printf %s "$PAGE" >/tmp/web/page.json && exec httpd -f -p {HTTP_PORT} -h /tmp/web'
    container = {
        "name": "driver", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
        "env": [{"name": "PAGE", "value": page}], "readinessProbe": {"tcpSocket": {"port": HTTP_PORT}, "periodSeconds": 1},
    }  # fmt: skip
    pod = of("Pod", "flights-driver-0", spec={"containers": [container], "terminationGracePeriodSeconds": 0})
    pod["metadata"]["labels"] = {"app": "flights"}
    service = of(
        "Service", "flights-driver", spec={"selector": {"app": "flights"}, "ports": [{"name": "http", "port": HTTP_PORT}]}
    )
    return [pod, service]


def person(namespace: str, *rules: dict[str, Any]) -> list[dict[str, Any]]:
    """Somebody who may do this in the namespace, and nothing else."""
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "person", "namespace": namespace}
    role = {"kind": "Role", "name": "person", "apiGroup": rbac}
    return [
        of("ServiceAccount", "person"),
        of("Role", "person", f"{rbac}/v1", rules=list(rules)),
        of("RoleBinding", "person", f"{rbac}/v1", subjects=[subject], roleRef=role),
    ]


@pytest.fixture
def namespace_of_person(node: Node, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The namespace in which the kubeconfig's user is `person`."""
    node.kubectl("-n", namespace, "apply", "-f", "-", stdin=as_list(person(namespace, READS, FORWARDS)))
    config = yaml.safe_load(node.kubeconfig.read_text())
    token = node.kubectl("-n", namespace, "create", "token", "person").strip()
    for user in config["users"]:
        user["user"] = {"token": token}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(file))
    return namespace


def as_list(objects: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def test_page_comes_by_a_port_forward_where_the_proxy_is_refused(
    node: Node, namespace_of_person: str, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = namespace_of_person
    page = recorded(run(6, reroute_at=4), flights()).page(standing_of(), -1)
    node.kubectl("-n", namespace, "apply", "-f", "-", stdin=as_list(driver(json.dumps(page))))
    node.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/flights-driver-0", "--timeout=60s", seconds=70)
    shown: list[bytes] = []

    def look() -> None:
        output = capsys.readouterr().out
        assert "through a port-forward to its pod" in output
        for _ in range(3):
            shown.append(urlopen(f"{output.split()[1]}page.json", timeout=60).read())

    page_of_run("flights", Where(namespace), 0, False, look)
    assert [json.loads(each) for each in shown] == [{**json.loads(json.dumps(page)), "namespace": namespace}] * 3


def test_both_refusals_are_named(node: Node, namespace_of_person: str) -> None:
    namespace = namespace_of_person
    node.kubectl("-n", namespace, "apply", "-f", "-", stdin=as_list(driver("{}")[1:]))
    asking = asking_the_cluster("flights", namespace, None, PAGE)
    with pytest.raises(Unreachable, match=r"no pod of its driver runs; see kubectl get pods .*proxy: 403, .*services/proxy"):
        asking(-1)

    node.kubectl("-n", namespace, "apply", "-f", "-", stdin=as_list(person(namespace, READS)))
    node.kubectl("-n", namespace, "apply", "-f", "-", stdin=as_list(driver("{}")[:1]))
    node.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/flights-driver-0", "--timeout=60s", seconds=70)
    with pytest.raises(Unreachable, match=r"by a port-forward: .*403.*pods/portforward.*proxy: 403"):
        asking(-1)
