"""The chart on a cluster, by Helm, as docs/run/install.md says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
    cluster.kubectl("apply", "-f", str(ROOT / "deploy" / "namespace.yaml"))
    values = ["--set", f"replicas={replicas},image.pullPolicy=Never"]
    chart = str(ROOT / "charts" / "streamtopology")
    _helm(cluster, "install", "streamtopology", chart, *values, "--wait", "--timeout=180s")
    try:
        yield
    finally:
        _helm(cluster, "uninstall", "streamtopology", "--wait", "--timeout=60s")


class KeptOperator:
    """The operator of `installed`, which stays from one test to the next until one wants it away."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._installed: ExitStack | None = None

    def install(self) -> None:
        """Have it installed."""
        if self._installed is None:
            with ExitStack() as stack:
                stack.enter_context(installed(self._cluster))
                self._installed = stack.pop_all()

    def remove(self) -> None:
        """Have no operator, for a test that installs one in its own way."""
        if self._installed is not None:
            installed_before, self._installed = self._installed, None
            installed_before.close()


def checked(cluster: Cluster) -> str:
    """The output of `helm test` on what `installed` has installed."""
    return _helm(cluster, "test", "streamtopology", "--logs", "--timeout=180s")


def _helm(cluster: Cluster, *arguments: str) -> str:
    helm = [str(binary("helm")), f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}"]
    return run([*helm, *arguments], HELM_SECONDS)
