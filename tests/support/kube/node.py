"""A whole Kubernetes node in namespaces of its own: containers that really run, with CPU limits, DNS and Services."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from kubernetes import client

from support.kube import control_plane, node_files
from support.kube.binaries import NODE, binary, require
from support.kube.cluster import Cluster
from support.kube.images import write_image
from support.kube.node_files import ADDRESS
from support.kube.processes import Processes, ProcessFailed, run

BUSYBOX_IMAGE = "localhost/busybox:1"

_RELAY = Path(__file__).parent / "relay.py"
_READY_SECONDS = 60
_IMPORT_SECONDS = 300
_CGROUPS = Path("/sys/fs/cgroup")
# What the parts of a node leave in fixed places stays in the node's own, and so do the settings of the machine's kernel that
# kubelet changes: it finds the values that it wants. A bridge without members holds the node's address; its default route
# leads nowhere, but kubelet asks for one.
_SURROUNDINGS = f"""
mount --make-rshared /
mount -t tmpfs tmpfs /run
for place in /var/lib/kubelet /var/lib/cni; do
    mkdir -p $place
    mount -t tmpfs tmpfs $place
done
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \\
        kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    wanted=/run/settings/${{setting%=*}}
    mkdir -p $(dirname $wanted)
    echo ${{setting#*=}} >$wanted
    mount --bind $wanted /proc/sys/${{setting%=*}}
done
ip link set lo up
ip link add node0 type bridge
ip addr add {ADDRESS}/24 dev node0
ip link set node0 up
ip route add default dev node0
echo 1 >/proc/sys/net/ipv4/ip_forward
for table in iptables ip6tables; do
    ! [ -e /proc/sys/net/bridge/bridge-nf-call-$table ] || echo 1 >/proc/sys/net/bridge/bridge-nf-call-$table
done
"""
# Images are unpacked to 40,000 files. Where the machine's disk discards what is freed, their removal takes more than a minute:
# they are in a file system of their own, which goes with its one file. A machine without loop devices does without it.
_DISK = """
mkdir {folder}/containerd
{{
    losetup --find && truncate --size=32G {folder}/disk && mkfs.ext4 -q -O ^has_journal {folder}/disk &&
        mount -o loop,barrier=0 {folder}/disk {folder}/containerd
}} >/dev/null 2>&1 || true
"""


class NodeUnsupported(Exception):
    """This machine cannot run a node; the text says what is missing."""


class Node(Cluster):
    """A context manager: a cluster of one node. Ready in about 10 s; several may run at the same time.

    All of it lives in a process, mount and network namespace below one process: when that ends, so does everything, and the
    keeper removes cgroups and `folder`, also when the owner is killed. `folder` has a log for each part while it runs.
    The API server is reached from the machine at `url`, other ports of pods and Services by `forward`.
    Raises `NodeUnsupported`, `KubernetesMissing` and `ProcessFailed`.
    """

    def __init__(self) -> None:
        require(NODE)
        _check_machine()
        self._name = f"kube-node-{uuid.uuid4().hex[:8]}"
        folder = Path(tempfile.gettempdir()) / self._name
        folder.mkdir()
        self._listener = _listener()
        super().__init__(folder, f"https://127.0.0.1:{self._listener.getsockname()[1]}")
        self._cgroups = [root / self._name for root in _cgroup_roots()]
        self._processes = Processes(folder, self._cgroups)
        self._enter: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._bring_up()
        except BaseException:
            self._processes.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.end()

    def import_image(self, archive: Path) -> None:
        """Import the images of a docker or OCI archive; pods name them with imagePullPolicy Never or IfNotPresent."""
        run([*self._ctr(), "images", "import", str(archive)], _IMPORT_SECONDS)

    def name_image(self, known: str, name: str) -> None:
        """Give an image another name."""
        run([*self._ctr(), "images", "tag", "--force", known, name], _IMPORT_SECONDS)

    def forward(self, host: str, port: int) -> int:
        """A port of 127.0.0.1 on this machine that leads to `host` (the address of a pod or Service) and `port` in the node."""
        listener = _listener()
        local = listener.getsockname()[1]
        self._relay(listener, host, port)
        return local

    def story(self) -> str:
        """Pods, events and the last lines of each part's log: what to look at when a test fails."""
        try:
            seen = self.kubectl("get", "pods,events", "--all-namespaces", "--output=wide")
        except ProcessFailed as problem:
            seen = str(problem)
        logs = (f"--- {log.name}\n{self._processes.log_end(log.stem)}" for log in sorted(self.folder.glob("*.log")))
        return "\n".join([seen, *logs])

    # Bringing it up, from the namespaces to a node that is Ready

    def _bring_up(self) -> None:
        self._start_namespaces()
        self._start_containerd()
        self._start_control_plane()
        self._start_node()
        self._processes.wait_until("kubelet", self._is_ready, _READY_SECONDS)

    def _start_namespaces(self) -> None:
        """One process under which all of the node lives; it reaps orphans, as the first process of a machine does."""
        for cgroup in self._cgroups:
            cgroup.mkdir()
            _weigh(cgroup)
        namespaces = ["--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        ready = self.folder / "namespaces-ready"
        script = f"set -e\n{_SURROUNDINGS}{_DISK.format(folder=self.folder)}touch {ready}\nexec {binary('pause')}"
        outside = self._processes.start("namespaces", ["unshare", *namespaces, "sh", "-c", script])
        self._processes.wait_until("namespaces", ready.exists, 10)
        first = Path(f"/proc/{outside}/task/{outside}/children").read_text().split()[0]
        self._enter = ["nsenter", "--target", first, "--mount", "--net", "--pid", "--"]

    def _start_containerd(self) -> None:
        (self.folder / "cni").mkdir()
        (self.folder / "cni" / "10-pods.conflist").write_text(node_files.network(self.folder))
        runc = shutil.which("runc")
        assert runc is not None
        config = self._write("containerd.toml", node_files.containerd(self.folder, runc))
        self._start("containerd", ["containerd", "--config", str(config)])

        def answers() -> bool:
            try:
                run([*self._ctr(), "version"], 10)
            except ProcessFailed:
                return False
            return True

        self._processes.wait_until("containerd", answers, _READY_SECONDS)
        archive = self.folder / "image.tar"
        write_image(archive, node_files.PAUSE_IMAGE, {"/pause": binary("pause")}, entrypoint=["/pause"])
        self.import_image(archive)
        busybox = str(shutil.which("busybox"))
        links = {f"/bin/{applet}": "busybox" for applet in run([busybox, "--list"], 10).split() if applet != "busybox"}
        write_image(archive, BUSYBOX_IMAGE, {"/bin/busybox": Path(busybox)}, links)
        self.import_image(archive)

    def _start_control_plane(self) -> None:
        addresses = control_plane.Addresses(ADDRESS, 6443, 2379, 2380)
        self._start("etcd", control_plane.etcd(addresses, self.folder / "etcd"))
        self._start("kube-apiserver", control_plane.api_server(addresses, self.pki))
        self._relay(self._listener, ADDRESS, addresses.api_port)
        self._processes.wait_until("kube-apiserver", self.answers, _READY_SECONDS)
        manager = self._kubeconfig("kube-controller-manager", control_plane.CONTROLLER_MANAGER)
        self._start("kube-controller-manager", control_plane.controller_manager(manager, self.pki))
        self._start("kube-scheduler", control_plane.scheduler(self._kubeconfig("kube-scheduler", control_plane.SCHEDULER)))

    def _start_node(self) -> None:
        self._write("resolv.conf", "")
        corefile = self._write("Corefile", node_files.dns(self._kubeconfig("coredns", "coredns", "system:masters")))
        self._start("coredns", [str(binary("coredns")), "-conf", str(corefile)])
        config = self._write("kubelet.yaml", node_files.kubelet(self.folder, self.pki, self._name))
        kubeconfig = self._kubeconfig("kubelet", f"system:node:{node_files.NAME}", "system:nodes")
        self._start("kubelet", [
            str(binary("kubelet")), f"--config={config}", f"--kubeconfig={kubeconfig}", f"--node-ip={ADDRESS}",
            f"--hostname-override={node_files.NAME}", f"--root-dir={self.folder}/kubelet", "--v=2",
        ])  # fmt: skip
        config = self._write("kube-proxy.yaml", node_files.kube_proxy(self._kubeconfig("kube-proxy", "system:kube-proxy")))
        self._start("kube-proxy", [str(binary("kube-proxy")), f"--config={config}", "--v=2"])

    def _is_ready(self) -> bool:
        with self.client() as api:
            nodes = client.CoreV1Api(api).list_node().items
        conditions = [each for node in nodes if node.status for each in node.status.conditions or []]
        return any(each.type == "Ready" and each.status == "True" for each in conditions)

    # Small steps

    def _start(self, name: str, command: Sequence[str]) -> None:
        self._processes.start(name, [*self._enter, *command])

    def _ctr(self) -> list[str]:
        return [*self._enter, "ctr", "--address", f"{self.folder}/containerd.sock", "--namespace", "k8s.io"]

    def _relay(self, listener: socket.socket, host: str, port: int) -> None:
        command = [*self._enter, sys.executable, "-S", str(_RELAY), str(listener.fileno()), host, str(port)]
        self._processes.start(f"relay-{listener.getsockname()[1]}", command, keep=[listener.fileno()])
        listener.close()

    def _kubeconfig(self, name: str, user: str, group: str = "") -> Path:
        return self.pki.kubeconfig_by_certificate(self.folder / f"{name}.kubeconfig", f"https://{ADDRESS}:6443", user, group)

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise NodeUnsupported("a Kubernetes node runs as root; you are not (`make test` needs no root)")
    commands = ("containerd", "ctr", "runc", "nft", "iptables", "conntrack", "ip", "unshare", "nsenter", "busybox")
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        raise NodeUnsupported(f"not installed: {', '.join(missing)}: run scripts/node-packages.sh")
    if not _cgroup_roots():
        raise NodeUnsupported(f"no cgroups that we may write to in {_CGROUPS}")


def _cgroup_roots() -> list[Path]:
    """Version 2's one hierarchy, or each of version 1's."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS] if os.access(_CGROUPS, os.W_OK) else []
    return [found.parent for found in _CGROUPS.glob("*/cgroup.procs") if os.access(found.parent, os.W_OK)]


def _weigh(cgroup: Path) -> None:
    """Let a node's pods weigh as much as the CPUs that they are promised, not as a single process of a busy machine."""
    for file, one_cpu in (("cpu.shares", 1024), ("cpu.weight", 100)):  # of cgroups 1 and 2
        if (cgroup / file).exists():
            (cgroup / file).write_text(str(one_cpu * (os.cpu_count() or 1)))


def _listener() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener
