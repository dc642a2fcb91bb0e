"""The Job of a process that works on a checkpoint beside the driver: a pre-copy, a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamtopology.contract import environment as variables
from streamtopology.contract.pods import driver_name
from streamtopology.k8s import names
from streamtopology.k8s.resources.objects import Object, Owner, from_field, owned, pod_template, with_pull_secrets
from streamtopology.topology import Migration, Topology, format_cpu, format_memory

# Pods that the Job starts before it gives up; each continues where the one before stopped.
TRIES = 4

# At most. It asks for little CPU: on a node that the executors fill, its pod would wait, and who waits for the copy with it.
REQUESTED_CPU = 0.1


def checkpoint_job(
    owner: Owner, topology: Topology, user: int | None, name: str, component: str, container: Object, **spec: object
) -> Object:
    """The Job, with the driver's pod settings: it reads and writes the same checkpoint. Only its end is not the driver's.

    `spec`: the fields of the Job's own besides the pod template and the number of tries.
    """
    template = pod_template(
        owner,
        component,
        container,
        replace(with_pull_secrets(topology, topology.driver.pod), termination_grace_seconds=None),
        user=user,
        annotations={},
        storage_bytes=topology.migration.storage_bytes,
        serviceAccountName=driver_name(owner.topology),
        automountServiceAccountToken=False,
        restartPolicy="Never",
        terminationGracePeriodSeconds=10,
    )
    return owned(
        owner,
        names.JOB,
        name,
        component,
        labels=topology.driver.pod.labels,
        spec={"backoffLimit": TRIES - 1, "template": template, **spec},
    )


def copying_container(owner: Owner, topology: Topology, image: str, name: str, command: Sequence[str]) -> Object:
    """The container that runs `streamtopology` with this command."""
    container: Object = {
        "name": name,
        "image": image,
        "args": ["streamtopology", *command],
        "env": [
            {"name": variables.TOPOLOGY, "value": owner.topology},
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
