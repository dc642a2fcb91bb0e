"""The Job that copies the state an epoch moves ahead of the switch."""

from __future__ import annotations

from streamtopology.operator import names
from streamtopology.operator.resources.objects import Object, Owner, from_field, limits, owned, pod_template
from streamtopology.routing.topology import Topology

TRIES = 4
"""Pods that the Job starts before it gives up; each goes on where the one before stopped."""

DEADLINE_SECONDS = 3600
KEEP_SECONDS = 3600
"""How long a Job that has ended stays to be looked at."""


def job(owner: Owner, topology: Topology, image: str, epoch: int) -> Object:
    """Runs where the driver would: with its volumes and its account, for it reads and writes the same checkpoint."""
    template = pod_template(
        owner, "migration", _container(owner, topology, image, epoch), topology.driver.pod,
        annotations={}, serviceAccountName=names.driver(owner.name), automountServiceAccountToken=False,
        restartPolicy="Never", terminationGracePeriodSeconds=10,
    )  # fmt: skip
    return owned(
        owner, names.JOB, names.migration(owner.name, epoch), "migration",
        spec={
            "backoffLimit": TRIES - 1,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": KEEP_SECONDS,
            "template": template,
        },
    )  # fmt: skip


def _container(owner: Owner, topology: Topology, image: str, epoch: int) -> Object:
    container: Object = {
        "name": "migrate",
        "image": image,
        "args": ["streamtopology", "migrate", "--checkpoint", topology.checkpoint or "", "--epoch", str(epoch)],
        "env": [
            {"name": "STREAMTOPOLOGY_NAME", "value": owner.name},
            {"name": "STREAMTOPOLOGY_NAMESPACE", "value": owner.namespace},
            from_field("POD_NAME", "metadata.name"),
        ],
        "resources": limits("500m", "1Gi"),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if topology.image_pull_policy:
        container["imagePullPolicy"] = topology.image_pull_policy
    return container
