"""The pre-copy Job: it copies the state that an epoch moves before the switch."""

from __future__ import annotations

from streamtopology.contract.pods import PRECOPY_SECONDS
from streamtopology.k8s import names
from streamtopology.k8s.resources.checkpoint_job import checkpoint_job, copying_container
from streamtopology.k8s.resources.objects import Object, Owner
from streamtopology.topology import Topology

# The time for which an ended Job is kept.
KEEP_SECONDS = 3600


def job(owner: Owner, topology: Topology, image: str, user: int | None, epoch: int) -> Object:
    """The Job that copies the state that `epoch` moves. It is deleted some time after its end."""
    command = ["migrate", "--checkpoint", topology.checkpoint or "", "--epoch", str(epoch)]
    return checkpoint_job(
        owner,
        topology,
        user,
        names.migration(owner.name, epoch),
        "migration",
        copying_container(owner, topology, image, "migrate", command),
        activeDeadlineSeconds=PRECOPY_SECONDS,
        ttlSecondsAfterFinished=KEEP_SECONDS,
    )
