"""Access: the accounts of driver and executors, the driver's Role, Spark's secret, the network policy."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from streamtopology.contract.pods import HTTP_PORT, driver_name, routing_map_name
from streamtopology.k8s import names
from streamtopology.k8s.resources.objects import Object, Owner, owned
from streamtopology.topology import Topology


def driver_account(owner: Owner) -> Object:
    return owned(owner, names.SERVICE_ACCOUNT, driver_name(owner.name), "driver", automountServiceAccountToken=True)


def executor_account(owner: Owner) -> Object:
    """The executors' account; they never call the API server."""
    name = names.executor_account(owner.name)
    return owned(owner, names.SERVICE_ACCOUNT, name, "executor", automountServiceAccountToken=False)


def driver_role(owner: Owner, executor_pods: Sequence[str]) -> Object:
    """The driver's rights: Spark watches pods and labels its executors', the driver watches its own routing ConfigMap.

    RBAC knows names and no labels: what can be allowed for one pod is allowed for `executor_pods` (at least one) alone.
    """
    routing = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [routing_map_name(owner.name)]}
    return owned(
        owner,
        names.ROLE,
        driver_name(owner.name),
        "driver",
        rules=[
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
            {"apiGroups": [""], "resources": ["pods"], "resourceNames": list(executor_pods), "verbs": ["patch"]},
            {**routing, "verbs": ["get", "list", "watch"]},
        ],
    )


def driver_role_binding(owner: Owner, topology: Topology) -> Object:
    """Bind the Role to the account that the driver runs under: the user's own where there is one."""
    account = topology.driver.pod.service_account_name or driver_name(owner.name)
    return owned(
        owner,
        names.ROLE_BINDING,
        driver_name(owner.name),
        "driver",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": driver_name(owner.name)},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": owner.namespace}],
    )


def spark_secret(owner: Owner, text: str) -> Object:
    """The secret of `text`, which is drawn once. Spark encodes what it reads from a file, so executors get it encoded."""
    encoded = base64.b64encode(text.encode())
    return owned(
        owner,
        names.SECRET,
        names.spark_secret(owner.name),
        "driver",
        type="Opaque",
        data={"secret": encoded.decode(), "secret-base64": base64.b64encode(encoded).decode()},
    )


def network_policy(owner: Owner) -> Object:
    """Spark's ports are open to the topology's own pods; the driver's HTTP, which is read-only, to everyone."""
    own_pods = {"podSelector": {"matchLabels": names.labels(owner.name)}}
    return owned(
        owner,
        names.NETWORK_POLICY,
        owner.name,
        "driver",
        spec={
            "podSelector": {"matchLabels": names.labels(owner.name)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [own_pods]}, {"ports": [{"port": HTTP_PORT, "protocol": "TCP"}]}],
        },
    )
