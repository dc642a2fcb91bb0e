"""A real kube-apiserver and etcd on loopback ports of their own: no root, ready in about 4 s, gone with their owner."""

from __future__ import annotations

import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from support.kube import control_plane
from support.kube.binaries import API, require
from support.kube.cluster import Cluster
from support.kube.processes import Processes

_READY_SECONDS = 60
_IMPATIENT = [
    "--controllers=*,-node-lifecycle-controller",  # nobody renews the lease of the fake kubelet's node
    "--horizontal-pod-autoscaler-sync-period=1s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
]


class ApiServer(Cluster):
    """A context manager: a cluster's API without nodes, to which the caller is admin.

    Nothing makes pods of Deployments or collects garbage outside `controllers`; nothing runs pods: see `FakeKubelet`.
    `folder` has kubeconfigs, certificates and a log for each process, and is removed at the end.
    Raises `KubernetesMissing` and `ProcessFailed`.
    """

    def __init__(self) -> None:
        require(API)
        addresses = control_plane.Addresses("127.0.0.1", *_free_ports(3))
        super().__init__(Path(tempfile.mkdtemp(prefix="kube-apiserver-")), addresses.url)
        self._processes = Processes(self.folder)
        self._etcd = control_plane.etcd(addresses, self.folder / "etcd")
        self._api_server = control_plane.api_server(addresses, self.pki)

    def __enter__(self) -> Self:
        try:
            self._processes.start("etcd", self._etcd)
            self.start()
        except BaseException:
            self._processes.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.end()

    def stop(self) -> None:
        """The API server ends: connections are refused. etcd keeps what it has."""
        self._processes.stop("kube-apiserver")

    def start(self) -> None:
        """Start it (again) at the same address and wait until it is ready. Watches from before have expired then."""
        self._processes.start("kube-apiserver", self._api_server)
        self._processes.wait_until("kube-apiserver", self.answers, _READY_SECONDS)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Inside, the API server answers nothing, but connections stay open (SIGSTOP), as when its machine hangs."""
        self._processes.signal("kube-apiserver", signal.SIGSTOP)
        try:
            yield
        finally:
            self._processes.signal("kube-apiserver", signal.SIGCONT)
            self._processes.wait_until("kube-apiserver", self.answers, _READY_SECONDS)

    @contextmanager
    def controllers(self) -> Iterator[None]:
        """Inside, the real kube-controller-manager runs: pods of Deployments, StatefulSets, Jobs; garbage collection; HPA."""
        kubeconfig = self.folder / "kube-controller-manager.kubeconfig"
        self.pki.kubeconfig_by_certificate(kubeconfig, self.url, control_plane.CONTROLLER_MANAGER)
        command = control_plane.controller_manager(kubeconfig, self.pki)
        self._processes.start("kube-controller-manager", [*command, *_IMPATIENT])
        try:
            yield
        finally:
            self._processes.stop("kube-controller-manager")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
