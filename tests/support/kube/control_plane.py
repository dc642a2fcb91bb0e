"""Command lines of Kubernetes' control plane, as the API server alone and as the node's tests run it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from support.kube.binaries import binary
from support.kube.pki import Pki

SERVICE_ADDRESSES = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"  # the first of them: Kubernetes' own Service `kubernetes`
POD_ADDRESSES = "10.88.0.0/24"
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"

# Kubernetes' defaults of 20 requests a second make a namespace's ServiceAccount wait for 5 s.
_FAST_CLIENT = ["--kube-api-qps=300", "--kube-api-burst=300"]
_ALONE = ["--leader-elect=false", "--profiling=false", "--v=1"]


@dataclass(frozen=True)
class Addresses:
    """The addresses of the control plane: the API server at `host`, etcd on the loopback interface."""

    host: str
    api_port: int
    etcd_port: int
    etcd_peer_port: int

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.api_port}"

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self.etcd_port}"


def etcd(addresses: Addresses, data: Path) -> list[str]:
    """etcd that does not wait for the disk: its data live as long as the test."""
    peer = f"http://127.0.0.1:{addresses.etcd_peer_port}"
    return [
        str(binary("etcd")), f"--data-dir={data}", "--unsafe-no-fsync", "--log-level=warn",
        f"--listen-client-urls={addresses.etcd_url}", f"--advertise-client-urls={addresses.etcd_url}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
    ]  # fmt: skip


def api_server(addresses: Addresses, pki: Pki) -> list[str]:
    """RBAC, service account tokens, admission and aggregation as on a cluster; makes its certificates in `pki`."""
    names = ["localhost", *(f"kubernetes.default{end}" for end in ("", ".svc", ".svc.cluster.local"))]
    hosts = {addresses.host, "127.0.0.1", API_SERVICE_ADDRESS, *names}
    serving, serving_key = pki.certificate("apiserver", "kube-apiserver", hosts=hosts)
    kubelet, kubelet_key = pki.certificate("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters")
    proxy, proxy_key = pki.certificate("front-proxy", "front-proxy")
    return [
        str(binary("kube-apiserver")), f"--etcd-servers={addresses.etcd_url}",
        f"--bind-address={addresses.host}", f"--advertise-address={addresses.host}", f"--secure-port={addresses.api_port}",
        f"--tls-cert-file={serving}", f"--tls-private-key-file={serving_key}", f"--client-ca-file={pki.ca}",
        f"--service-account-key-file={pki.service_account_public_key}",
        f"--service-account-signing-key-file={pki.service_account_key}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={SERVICE_ADDRESSES}", "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
        f"--kubelet-client-certificate={kubelet}", f"--kubelet-client-key={kubelet_key}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={pki.ca}", "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={proxy}", f"--proxy-client-key-file={proxy_key}",
        "--profiling=false", "--v=1",
        # The Service `kubernetes` may not lead to a loopback address.
        *(["--endpoint-reconciler-type=none"] if addresses.host.startswith("127.") else []),
    ]  # fmt: skip


def controller_manager(kubeconfig: Path, pki: Pki) -> list[str]:
    return [
        str(binary("kube-controller-manager")), *_clients(kubeconfig), *_FAST_CLIENT, *_ALONE, "--secure-port=0",
        f"--service-account-private-key-file={pki.service_account_key}", f"--root-ca-file={pki.ca}",
        "--use-service-account-credentials=true", f"--cluster-cidr={POD_ADDRESSES}", "--allocate-node-cidrs=false",
    ]  # fmt: skip


def scheduler(kubeconfig: Path) -> list[str]:
    return [str(binary("kube-scheduler")), *_clients(kubeconfig), *_FAST_CLIENT, *_ALONE, "--secure-port=0"]


def _clients(kubeconfig: Path) -> list[str]:
    return [f"--{purpose}kubeconfig={kubeconfig}" for purpose in ("", "authentication-", "authorization-")]
