"""Promises of the tests' node to the tests that use it: pods run, find each other, and are resized."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from support.kube.node import BUSYBOX_IMAGE, Node
from support.waiting import eventually

TESTS = Path(__file__).parents[1]
QUOTAS = "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null | head -1"
SERVE = "mkdir -p /tmp/web && hostname >/tmp/web/index.html && exec httpd -f -p 8080 -h /tmp/web"


def pod(name: str, script: str, **resources: str) -> dict[str, Any]:
    container = {
        "name": "main", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
        "resources": {"requests": resources, "limits": resources},
    }  # fmt: skip
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def service(name: str, **spec: Any) -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": 8080}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports, **spec}}


def apply(node: Node, namespace: str, *objects: dict[str, Any]) -> None:
    node.kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def wait_for_pod(node: Node, namespace: str, name: str, state: str = "condition=Ready") -> None:
    node.kubectl("-n", namespace, "wait", f"--for={state}", f"pod/{name}", "--timeout=60s", seconds=70)


def in_pod(node: Node, namespace: str, name: str, script: str) -> str:
    return node.kubectl("-n", namespace, "exec", name, "--", "sh", "-c", script)


def test_a_pod_runs_to_its_end_and_its_logs_can_be_read(node: Node, namespace: str):
    apply(node, namespace, pod("hello", "echo hello from $(hostname)"))
    wait_for_pod(node, namespace, "hello", "jsonpath={.status.phase}=Succeeded")
    assert node.kubectl("-n", namespace, "logs", "hello") == "hello from hello\n"


def test_services_are_found_by_name_and_headless_ones_name_every_pod(node: Node, namespace: str):
    servers = [pod(name, SERVE, cpu="50m", memory="32Mi") for name in ("one", "two")]
    for each in servers:
        each["metadata"]["labels"] = {"app": "web"}
    selector = {"app": "web"}
    apply(
        node,
        namespace,
        *servers,
        pod("caller", "exec sleep 3600"),
        service("web", selector=selector),
        service("web-pods", selector=selector, clusterIP="None"),
    )
    for name in ("one", "two", "caller"):
        wait_for_pod(node, namespace, name)
    eventually(lambda: in_pod(node, namespace, "caller", "wget -qO- http://web/ || true").strip() in {"one", "two"})
    seen = in_pod(node, namespace, "caller", f"nslookup web-pods.{namespace}.svc.cluster.local")
    addresses = node.kubectl("-n", namespace, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.podIP}").split()
    assert len(addresses) == 2
    assert all(address in seen for address in addresses)


def test_a_pods_port_is_reached_from_the_machine(node: Node, namespace: str):
    apply(node, namespace, pod("web", SERVE))
    wait_for_pod(node, namespace, "web")
    address = node.kubectl("-n", namespace, "get", "pod", "web", "-o", "jsonpath={.status.podIP}")
    port = node.forward(address, 8080)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
        assert answer.read() == b"web\n"


def test_a_cpu_resize_reaches_the_running_container(node: Node, namespace: str):
    apply(node, namespace, pod("sized", "exec sleep 3600", cpu="200m", memory="32Mi"))
    wait_for_pod(node, namespace, "sized")
    assert in_pod(node, namespace, "sized", QUOTAS).split()[0] == "20000"
    changed = {"requests": {"cpu": "350m"}, "limits": {"cpu": "350m"}}
    patch = {"spec": {"containers": [{"name": "main", "resources": changed}]}}
    node.kubectl("-n", namespace, "patch", "pod", "sized", "--subresource=resize", f"--patch={json.dumps(patch)}")
    eventually(lambda: in_pod(node, namespace, "sized", QUOTAS).split()[0] == "35000")
    status = json.loads(node.kubectl("-n", namespace, "get", "pod", "sized", "-o", "json"))["status"]["containerStatuses"][0]
    assert status["restartCount"] == 0


OWNER = """
import json, sys, time
from support.kube.node import Node
with Node() as node:
    node.kubectl("apply", "-f", "-", stdin=sys.argv[1])
    node.kubectl("wait", "--for=condition=Ready", "pod/lasting", "--timeout=60s", seconds=70)
    print(node.folder, flush=True)
    time.sleep(600)
"""


def test_node_whose_owner_is_killed_leaves_nothing_and_spares_the_other(node: Node):
    def left() -> list[str]:
        commands = (path.read_text(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
        processes = [command for command in commands if str(folder) in command or "86399" in command]
        return [*processes, *map(str, Path("/sys/fs/cgroup").glob(f"*/{folder.name}")), *map(str, folder.glob("*"))]

    manifest = json.dumps(pod("lasting", "exec sleep 86399"))
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", OWNER, manifest]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        output = owner.stdout.readline().strip()
        assert output
        folder = Path(output)
        assert any("86399" in each for each in left())
        owner.kill()
    eventually(lambda: not left())
    assert node.answers()
