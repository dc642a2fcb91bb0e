"""Who may do what: the accounts of driver and executors, the driver's Role, Spark's secret, who may talk to whom."""

from __future__ import annotations

import base64

from streamtopology.operator import names
from streamtopology.operator.resources.objects import Object, Owner, owned
from streamtopology.routing.topology import Topology


def driver_account(owner: Owner) -> Object:
    return owned(owner, names.SERVICE_ACCOUNT, names.driver(owner.name), "driver", automountServiceAccountToken=True)


def executor_account(owner: Owner) -> Object:
    """Executors never talk to the API server."""
    name = names.executor_account(owner.name)
    return owned(owner, names.SERVICE_ACCOUNT, name, "executor", automountServiceAccountToken=False)


def driver_role(owner: Owner) -> Object:
    """Spark watches its executors' pods and labels them; the driver watches its routing ConfigMap, no other."""
    routing = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [names.routing(owner.name)]}
    return owned(
        owner, names.ROLE, names.driver(owner.name), "driver",
        rules=[
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "patch"]},
            {**routing, "verbs": ["get", "list", "watch"]},
        ],
    )  # fmt: skip


def driver_role_binding(owner: Owner, topology: Topology) -> Object:
    """For the account that the driver runs under, the user's own where there is one."""
    account = topology.driver.pod.service_account_name or names.driver(owner.name)
    return owned(
        owner, names.ROLE_BINDING, names.driver(owner.name), "driver",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": names.driver(owner.name)},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": owner.namespace}],
    )  # fmt: skip


def spark_secret(owner: Owner, text: str) -> Object:
    """`text` is made once, at random. Spark encodes what it reads from a file, so executors are given it encoded."""
    encoded = base64.b64encode(text.encode())
    return owned(
        owner, names.SECRET, names.spark_secret(owner.name), "driver",
        type="Opaque",
        data={"secret": encoded.decode(), "secret-base64": base64.b64encode(encoded).decode()},
    )  # fmt: skip


def network_policy(owner: Owner) -> Object:
    """Spark's ports are for the topology's own pods; the driver's HTTP, which changes nothing, is for all who scrape it."""
    own_pods = {"podSelector": {"matchLabels": names.labels(owner.name)}}
    return owned(
        owner, names.NETWORK_POLICY, owner.name, "driver",
        spec={
            "podSelector": {"matchLabels": names.labels(owner.name)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [own_pods]}, {"ports": [{"port": names.DRIVER_HTTP_PORT, "protocol": "TCP"}]}],
        },
    )  # fmt: skip
