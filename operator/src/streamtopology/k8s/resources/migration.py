"""The pre-copy Job: it copies the state that an epoch moves before the switch."""

from __future__ import annotations

from dataclasses import replace

from streamtopology.contract import environment as variables
from streamtopology.contract.pods import PRECOPY_SECONDS, driver_name
from streamtopology.k8s import names
from streamtopology.k8s.resources.objects import Object, Owner, from_field, owned, pod_template, with_pull_secrets
from streamtopology.topology import Migration, Topology, format_cpu, format_memory

# Pods that the Job starts before it gives up; each continues where the one before stopped.
TRIES = 4

# At most. It asks for little CPU: on a node that the executors fill, its pod would wait, and the epoch with it.
REQUESTED_CPU = 0.1

# The time for which an ended Job is kept.
KEEP_SECONDS = 3600


def job(owner: Owner, topology: Topology, image: str, user: int | None, epoch: int) -> Object:
    """The Job, with the driver's pod settings: it reads and writes the same checkpoint. Only its end is not the driver's."""
    template = pod_template(
        owner,
        "migration",
        _container(owner, topology, image, epoch),
        replace(with_pull_secrets(topology, topology.driver.pod), termination_grace_seconds=None),
        user=user,
        annotations={},
        storage_bytes=topology.migration.storage_bytes,
        serviceAccountName=driver_name(owner.name),
        automountServiceAccountToken=False,
        restartPolicy="Never",
        terminationGracePeriodSeconds=10,
    )
    return owned(
        owner,
        names.JOB,
        names.migration(owner.name, epoch),
        "migration",
        labels=topology.driver.pod.labels,
        spec={
            "backoffLimit": TRIES - 1,
            "activeDeadlineSeconds": PRECOPY_SECONDS,
            "ttlSecondsAfterFinished": KEEP_SECONDS,
            "template": template,
        },
    )


def _container(owner: Owner, topology: Topology, image: str, epoch: int) -> Object:
    container: Object = {
        "name": "migrate",
        "image": image,
        "args": ["streamtopology", "migrate", "--checkpoint", topology.checkpoint or "", "--epoch", str(epoch)],
        "env": [
            {"name": variables.TOPOLOGY, "value": owner.name},
            {"name": variables.NAMESPACE, "value": owner.namespace},
            from_field(variables.POD_NAME, "metadata.name"),
        ],
        "resources": container_resources(topology.migration),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if topology.image_pull_policy:
        container["imagePullPolicy"] = topology.image_pull_policy
    return container


def container_resources(limits: Migration) -> Object:
    """Requests and limits of a Job that copies state."""
    memory, requested = format_memory(limits.memory_bytes), format_cpu(min(limits.cpu, REQUESTED_CPU))
    return {"requests": {"cpu": requested, "memory": memory}, "limits": {"cpu": format_cpu(limits.cpu), "memory": memory}}
