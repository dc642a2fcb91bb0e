"""Every name that other programs see: kinds, labels, annotations, object names. One place, so that they agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamtopology.routing.topology import API_VERSION, KIND

MANAGER = "streamtopology-operator"
"""Field manager of server-side apply, value of `app.kubernetes.io/managed-by`, and reporter of events."""

FINALIZER = "streamtopology.dev/drain"
PAUSE = "streamtopology.dev/pause"
RESTART_GENERATION = "streamtopology.dev/restart-generation"
CONTENT = "streamtopology.dev/content"
"""Annotation of every owned object: digest of what was applied, so that equal means nothing to do."""
POD_CONTENT = "streamtopology.dev/pod-content"
"""Annotation of pods: digest of their template but for its resources, which change in place."""

CLASS = "streamtopology.dev/class"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"

DRIVER_HTTP_PORT = 9090
RPC_PORT = 7078
BLOCKS_PORT = 7079


@dataclass(frozen=True)
class Kind:
    """A kind of objects and the path under which the API server keeps them."""

    api_version: str
    kind: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path; without a namespace that of all namespaces, without a name that of the collection."""
        parts = ["api" if "/" not in self.api_version else "apis", self.api_version]
        if namespace:
            parts += ["namespaces", namespace]
        parts += [self.plural, *([name] if name else []), *([subresource] if subresource else [])]
        return "/" + "/".join(parts)


TOPOLOGY = Kind(API_VERSION, KIND, "streamtopologies")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SECRET = Kind("v1", "Secret", "secrets")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
POD = Kind("v1", "Pod", "pods")
EVENT = Kind("v1", "Event", "events")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
STATEFUL_SET = Kind("apps/v1", "StatefulSet", "statefulsets")
JOB = Kind("batch/v1", "Job", "jobs")
DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")

OWNED = (
    SERVICE_ACCOUNT, ROLE, ROLE_BINDING, SECRET, SERVICE, NETWORK_POLICY, DISRUPTION_BUDGET,
    CONFIG_MAP, STATEFUL_SET, DEPLOYMENT, JOB,
)  # fmt: skip
"""The kinds that a topology owns, in the order in which they are made."""

BY_KIND = {kind.kind: kind for kind in (*OWNED, POD, TOPOLOGY)}


def labels(topology: str, component: str | None = None, class_name: str | None = None) -> dict[str, str]:
    """The labels of an owned object, and the selector of its pods."""
    chosen = {"app.kubernetes.io/name": "streamtopology", INSTANCE: topology, MANAGED_BY: MANAGER}
    if component:
        chosen[COMPONENT] = component
    if class_name:
        chosen[CLASS] = class_name
    return chosen


def spark_labels(topology: str) -> dict[str, str]:
    """The labels by which Spark finds the pods of its executors: one without them is dropped soon after it registers."""
    return {"spark-app-selector": f"streamtopology-{topology}", "spark-role": "executor"}


def selector(chosen: Mapping[str, str]) -> str:
    """Labels as the query of a list or a watch."""
    return ",".join(f"{name}={value}" for name, value in sorted(chosen.items()))


def routing(topology: str) -> str:
    return f"{topology}-routing"


def spark_secret(topology: str) -> str:
    return f"{topology}-spark"


def driver(topology: str) -> str:
    return f"{topology}-driver"


def executors(topology: str) -> str:
    """The headless Service of all executors."""
    return f"{topology}-executors"


def executor_account(topology: str) -> str:
    return f"{topology}-executor"


def executor_class(topology: str, class_name: str) -> str:
    """The StatefulSet of a class; its pods are this and their ordinal."""
    return f"{topology}-{class_name}"


def migration(topology: str, epoch: int) -> str:
    return f"{topology}-migrate-{epoch}"
