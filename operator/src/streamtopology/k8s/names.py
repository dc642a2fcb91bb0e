"""Every name that other programs see: kinds, labels, annotations, object names.

Those that the processes in the pods use, too, are in `streamtopology.contract.pods`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamtopology.topology import API_VERSION, KIND

# The field manager of server-side apply, the value of `app.kubernetes.io/managed-by`, and the reporter of events.
MANAGER = "streamtopology-operator"

FINALIZER = "streamtopology.dev/drain"
PAUSE = "streamtopology.dev/pause"
# Annotation of a topology: the release of the operator that serves it, by its namespace.
SERVED_BY = "streamtopology.dev/served-by"
# Label of a snapshot that a schedule made: the uid of the topology. Its annotation: the topology's status.batch by then.
SCHEDULE = "streamtopology.dev/schedule"
SCHEDULED_AT_BATCH = "streamtopology.dev/scheduled-at-batch"
# Annotation of the Lease: the Helm release whose replica holds it.
RELEASE = "streamtopology.dev/release"
RESTART_GENERATION = "streamtopology.dev/restart-generation"
# Annotation of every owned object: the digest of its applied content. Equal digests mean nothing to do.
CONTENT = "streamtopology.dev/content"
# Annotation of pods: the digest of their template without its resources, which change in place.
POD_CONTENT = "streamtopology.dev/pod-content"

# Annotation that `kubectl rollout restart` gives a pod template.
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
# Annotation of StatefulSets: the digest of the manifest's pod settings that the template was made of.
POD_SETTINGS = "streamtopology.dev/pod-settings"
# Annotation of Deployment and StatefulSets: the image as we wrote it; a webhook may have written another into the pods.
IMAGE = "streamtopology.dev/image"
# Annotation of the driver's Deployment: the run that has come to its end (decide/completion.py).
COMPLETED = "streamtopology.dev/completed"

CLASS = "streamtopology.dev/class"
# Label of a StatefulSet's pods, by its controller: the template that they were made of.
POD_REVISION = "controller-revision-hash"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"


@dataclass(frozen=True)
class Kind:
    """A kind of object and its path at the API server."""

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
SNAPSHOT = Kind(API_VERSION, f"{KIND}Snapshot", "streamtopologysnapshots")
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
ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")

# The kinds that a topology owns, in the order in which they are created.
OWNED = (
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    NETWORK_POLICY,
    DISRUPTION_BUDGET,
    CONFIG_MAP,
    STATEFUL_SET,
    DEPLOYMENT,
    JOB,
)

BY_KIND = {kind.kind: kind for kind in (*OWNED, POD, TOPOLOGY, SNAPSHOT)}


def labels(topology: str, component: str | None = None, class_name: str | None = None) -> dict[str, str]:
    """The labels of an owned object, and the selector of its pods."""
    chosen = {"app.kubernetes.io/name": "streamtopology", INSTANCE: topology, MANAGED_BY: MANAGER}
    if component:
        chosen[COMPONENT] = component
    if class_name:
        chosen[CLASS] = class_name
    return chosen


def selector(chosen: Mapping[str, str]) -> str:
    """Labels as the query of a list or a watch."""
    return ",".join(f"{name}={value}" for name, value in sorted(chosen.items()))


def spark_secret(topology: str) -> str:
    return f"{topology}-spark"


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


def snapshot(resource: str) -> str:
    """The Job of a StreamTopologySnapshot."""
    return f"{resource}-snapshot"
