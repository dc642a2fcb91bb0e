"""The images as pods that may do as little as the chart lets them: uid 10001, a read-only root, a writable /tmp."""

from __future__ import annotations

import json

import pytest
from support.kube.node import Node
from support.waiting import eventually

POD_SECONDS = 120
RESTRICTED: dict[str, object] = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONFINED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}

ROUTE = """
import os, pathlib
import numpy as np
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable
folder = pathlib.Path(os.environ["NUMBA_CACHE_DIR"])
before = {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.nb*")}
RoutingTable.uniform(range(4)).lookup(hash_int64(np.arange(100)))
after = {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.nb*")}
print("kernels:", len(before) > 20, "compiled here:", sorted(after.items() - before.items()))
"""
SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("sum:", spark.range(10).selectExpr("sum(id)").first()[0])
"""
WHO = "import getpass, os, pwd; assert os.getuid() == 1000660000; pwd.getpwuid(os.getuid()); print(getpass.getuser())"


def run_in_pod(
    node: Node, namespace: str, image: str, *command: str, security: dict[str, object] = RESTRICTED
) -> tuple[str, str]:
    """Phase and log of a pod that has ended; without a command it runs the image's own."""
    container = {
        "name": "main", "image": image, "imagePullPolicy": "Never", "securityContext": CONFINED, "args": list(command),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }  # fmt: skip
    spec = {
        "restartPolicy": "Never", "securityContext": security, "automountServiceAccountToken": False,
        "containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}],
    }  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
    node.kubectl("-n", namespace, "create", "-f", "-", stdin=json.dumps(pod))

    def phase() -> str:
        return node.read(f"/api/v1/namespaces/{namespace}/pods/pod")["status"]["phase"]

    eventually(lambda: phase() in ("Succeeded", "Failed"), POD_SECONDS)
    return phase(), node.kubectl("-n", namespace, "logs", "pod")


def test_without_arguments_the_spark_image_says_what_it_can(node: Node, namespace: str, images: dict[str, str]):
    phase, log = run_in_pod(node, namespace, images["spark"])
    assert (phase, "usage: streamtopology" in log.lower()) == ("Succeeded", True), log


@pytest.mark.parametrize("target", ["operator", "spark"])
def test_it_runs_as_nobody_and_writes_nowhere_but_tmp(node: Node, namespace: str, images: dict[str, str], target: str):
    script = "id -u; for folder in /tmp / /opt/streamtopology /var; do touch $folder/file 2>&- && echo $folder; done; true"
    phase, log = run_in_pod(node, namespace, images[target], "sh", "-c", script)
    assert (phase, log.split()) == ("Succeeded", ["10001", "/tmp"])


@pytest.mark.parametrize(
    ("target", "distribution"), [("operator", "kopf"), ("spark", "streamtopology.jobs.worker.stage_tasks")]
)
def test_our_code_and_its_packages_import(node: Node, namespace: str, images: dict[str, str], target: str, distribution: str):
    script = f"import streamtopology.routing.control.controller, {distribution}"
    phase, log = run_in_pod(node, namespace, images[target], "python", "-c", script)
    assert phase == "Succeeded", log


def test_the_operators_image_has_no_spark(node: Node, namespace: str, images: dict[str, str]):
    find = "import importlib.util as u; print([u.find_spec(name) for name in ('pyspark', 'pyarrow', 'duckdb')])"
    assert run_in_pod(node, namespace, images["operator"], "python", "-c", find) == ("Succeeded", "[None, None, None]\n")


def test_spark_image_has_neither_lab_nor_operator(node: Node, namespace: str, images: dict[str, str]):
    find = "import importlib.util as u; print([u.find_spec(f'streamtopology.{name}') for name in ('lab', 'k8s')])"
    assert run_in_pod(node, namespace, images["spark"], "python", "-c", find) == ("Succeeded", "[None, None]\n")


def test_spark_runs(node: Node, namespace: str, images: dict[str, str]):
    phase, log = run_in_pod(node, namespace, images["spark"], "python", "-c", SESSION)
    assert phase == "Succeeded", log
    assert "sum: 45" in log.splitlines(), "among what Spark says of itself"


@pytest.mark.parametrize(("target", "script", "output"), [("operator", WHO, "streamtopology"), ("spark", SESSION, "sum: 45")])
def test_images_run_as_a_user_of_the_platforms_choice(
    node: Node, namespace: str, images: dict[str, str], target: str, script: str, output: str
):
    """As OpenShift runs them: a number that the image does not know, in the group 0."""
    command = {"operator": "streamtopology-operator", "spark": "streamtopology"}[target]
    run = f'ln -s "$(command -v {command})" /tmp/python && exec /tmp/python -c "$0"'
    security = {**RESTRICTED, "runAsUser": 1000660000, "runAsGroup": 0}
    phase, log = run_in_pod(node, namespace, images[target], "sh", "-c", run, script, security=security)
    assert (phase, output in log.splitlines()) == ("Succeeded", True), log


@pytest.mark.parametrize("target", ["operator", "spark"])
def test_kernels_come_with_the_image(node: Node, namespace: str, images: dict[str, str], target: str):
    """The command on PATH lays them out and then runs what it is called by: here a Python that uses some."""
    command = {"operator": "streamtopology-operator", "spark": "streamtopology"}[target]
    script = f'ln -s "$(command -v {command})" /tmp/python && exec /tmp/python -c "$0"'
    ended = run_in_pod(node, namespace, images[target], "sh", "-c", script, ROUTE)
    assert ended == ("Succeeded", "kernels: True compiled here: []\n")
