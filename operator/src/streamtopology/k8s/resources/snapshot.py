"""The Job of a StreamTopologySnapshot: it copies the topology's checkpoint as of its newest commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from streamtopology.contract import environment as variables
from streamtopology.contract.pods import driver_name
from streamtopology.k8s import names
from streamtopology.k8s.resources.migration import container_resources
from streamtopology.k8s.resources.objects import Object, Owner, from_field, owned, pod_template, with_pull_secrets
from streamtopology.topology import Topology

# Pods that the Job starts before it gives up; each continues the copy of the one before.
TRIES = 4

# The time that a copy may take, tries and waiting for room together: its hold on the checkpoint's files lasts as long.
DEADLINE_SECONDS = 86_400

# The pod's report of batch and bytes: the kubelet puts it into the pod's status.
REPORT = "/dev/termination-log"


def job(
    owner: Owner,
    topology: Topology,
    image: str,
    user: int | None,
    checkpoint: str,
    to: str,
    dropped: Iterable[tuple[str, str]] = (),
) -> Object:
    """The Job that copies `checkpoint` to `to`, with the driver's pod settings. `owner`: the snapshot; it goes with it.

    `dropped`: identity and place of the copies that it deletes once its own is whole.
    """
    template = pod_template(
        owner,
        "snapshot",
        _container(owner, topology, image, checkpoint, to, dropped),
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
        names.snapshot(owner.name),
        "snapshot",
        labels=topology.driver.pod.labels,
        spec={"backoffLimit": TRIES - 1, "activeDeadlineSeconds": DEADLINE_SECONDS, "template": template},
    )


def _container(
    owner: Owner, topology: Topology, image: str, checkpoint: str, to: str, dropped: Iterable[tuple[str, str]]
) -> Object:
    run = owner.uid.replace("-", "")  # the copy of a Job that has to be made again is the same snapshot's
    copied = ["streamtopology", "snapshot", "--checkpoint", checkpoint, "--to", to, "--run", run, "--report", REPORT]
    container: Object = {
        "name": "snapshot",
        "image": image,
        "args": [*copied, *(argument for old, place in dropped for argument in ("--drop", old, place))],
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
