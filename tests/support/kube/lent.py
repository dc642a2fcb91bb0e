"""Runs a command with a Kubernetes of the tests as its kubeconfig's cluster.

python -m support.kube.lent api COMMAND...     an API server alone
python -m support.kube.lent pods COMMAND...    an API server with the real controllers, whose pods are played
python -m support.kube.lent node COMMAND...    a node with the images of this checkout and the operator by its chart
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from support.kube.apiserver import ApiServer
from support.kube.chart import installed
from support.kube.cluster import Cluster
from support.kube.fake_kubelet import FakeKubelet
from support.kube.node import Node

ROOT = Path(__file__).parents[3]


@contextmanager
def node() -> Iterator[Cluster]:
    build = [sys.executable, str(ROOT / "images" / "build.py"), "operator", "spark", "--archive"]
    archives = subprocess.run(build, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    with Node() as cluster:
        for archive in archives:
            cluster.import_image(Path(archive))
        with installed(cluster):
            yield cluster


@contextmanager
def pods() -> Iterator[Cluster]:
    with ApiServer() as cluster, cluster.controllers(), FakeKubelet(cluster):
        yield cluster


KINDS: dict[str, Callable[[], AbstractContextManager[Cluster]]] = {"api": ApiServer, "pods": pods, "node": node}


def main(kind: str, *command: str) -> int:
    with KINDS[kind]() as cluster:
        return subprocess.run(command, env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
