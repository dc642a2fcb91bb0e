"""The chart on a cluster, by Helm, as docs/run/install.md says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.kube.binaries import binary
from support.kube.cluster import Cluster
from support.kube.processes import run

ROOT = Path(__file__).parents[3]
NAMESPACE = "streamtopology"
HELM_SECONDS = 240


@contextmanager
def installed(cluster: Cluster, replicas: int = 1) -> Iterator[None]:
    """The operator in a namespace that takes nothing but restricted pods; its image is on the node already."""
    _install(cluster, replicas)
    try:
        yield
    finally:
        _uninstall(cluster)


class KeptOperator:
    """The operator of `installed`, which stays from one test to the next until one wants it away. It ends with its node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_there = False

    def install(self) -> None:
        """Have it installed."""
        if not self._is_there:
            _install(self._cluster, 1)
            self._is_there = True

    def remove(self) -> None:
        """Have no operator, for a test that installs one in its own way."""
        if self._is_there:
            self._is_there = False
            _uninstall(self._cluster)


def checked(cluster: Cluster) -> str:
    """The output of `helm test` on what `installed` has installed."""
    return _helm(cluster, "test", "streamtopology", "--logs", "--timeout=180s")


def _install(cluster: Cluster, replicas: int) -> None:
    cluster.kubectl("apply", "-f", str(ROOT / "deploy" / "namespace.yaml"))
    values = ["--set", f"replicas={replicas},image.pullPolicy=Never"]
    chart = str(ROOT / "charts" / "streamtopology")
    _helm(cluster, "install", "streamtopology", chart, *values, "--wait", "--timeout=180s")


def _uninstall(cluster: Cluster) -> None:
    _helm(cluster, "uninstall", "streamtopology", "--wait", "--timeout=60s")


def _helm(cluster: Cluster, *arguments: str) -> str:
    helm = [str(binary("helm")), f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}"]
    return run([*helm, *arguments], HELM_SECONDS)
