"""The images as pods that may do as little as the chart lets them: uid 10001, a read-only root, a writable /tmp."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from kubernetes import client
from support.kube.node import Node

ROOT = Path(__file__).parents[2]
POD_SECONDS = 120
RESTRICTED = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
CONFINED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}

ROUTE = """
import os, pathlib
import numpy as np
from streamtopology.routing.hashing import hash_int64
from streamtopology.routing.table import RoutingTable
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


@pytest.fixture(scope="module")
def images(node: Node) -> dict[str, str]:
    """Target -> name of its image, built (from the cache, if nothing changed) and imported."""
    targets = ("operator", "spark")
    build = [sys.executable, str(ROOT / "images" / "build.py"), *targets, "--archive"]
    for archive in subprocess.run(build, check=True, stdout=subprocess.PIPE, text=True).stdout.split():
        node.import_image(Path(archive))
    return {target: f"streamtopology/{target}:0.1.0" for target in targets}


def run_in_pod(node: Node, image: str, command: Sequence[str] = (), args: Sequence[str] = ()) -> tuple[str, str]:
    """Phase and log of a pod that has ended."""
    container = {
        "name": "main", "image": image, "imagePullPolicy": "Never", "args": list(args), "securityContext": CONFINED,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}], **({"command": list(command)} if command else {}),
    }  # fmt: skip
    spec = {
        "restartPolicy": "Never", "securityContext": RESTRICTED, "automountServiceAccountToken": False,
        "containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}],
    }  # fmt: skip
    namespace = node.new_namespace("images")
    with node.client() as api:
        core = client.CoreV1Api(api)
        core.create_namespaced_pod(namespace, {"metadata": {"name": "pod"}, "spec": spec})
        deadline = time.monotonic() + POD_SECONDS
        while (phase := core.read_namespaced_pod("pod", namespace).status.phase) not in ("Succeeded", "Failed"):
            assert time.monotonic() < deadline, f"the pod is {phase} after {POD_SECONDS} s"
            time.sleep(0.2)
        log = core.read_namespaced_pod_log("pod", namespace)
        core.delete_namespace(namespace)
    return phase, log


def test_without_arguments_the_spark_image_says_what_it_can(node: Node, images: dict[str, str]):
    phase, log = run_in_pod(node, images["spark"])
    assert (phase, "usage: streamtopology" in log) == ("Succeeded", True), log


@pytest.mark.parametrize("target", ["operator", "spark"])
def test_it_runs_as_nobody_and_writes_nowhere_but_tmp(node: Node, images: dict[str, str], target: str):
    script = "id -u; for folder in /tmp / /opt/streamtopology /var; do touch $folder/file 2>&- && echo $folder; done; true"
    phase, log = run_in_pod(node, images[target], ["sh", "-c", script])
    assert (phase, log.split()) == ("Succeeded", ["10001", "/tmp"])


@pytest.mark.parametrize(("target", "distribution"), [("operator", "kopf"), ("spark", "streamtopology.jobs.tasks")])
def test_our_code_and_its_packages_import(node: Node, images: dict[str, str], target: str, distribution: str):
    phase, log = run_in_pod(node, images[target], ["python", "-c", f"import streamtopology.routing.controller, {distribution}"])
    assert phase == "Succeeded", log


def test_the_operators_image_has_no_spark(node: Node, images: dict[str, str]):
    find = "import importlib.util as u; print([u.find_spec(name) for name in ('pyspark', 'pyarrow', 'duckdb')])"
    assert run_in_pod(node, images["operator"], ["python", "-c", find]) == ("Succeeded", "[None, None, None]\n")


def test_spark_runs(node: Node, images: dict[str, str]):
    phase, log = run_in_pod(node, images["spark"], ["python", "-c", SESSION])
    assert (phase, log.splitlines()[-1]) == ("Succeeded", "sum: 45"), log


@pytest.mark.parametrize("target", ["operator", "spark"])
def test_kernels_come_with_the_image(node: Node, images: dict[str, str], target: str):
    """The command on PATH lays them out and then runs what it is called by: here a Python that uses some."""
    command = {"operator": "streamtopology-operator", "spark": "streamtopology"}[target]
    script = f'ln -s "$(command -v {command})" /tmp/python && exec /tmp/python -c "$0"'
    assert run_in_pod(node, images[target], ["sh", "-c", script, ROUTE]) == ("Succeeded", "kernels: True compiled here: []\n")
