"""Configuration files of a node's parts: containerd, its network, DNS, kubelet and kube-proxy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from support.kube.control_plane import POD_ADDRESSES
from support.kube.pki import Pki

ADDRESS = "10.77.0.1"  # of the node, in a network of its own
NAME = "node0"
PAUSE_IMAGE = "localhost/pause:1"


def containerd(folder: Path, runc: str) -> str:
    return f"""version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{folder}/containerd.sock"
[ttrpc]
  address = "{folder}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  disable_apparmor = true
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{runc}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""


def network(folder: Path) -> str:
    """CNI: a bridge for the pods, and their ports on the node."""
    addresses = {
        "type": "host-local", "ranges": [[{"subnet": POD_ADDRESSES}]], "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": f"{folder}/cni-addresses",
    }  # fmt: skip
    bridge = {
        "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": addresses,
    }  # fmt: skip
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]})


def dns(kubeconfig: Path) -> str:
    """CoreDNS on the node's address. Answers are kept for 2 s, so that a pod that moved is found."""
    return f""".:53 {{
  bind {ADDRESS}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 2
  }}
  cache 2
}}
"""


def kubelet(folder: Path, pki: Pki, cgroup: str) -> str:
    certificate, key = pki.certificate("kubelet-server", NAME, hosts=[ADDRESS, NAME])
    return _yaml(
        apiVersion="kubelet.config.k8s.io/v1beta1",
        kind="KubeletConfiguration",
        failCgroupV1=False,  # 1.35 refuses cgroup v1 by default
        cgroupDriver="cgroupfs",
        cgroupRoot=f"/{cgroup}",
        containerRuntimeEndpoint=f"unix://{folder}/containerd.sock",
        address=ADDRESS,
        authentication={"x509": {"clientCAFile": str(pki.ca)}, "anonymous": {"enabled": False}},
        tlsCertFile=str(certificate),
        tlsPrivateKeyFile=str(key),
        oomScoreAdj=0,  # negative values need CAP_SYS_RESOURCE, which root in a container may lack
        maxOpenFiles=20000,
        failSwapOn=False,
        clusterDNS=[ADDRESS],
        clusterDomain="cluster.local",
        resolvConf=f"{folder}/resolv.conf",
        podLogsDir=f"{folder}/pod-logs",
        healthzPort=0,
        # The machine's disk is the developer's: the node neither collects images nor evicts pods until it is nearly full.
        imageGCHighThresholdPercent=100,
        imageGCLowThresholdPercent=99,
        evictionHard={"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "200Mi"},
        enforceNodeAllocatable=["pods"],
    )


def kube_proxy(kubeconfig: Path) -> str:
    return _yaml(
        apiVersion="kubeproxy.config.k8s.io/v1alpha1",
        kind="KubeProxyConfiguration",
        mode="nftables",
        clientConnection={"kubeconfig": str(kubeconfig)},
        clusterCIDR=POD_ADDRESSES,
        hostnameOverride=NAME,
        bindAddress=ADDRESS,
        oomScoreAdj=0,
        conntrack={"maxPerCore": 0, "min": 0},  # the limit is the machine's
    )


def _yaml(**values: Any) -> str:
    return yaml.safe_dump(values, sort_keys=False)
